"""Sending what is in the outbox. Called in rounds by the worker's postman, and by nobody else.

Any number of postmen may run: whoever moves a message's `next_attempt_at` in a conditional update has it for
CLAIM_SECONDS, which is longer than an attempt can take. One that dies in between is followed by another attempt with
the same `webhook-id`, so receivers can tell.
"""

import asyncio
import hashlib
import json
import logging
import smtplib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest

import httpx
from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db.models import F

from controlplane.common.errors import ApplicationError
from tenants import vault
from tenants.models import OutboxMessage, WebhookEndpoint
from tenants.webhook_calls import Answer, allowed_networks, call, caller, signature

logger = logging.getLogger(__name__)

AT_ONCE = 20
CLAIM_SECONDS = 60
# After the first failure, the second, …; jitter is added. In all about a day and a half, then it has failed.
PAUSES_SECONDS = (5, 30, 120, 600, 1800, 3600, 7200, 18_000, 36_000, 64_800)
LONGEST_ASKED_SECONDS = 3600.0
# An endpoint that has refused for so long is switched off; its tenant sees why.
GIVE_UP_ENDPOINT = timedelta(days=3)
GAVE_UP = "it has refused every message for days"


@dataclass(frozen=True, slots=True)
class Sent:
    """One round. due_at: when the next message wants to be tried, None for none."""

    sent: int
    failed: int
    due_at: datetime | None


def deliver_due(now: datetime) -> Sent:
    """Try what is due, at most AT_ONCE messages. Raises nothing for what receivers do."""
    claimed = [message for message in _due(now) if _claim(message, now)]
    mails = [message for message in claimed if message.way == "mail"]
    hooks = [message for message in claimed if message.way == "webhook"]
    answers = list(zip_longest(mails, _send_mails(mails)))
    answers += list(zip_longest(hooks, _call_all(hooks, now)))
    taken = sum(_note(message, answer, now) for message, answer in answers)
    return Sent(taken, len(claimed) - taken, _next_due())


def pause_after(attempts: int, message_id: str) -> float | None:
    """Seconds until the attempt after the given number; None when enough were made.

    Jitter of up to a quarter, from the message's id: messages that failed together come back apart.
    """
    if attempts > len(PAUSES_SECONDS):
        return None
    base = PAUSES_SECONDS[attempts - 1]
    digest = hashlib.sha256(f"{message_id}/{attempts}".encode()).digest()
    return base * (1 + digest[0] / 255 / 4)


def _due(now: datetime) -> list[OutboxMessage]:
    waiting = OutboxMessage.objects.filter(next_attempt_at__lte=now)
    return list(waiting.select_related("user", "endpoint").order_by("next_attempt_at")[:AT_ONCE])


def _next_due() -> datetime | None:
    waiting = OutboxMessage.objects.filter(next_attempt_at__isnull=False)
    return waiting.order_by("next_attempt_at").values_list("next_attempt_at", flat=True).first()


def _claim(message: OutboxMessage, now: datetime) -> bool:
    """Whether this message is ours for the next CLAIM_SECONDS."""
    unclaimed = OutboxMessage.objects.filter(
        pk=message.pk, attempts=message.attempts, next_attempt_at=message.next_attempt_at
    )
    until = now + timedelta(seconds=CLAIM_SECONDS)
    won = unclaimed.update(attempts=F("attempts") + 1, next_attempt_at=until) == 1
    message.attempts += 1
    message.next_attempt_at = until
    return won


def _send_mails(messages: Sequence[OutboxMessage]) -> list[Answer]:
    """One connection for all; what the server said of each."""
    if not messages:
        return []
    try:
        with get_connection() as link:
            return [_send_mail(message, link) for message in messages]
    except (smtplib.SMTPException, OSError) as error:
        return [Answer(f"mail server: {type(error).__name__}")] * len(messages)


def _send_mail(message: OutboxMessage, link: BaseEmailBackend) -> Answer:
    user = message.user
    if user is None or not user.email or not user.is_active:
        return Answer("the recipient has no address", gone=True)
    letter = EmailMessage(
        message.subject,
        message.body,
        to=[user.email],
        headers={
            "Message-ID": f"<{message.message_id}@muster>",
            "Auto-Submitted": "auto-generated",
        },
        connection=link,
    )
    try:
        letter.send()
    except smtplib.SMTPRecipientsRefused:
        return Answer("the address was refused", gone=True)
    return Answer()


def _call_all(messages: Sequence[OutboxMessage], now: datetime) -> list[Answer]:
    async def together() -> list[Answer]:
        async with caller() as client:
            calls = (_call(client, message, now) for message in messages)
            return list(await asyncio.gather(*calls))

    return asyncio.run(together()) if messages else []


async def _call(client: httpx.AsyncClient, message: OutboxMessage, now: datetime) -> Answer:
    endpoint = message.endpoint
    if endpoint is None or not endpoint.active:
        return Answer("the endpoint is switched off", gone=True)
    body = json.dumps(message.payload, separators=(",", ":"), sort_keys=True).encode()
    stamp = int(now.timestamp())
    try:
        secret = vault.decrypt(bytes(endpoint.encrypted_secret)).decode()
    except ApplicationError:
        return Answer("its secret cannot be read with this FIELD_KEY")
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Muster-Webhooks/1",
        "webhook-id": message.message_id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": signature(secret, message.message_id, stamp, body),
    }
    allowed = allowed_networks(settings.WEBHOOK_NETWORKS)
    return await call(client, endpoint.url, headers, body, allowed)


def _note(message: OutboxMessage, answer: Answer, now: datetime) -> bool:
    """Write how it went. True when it was taken."""
    if message.endpoint is not None:
        _note_endpoint(message.endpoint, answer, now)
    row = OutboxMessage.objects.filter(pk=message.pk, attempts=message.attempts)
    if not answer.error:
        row.update(sent_at=now, next_attempt_at=None, last_error="")
        return True
    pause = None if answer.gone else pause_after(message.attempts, message.message_id)
    error = answer.error[:200]
    if pause is None:
        row.update(failed_at=now, next_attempt_at=None, last_error=error)
        logger.warning("message %s failed for good: %s", message.message_id, error)
        return False
    pause = max(pause, min(answer.retry_after_seconds, LONGEST_ASKED_SECONDS))
    row.update(next_attempt_at=now + timedelta(seconds=pause), last_error=error)
    return False


def _note_endpoint(endpoint: WebhookEndpoint, answer: Answer, now: datetime) -> None:
    row = WebhookEndpoint.objects.filter(pk=endpoint.pk, active=True)
    if not answer.error:
        row.filter(failing_since__isnull=False).update(failing_since=None)
    elif answer.gone and endpoint.active:
        row.update(active=False, disabled_reason="it answered that it is gone")
    elif endpoint.failing_since is None:
        row.filter(failing_since__isnull=True).update(failing_since=now)
    elif now - endpoint.failing_since > GIVE_UP_ENDPOINT:
        row.update(active=False, disabled_reason=GAVE_UP)
