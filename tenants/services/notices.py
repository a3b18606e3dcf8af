"""What a person wants to hear of by mail."""

from controlplane.common.errors import FieldError, InvalidError
from tenants.models import MailChoice, User

LEVELS = tuple(level for level, _words in MailChoice.LEVELS)


def mail_choice(user: User) -> str:
    """One of LEVELS; "none" where nothing was chosen."""
    chosen = MailChoice.objects.filter(user=user).values_list("alerts", flat=True).first()
    return chosen or "none"


def choose_mail(user: User, alerts: str) -> None:
    """From now on. Raises InvalidError for an unknown level."""
    if alerts not in LEVELS:
        message = f"must be one of {', '.join(LEVELS)}"
        raise InvalidError(message, errors=(FieldError("/alerts", "unknown", message),))
    MailChoice.objects.update_or_create(user=user, defaults={"alerts": alerts})
