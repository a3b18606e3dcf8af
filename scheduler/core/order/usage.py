"""Past usage in the order of jobs: users inside a queue, tenants inside a cohort.

Usage is GPU seconds decayed by a half-life (the caller decays it to `now`). As in Kueue's
admission fair sharing (keps/4136) a start adds an entry penalty at once, so that a burst of one
user's jobs cannot get in before the first sample.
"""

from __future__ import annotations

import math
from collections import defaultdict

from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.quota.accounts import Accounts

ENTRY_PENALTY_SECONDS = 300.0
"""A start counts at once as so many seconds of use of its GPUs."""


class UserUsage:
    """Decayed GPU seconds per (tenant, user), and who has anything running; both grow as jobs start in
    the pass."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._gpu_seconds: dict[tuple[str, str], float] = defaultdict(float)
        for row in snapshot.usage:
            if row.user is not None:
                self._gpu_seconds[row.tenant, row.user] += row.gpu_seconds
        self._busy = {(job.ask.tenant, job.ask.user) for job in snapshot.running}

    def of(self, tenant: str, user: str) -> float:
        """The user's decayed GPU seconds, entry penalties of this pass included."""
        return self._gpu_seconds[tenant, user]

    def started(self, tenant: str, user: str, gpus: int) -> None:
        """Count the entry penalty of a start."""
        self._gpu_seconds[tenant, user] += gpus * ENTRY_PENALTY_SECONDS
        self._busy.add((tenant, user))

    def is_busy(self, tenant: str, user: str) -> bool:
        """Whether a job of the user runs, or was started in this pass."""
        return (tenant, user) in self._busy


def past_shares(snapshot: Snapshot, accounts: Accounts) -> dict[str, float]:
    """What each tenant borrowed on average of late, as a weighted share in thousandths.

    The decayed usage divided by the half-life's mean weight is the average of GPUs in use; what
    is above the tenant's nominal quota, over all flavors, was borrowed.
    """
    shares = {}
    for row in snapshot.usage:
        if row.user is None and row.gpu_seconds > 0:
            average = row.gpu_seconds * math.log(2) / snapshot.half_life_seconds
            shares[row.tenant] = _past_share(snapshot, accounts, row.tenant, average)
    return shares


def _past_share(snapshot: Snapshot, accounts: Accounts, tenant: str, average: float) -> float:
    found = [accounts.account(tenant, flavor.name) for flavor in snapshot.flavors]
    members = [account for account in found if account is not None and account.parent is not None]
    nominal = sum(account.quota.nominal for account in members)
    lendable = sum(account.parent.potential() for account in members if account.parent)
    if average <= nominal or lendable <= 0:
        return 0.0
    weight = max(account.quota.weight for account in members)
    return math.inf if weight <= 0 else (average - nominal) * 1000.0 / lendable / weight
