"""The audit trail's only writer; other apps' services call it too."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tenants.access import Actor
from tenants.models import AuditEntry, Tenant


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to what. `before` and `after` hold only what differs; never a secret's value."""

    action: str
    object_kind: str
    object_name: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


def write_audit(
    actor: Actor, change: Change, *, now: datetime, tenant: Tenant | None = None, reason: str = ""
) -> AuditEntry:
    """Append an entry. Call it inside the transaction of the change, so that neither is without the other."""
    return AuditEntry.objects.create(
        at=now,
        actor=actor.name,
        via=actor.via[:40],
        address=actor.address[:45],
        action=change.action,
        tenant=tenant,
        object_kind=change.object_kind,
        object_name=change.object_name[:200],
        before=change.before,
        after=change.after,
        reason=reason,
    )
