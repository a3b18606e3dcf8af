"""Checks of single fields that several services share."""

import re

from django.utils.translation import gettext as _

from controlplane.common.errors import ErrorCollector


def check_pattern(errors: ErrorCollector, pointer: str, value: str, pattern: str) -> None:
    """Note an error unless `value` is a slug."""
    if not value:
        errors.add(pointer, "required", _("must not be empty"))
    elif not re.fullmatch(pattern.rstrip("$").lstrip("^"), value):
        errors.add(
            pointer,
            "invalid_name",
            _(
                "must be lower-case letters, digits and hyphens, begin with a letter, "
                "and have at most 40 characters"
            ),
        )


def check_text(errors: ErrorCollector, pointer: str, value: str, longest: int) -> None:
    """Note an error for text that is empty, too long or not printable."""
    if not value.strip():
        errors.add(pointer, "required", _("must not be empty"))
    elif len(value) > longest:
        errors.add(
            pointer, "too_long", _("must have at most {count} characters").format(count=longest)
        )
    elif not value.isprintable():
        errors.add(pointer, "invalid_character", _("must not hold control characters"))
