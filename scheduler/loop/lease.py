"""Acquire, renew and give back the lease of a cluster (DESIGN section 3, rule 4).

All times are the database's own, so that workers with wrong clocks agree on who holds it. Each step is one
conditional UPDATE; the winner is who changed the row. `scheduler.apply.fence` holds it inside transactions.
"""

from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from scheduler.apply.fence import HeldLease
from scheduler.models import Lease

# Long enough for a slow cycle and a short stall of the database; a dead leader is replaced after this.
LEASE_SECONDS = 10


def acquire(cluster_id: int, holder: str, *, seconds: float = LEASE_SECONDS) -> HeldLease | None:
    """Take a lease that is free or has run out; None while somebody else holds it.

    Taking it again under the same name yields a new token too: two threads that call themselves alike do not
    share a lease.
    """
    is_free = Q(expires_at__isnull=True) | Q(expires_at__lte=Now())
    rows = Lease.objects.filter(cluster_id=cluster_id)
    # Whoever does not lead asks this every second: one statement.
    found = rows.annotate(is_free=is_free).values_list("is_free", flat=True).first()
    if found is None:
        Lease.objects.get_or_create(cluster_id=cluster_id)
    elif not found:
        return None
    free = rows.filter(is_free)
    # The row stays locked from the update to the commit, so the token read back is the one just made.
    with transaction.atomic():
        taken = free.update(
            holder=holder, token=F("token") + 1, expires_at=Now() + timedelta(seconds=seconds)
        )
        if not taken:
            return None
        token = Lease.objects.values_list("token", flat=True).get(cluster_id=cluster_id)
    return HeldLease(cluster_id, holder, token)


def renew(lease: HeldLease, *, seconds: float = LEASE_SECONDS) -> bool:
    """Prolong it; False when it was lost. One that ran out but that nobody took is still ours."""
    return bool(
        Lease.objects.filter(
            cluster_id=lease.cluster_id, holder=lease.holder, token=lease.token
        ).update(expires_at=Now() + timedelta(seconds=seconds))
    )


def give_back(lease: HeldLease) -> None:
    """Let the next worker take over at once; does nothing when the lease is no longer ours."""
    Lease.objects.filter(
        cluster_id=lease.cluster_id, holder=lease.holder, token=lease.token
    ).update(expires_at=None, holder="")
