"""What people and their systems are told: messages waiting to leave, endpoints that take them, who wants mail."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from tenants.models.people import Tenant, User


class WebhookEndpoint(models.Model):
    """An address that hears of events (Standard Webhooks). Without a tenant it hears of the whole platform's."""

    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.CASCADE, related_name="webhook_endpoints"
    )
    url = models.URLField(max_length=500)
    description = models.CharField(max_length=120, blank=True)
    # Event kinds that it hears of, "alert." for all that begin so; empty: every one.
    kinds = models.JSONField(default=list)
    encrypted_secret = models.BinaryField()
    active = models.BooleanField(default=True)
    # Why Muster switched it off: the endpoint said 410, or refused for days.
    disabled_reason = models.CharField(max_length=200, blank=True)
    # Since when every attempt has failed; None while it answers.
    failing_since = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.url


class OutboxMessage(models.Model):
    """One message to one recipient, written in the transaction of what it tells of, sent after it by the worker.

    Whoever wants to send it first moves `next_attempt_at` past its own time limit, in a conditional update on
    `attempts`: only one sender at a time, and a sender that died is followed by another.
    """

    WAYS: ClassVar = [("mail", _("mail")), ("webhook", _("webhook"))]

    way = models.CharField(max_length=8, choices=WAYS)
    # What it tells of, "alert.opened"; and its identity for the receiver: the same in every attempt.
    kind = models.CharField(max_length=64)
    message_id = models.CharField(max_length=40, unique=True)
    # The same key is never written twice.
    dedupe_key = models.CharField(max_length=200, unique=True)
    tenant = models.ForeignKey(
        Tenant, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    endpoint = models.ForeignKey(
        WebhookEndpoint, null=True, blank=True, on_delete=models.CASCADE, related_name="messages"
    )
    subject = models.CharField(max_length=200, blank=True)
    body = models.TextField(blank=True)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    # None: nothing more is tried, it was sent or has failed.
    next_attempt_at = models.DateTimeField(null=True, blank=True, db_index=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True, blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)
    # What the last attempt met: "HTTP 503", "time-out"; never what the receiver wrote.
    last_error = models.CharField(max_length=200, blank=True)

    class Meta:
        indexes = [models.Index(fields=["endpoint", "-id"], name="outbox_by_endpoint")]
        constraints = [
            models.CheckConstraint(
                condition=Q(way="mail", user__isnull=False, endpoint__isnull=True)
                | Q(way="webhook", user__isnull=True, endpoint__isnull=False),
                name="outbox_one_recipient",
            )
        ]

    def __str__(self) -> str:
        return f"{self.message_id} {self.kind}"


class MailChoice(models.Model):
    """Which alerts a person wants by mail. No row: none."""

    LEVELS: ClassVar = [
        ("none", _("none")),
        ("critical", _("critical ones")),
        ("warning", _("warnings and critical ones")),
        ("info", _("all")),
    ]

    user = models.OneToOneField(
        User, on_delete=models.CASCADE, primary_key=True, related_name="mail_choice"
    )
    alerts = models.CharField(max_length=8, choices=LEVELS, default="none")

    def __str__(self) -> str:
        return f"{self.user_id}: {self.alerts}"
