"""The one outbox: what is to leave by mail or webhook is written here, in the transaction of what it tells of.

Sent after the commit by `tenants.services.delivery`; a rolled-back change tells nobody. Call inside
`log.writing()`. A `dedupe_key` that is known already is not written again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Q
from ulid import ULID

from tenants.models import OutboxMessage, Tenant, User, WebhookEndpoint

LONGEST_KEY = 200


@dataclass(frozen=True, slots=True)
class Letter:
    """What is said by mail, as plain text. dedupe_key: of what it tells; the recipient is added to it."""

    kind: str
    dedupe_key: str
    subject: str
    body: str


def post_mail(
    users: Iterable[User], letter: Letter, *, tenant: Tenant | None, now: datetime
) -> int:
    """One message to each of `users` who has an address. Returns how many were addressed.

    Where no mail can leave (EMAIL_URL) none is written.
    """
    if not settings.EMAIL_URL:
        return 0
    messages = [
        OutboxMessage(
            **_common("mail", letter.kind, f"{letter.dedupe_key}/user:{user.pk}", tenant, now),
            user=user,
            subject=" ".join(letter.subject.split())[:200],
            body=letter.body,
        )
        for user in users
        if user.email and user.is_active
    ]
    OutboxMessage.objects.bulk_create(messages, ignore_conflicts=True)
    return len(messages)


def post_webhooks(
    tenant: Tenant | None, kind: str, dedupe_key: str, details: Mapping[str, Any], now: datetime
) -> int:
    """One message to every active endpoint of `tenant` and of the platform that hears of `kind`.

    details: the `data` of the payload; it must hold nothing that the tenant may not see.
    """
    messages = [
        _webhook(endpoint, kind, dedupe_key, details, now)
        for endpoint in _listening(tenant)
        if hears(endpoint, kind)
    ]
    OutboxMessage.objects.bulk_create(messages, ignore_conflicts=True)
    return len(messages)


def post_to(
    endpoint: WebhookEndpoint, kind: str, dedupe_key: str, details: Mapping[str, Any], now: datetime
) -> OutboxMessage:
    """One message to this endpoint, whatever it listens to: a trial."""
    message = _webhook(endpoint, kind, dedupe_key, details, now)
    message.save()
    return message


def hears(endpoint: WebhookEndpoint, kind: str) -> bool:
    """Whether the endpoint asked for this kind; "alert." stands for all that begin so."""
    wanted = endpoint.kinds
    return not wanted or any(kind == w or (w.endswith(".") and kind.startswith(w)) for w in wanted)


def _listening(tenant: Tenant | None) -> Iterable[WebhookEndpoint]:
    whose = Q(tenant__isnull=True) if tenant is None else Q(tenant__isnull=True) | Q(tenant=tenant)
    return WebhookEndpoint.objects.filter(whose, active=True).order_by("pk")


def _webhook(
    endpoint: WebhookEndpoint,
    kind: str,
    dedupe_key: str,
    details: Mapping[str, Any],
    now: datetime,
) -> OutboxMessage:
    key = f"{dedupe_key}/endpoint:{endpoint.pk}"
    stamp = now.isoformat().replace("+00:00", "Z")
    return OutboxMessage(
        **_common("webhook", kind, key, endpoint.tenant, now),
        endpoint=endpoint,
        payload={"type": kind, "timestamp": stamp, "data": dict(details)},
    )


def _common(way: str, kind: str, key: str, tenant: Tenant | None, now: datetime) -> dict[str, Any]:
    if len(key) > LONGEST_KEY:
        raise ValueError(f"a dedupe key has at most {LONGEST_KEY} characters: {key}")
    return {
        "way": way,
        "kind": kind,
        "message_id": f"msg_{ULID()}",
        "dedupe_key": key,
        "tenant": tenant,
        "created_at": now,
        "next_attempt_at": now,
    }
