"""Encryption of tenants' secrets at rest, with Fernet under `FIELD_KEY`.

FIELD_KEY may hold several keys with commas between: the first encrypts, all decrypt, so that keys can be changed.
"""

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.utils.translation import gettext as _

from controlplane.common.errors import ApplicationError


class NoFieldKeyError(ApplicationError):
    """`FIELD_KEY` is unset or malformed: no secret can be stored or read."""

    status = 503
    default_code = "no_field_key"


def encrypt(value: bytes) -> bytes:
    """Encrypt under the first key. Raises NoFieldKeyError."""
    return _keys().encrypt(value)


def decrypt(stored: bytes) -> bytes:
    """What `encrypt` was given. Raises NoFieldKeyError, also when no key fits."""
    try:
        return _keys().decrypt(stored)
    except InvalidToken:
        raise NoFieldKeyError(
            _("A stored secret was encrypted with another FIELD_KEY."),
            hint=_("Add the old key to FIELD_KEY, after the new one and a comma."),
        ) from None


def can_encrypt() -> bool:
    """Whether secrets can be stored at all."""
    return bool(settings.FIELD_KEY)


def _keys() -> MultiFernet:
    if not settings.FIELD_KEY:
        raise NoFieldKeyError(
            _("Secrets cannot be stored: this installation has no FIELD_KEY."),
            hint=_("The operator of Muster sets the environment variable FIELD_KEY."),
        )
    return MultiFernet([Fernet(key.strip()) for key in settings.FIELD_KEY.split(",")])


@register()
def check_field_key(**_kwargs: object) -> list[CheckMessage]:
    """A malformed key is found when the process starts, not when the first secret is stored."""
    try:
        if settings.FIELD_KEY:
            _keys()
    except ValueError as error:
        return [Error(f"FIELD_KEY is not a Fernet key: {error}", id="tenants.E001")]
    return []
