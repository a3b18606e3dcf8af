"""Rows that belong to no app: the event log and idempotency keys."""

from django.db import models


class Event(models.Model):
    """One line of the log (DESIGN section 3, rule 5). Written only by `controlplane.common.log`.

    `seq` rises in commit order: the writer holds one transaction-level lock while it draws numbers.
    References are names, not foreign keys, since events outlive what they speak of.
    """

    seq = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    kind = models.CharField(max_length=64)
    # A tenant's slug; empty means that everyone who is signed in may read the event.
    tenant = models.CharField(max_length=40, blank=True)
    job = models.CharField(max_length=40, blank=True)
    cluster = models.CharField(max_length=63, blank=True)
    node = models.CharField(max_length=253, blank=True)
    actor = models.CharField(max_length=150, blank=True)
    message = models.TextField(blank=True)
    numbers = models.JSONField(default=dict, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "seq"], name="event_by_tenant"),
            models.Index(fields=["job", "seq"], name="event_by_job"),
            models.Index(fields=["at"], name="event_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.kind}"


class IdempotencyKey(models.Model):
    """What a request with an `Idempotency-Key` answered, stored in the transaction that acted."""

    # Who sent it: "token:<id>" or "user:<id>", so that two people may choose the same key.
    owner = models.CharField(max_length=64)
    key = models.CharField(max_length=255)
    request_hash = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    body = models.JSONField()
    headers = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "key"], name="idempotency_key_once_per_owner")
        ]

    def __str__(self) -> str:
        return f"{self.owner} {self.key}"
