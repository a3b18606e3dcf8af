"""ETag, If-Match and If-None-Match: a row's `version` as HTTP knows it."""

from django.http import HttpRequest
from django.utils.translation import gettext as _
from rest_framework.request import Request

from controlplane.common.errors import PreconditionRequiredError, StaleError


def etag(version: int | str) -> str:
    """The entity tag of a version: `"7"`."""
    return f'"{version}"'


def wanted_version(request: HttpRequest | Request) -> int | None:
    """The version that `If-Match` names; None for `*`, which matches any.

    Raises PreconditionRequiredError without the header, StaleError for a tag that no version has.
    """
    sent = request.headers.get("If-Match", "").strip()
    if not sent:
        raise PreconditionRequiredError(
            _("Say which version you change, so that nobody's change is lost."),
            hint=_("Read the object, and send its ETag in the header If-Match."),
        )
    if sent == "*":
        return None
    digits = sent.strip('"')
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 18:
        raise stale()
    return int(digits)


def check_version(request: HttpRequest | Request, current: int) -> None:
    """Raise unless `If-Match` names the current version. Services check again under their lock."""
    wanted = wanted_version(request)
    if wanted is not None and wanted != current:
        raise stale(current)


def stale(current: int | None = None) -> StaleError:
    """The error for a version that is no longer the current one."""
    return StaleError(
        _("It was changed after you read it."),
        hint=_("Read it again and repeat your change."),
        extra={} if current is None else {"current_version": current},
    )


def is_unchanged(request: HttpRequest | Request, tag: str) -> bool:
    """Whether `If-None-Match` names this entity tag: the answer may be an empty 304."""
    sent = request.headers.get("If-None-Match", "")
    tags = {part.strip().removeprefix("W/") for part in sent.split(",")}
    return "*" in tags or tag.removeprefix("W/") in tags
