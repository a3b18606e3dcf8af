"""All quota of one snapshot in use: the trees of every flavor, queue limits, user limits.

The cycle asks it whether a job may start, and tells it what started. Mutable within a pass.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

from scheduler.core.inputs.jobs import Ask
from scheduler.core.inputs.quotas import FlavorQuota, OrderPolicy
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.outputs import OverAdmission
from scheduler.core.quota.shares import share
from scheduler.core.quota.tree import Account, build_tree, copied_tree
from scheduler.core.reasons import Numbers, Reason, ReasonCode

Key = tuple[str, str, str]

Group = tuple[str, str, str, bool, str]
"""Tenant, queue, user, preemptible, flavor: all that usage is counted by."""

Totals = dict[Group, int]
"""GPUs in use per group."""


def usage_group(ask: Ask, flavor: str) -> Group:
    """The group that the ask's GPUs count for."""
    return (ask.tenant, ask.queue, ask.user, ask.preemptible, flavor)


def totals_of(snapshot: Snapshot) -> Totals:
    """GPUs that the running jobs hold, per group."""
    totals: Totals = defaultdict(int)
    for job in snapshot.running:
        totals[usage_group(job.ask, job.flavor)] += job.gpus
    return totals


@dataclass(frozen=True, slots=True)
class QuotaView:
    """A tenant's state for one flavor, in GPUs, for screens and simulations."""

    tenant: str
    flavor: str
    nominal: int
    used: int
    borrowed: int
    available: int


class Accounts:
    """Quota trees and limits with their current usage."""

    def __init__(self, snapshot: Snapshot, totals: Totals | None = None) -> None:
        """`totals` are those of the snapshot's running jobs, where the caller has them."""
        self._trees: dict[str, dict[str, Account]] = {
            flavor.name: _tree_of(snapshot, flavor.name) for flavor in snapshot.flavors
        }
        self._limits = _limits_of(snapshot)
        self._fair_cohorts = {
            cohort.name for cohort in snapshot.cohorts if cohort.order is OrderPolicy.FAIR_SHARE
        }
        self._has_user_limits = bool(snapshot.user_limits)
        self._limited: dict[Key, int] = defaultdict(int)
        self._firm: dict[tuple[str, str], int] = defaultdict(int)
        self.journal: list[tuple[Group, int]] = []
        """Every `add` since the accounts were opened, so that a branch can catch up."""
        self._promised: dict[tuple[str, str], int] = defaultdict(int)
        self.over_admissions: tuple[OverAdmission, ...] = ()
        for group, gpus in (totals_of(snapshot) if totals is None else totals).items():
            self._add(group, gpus)
        self.over_admissions = self._over()

    def account(self, tenant: str, flavor: str) -> Account | None:
        """The tenant's leaf in the flavor's tree."""
        return self._trees.get(flavor, {}).get(tenant)

    def add(self, ask: Ask, flavor: str, gpus: int) -> None:
        """Count `gpus` more (negative: fewer) for the ask's tenant, queue and user."""
        group = usage_group(ask, flavor)
        self._add(group, gpus)
        self.journal.append((group, gpus))

    def promise(self, ask: Ask, flavor: str, gpus: int) -> None:
        """`add` for what does not run yet: a start of this pass, a preemptor's hold."""
        self.add(ask, flavor, gpus)
        self._promised[ask.tenant, flavor] += gpus

    def borrows(self, tenant: str, flavor: str) -> bool:
        """Whether the tenant uses more than its own quota, promises left aside: what runs is not
        taken from it for what it has just been promised."""
        account = self.account(tenant, flavor)
        if account is None:
            return False
        return account.usage - self._promised[tenant, flavor] > account.subtree

    @contextmanager
    def counted(self, uses: Iterable[tuple[Ask, str, int]]) -> Iterator[None]:
        """The accounts as if these (ask, flavor, GPUs) were in use too, until the context closes."""
        groups = [(usage_group(ask, flavor), gpus) for ask, flavor, gpus in uses]
        for group, gpus in groups:
            self._add(group, gpus)
        try:
            yield
        finally:
            for group, gpus in reversed(groups):
                self._add(group, -gpus)

    def hold(self, uses: Iterable[tuple[Ask, str, int]]) -> bool:
        """Whether these (ask, flavor, GPUs), one after another, all find room. Counts nothing."""
        counted: list[tuple[Group, int]] = []
        try:
            for ask, flavor, gpus in uses:
                if gpus > self.room(ask, flavor):
                    return False
                counted.append((usage_group(ask, flavor), gpus))
                self._add(*counted[-1])
            return True
        finally:
            for group, gpus in reversed(counted):
                self._add(group, -gpus)

    def branch(self) -> Accounts:
        """A copy that goes its own way: usage now, an empty journal."""
        copied = copy(self)
        copied._trees = {flavor: copied_tree(tree) for flavor, tree in self._trees.items()}
        copied._limited, copied._firm = self._limited.copy(), self._firm.copy()
        copied.journal = []
        return copied

    def catch_up(self, entries: Iterable[tuple[Group, int]]) -> None:
        """Count entries of another's journal."""
        net: Totals = defaultdict(int)
        for group, gpus in entries:
            net[group] += gpus
        for group, gpus in net.items():
            if gpus:
                self._add(group, gpus)

    def _add(self, group: Group, gpus: int) -> None:
        tenant, queue, user, preemptible, flavor = group
        account = self.account(tenant, flavor)
        if account is not None:
            if gpus >= 0:
                account.add(gpus)
            else:
                account.remove(-gpus)
        if not preemptible:
            self._firm[tenant, flavor] += gpus
        self._limited["queue", queue, flavor] += gpus
        self._limited["user", f"{tenant}/{user}", flavor] += gpus

    def never_fits(self, ask: Ask, flavor: str, gpus: int) -> Reason | None:
        """EXCEEDS_QUOTA_FOR_EVER when no passing of time makes room for `gpus`."""
        most = self.most(ask, flavor)
        if gpus <= most:
            return None
        numbers: Numbers = {
            "flavor": flavor,
            "needed_gpus": gpus,
            "most_gpus": most,
            "tenant": ask.tenant,
        }
        return Reason(ReasonCode.EXCEEDS_QUOTA_FOR_EVER, numbers)

    def most(self, ask: Ask, flavor: str) -> int:
        """The most GPUs that one job like this could ever hold."""
        account = self.account(ask.tenant, flavor)
        if account is None:
            return 0
        most = account.potential()
        if not ask.preemptible:
            most = min(most, account.quota.nominal - account.quota.headroom)
        limits = [self._limits.get(key) for key in _limit_keys(ask, flavor)]
        return max(0, min([most, *(limit for limit in limits if limit is not None)]))

    def limit_refusal(self, ask: Ask, flavor: str, gpus: int) -> Reason | None:
        """USER_LIMIT when the queue's or user's limit would be passed."""
        if not self._limits:
            return None
        for key in _limit_keys(ask, flavor):
            limit = self._limits.get(key)
            if limit is not None and self._limited[key] + gpus > limit:
                numbers: Numbers = {
                    "flavor": flavor,
                    "needed_gpus": gpus,
                    "used_gpus": self._limited[key],
                    "limit_gpus": limit,
                    "scope": key[0],
                }
                return Reason(ReasonCode.USER_LIMIT, numbers)
        return None

    def available(self, ask: Ask, flavor: str) -> int:
        """GPUs that the tenant may still add for a job like this (limits left aside)."""
        account = self.account(ask.tenant, flavor)
        if account is None:
            return 0
        available = account.available()
        if not ask.preemptible:
            firm = account.quota.nominal - account.quota.headroom
            available = min(available, firm - self._firm[ask.tenant, flavor])
        return available

    def room(self, ask: Ask, flavor: str) -> int:
        """`available` with the queue's and user's limits counted."""
        room = self.available(ask, flavor)
        if not self._limits:
            return room
        for key in _limit_keys(ask, flavor):
            limit = self._limits.get(key)
            if limit is not None:
                room = min(room, limit - self._limited[key])
        return room

    def would_borrow(self, tenant: str, flavor: str, gpus: int) -> bool:
        """Whether `gpus` more would take the tenant above its own quota."""
        account = self.account(tenant, flavor)
        return account is not None and account.usage + gpus > account.subtree

    def quota_refusal(self, ask: Ask, flavor: str, gpus: int) -> Reason | None:
        """WAITING_FOR_QUOTA when the tenant may not add `gpus` now, WAITING_FOR_FAIR_SHARE when it
        would have to borrow in a fair-share cohort and others have borrowed what there was."""
        available = self.available(ask, flavor)
        if gpus <= available:
            return None
        account = self.account(ask.tenant, flavor)
        if account is not None and account.usage + gpus > account.subtree:
            lowest = self._lowest_borrower(account)
            if lowest is not None:
                numbers: Numbers = {
                    "flavor": flavor,
                    "needed_gpus": gpus,
                    "available_gpus": max(0, available),
                    "share": _told(share(account, gpus)),
                    "lowest_share": _told(share(lowest)),
                    "lowest_tenant": lowest.name,
                }
                return Reason(ReasonCode.WAITING_FOR_FAIR_SHARE, numbers)
        numbers = {
            "flavor": flavor,
            "needed_gpus": gpus,
            "used_gpus": account.usage if account else 0,
            "nominal_gpus": account.quota.nominal if account else 0,
            "available_gpus": max(0, available),
            "tenant": ask.tenant,
        }
        return Reason(ReasonCode.WAITING_FOR_QUOTA, numbers)

    def _lowest_borrower(self, account: Account) -> Account | None:
        """The sibling with the lowest share among those that borrow, in a fair-share cohort."""
        parent = account.parent
        if parent is None or parent.name not in self._fair_cohorts:
            return None
        borrowers = [a for a in parent.children if a is not account and a.borrowed > 0]
        return min(borrowers, key=lambda a: (share(a), a.name), default=None)

    def view(self, tenant: str, flavor: str) -> QuotaView:
        """The tenant's state for one flavor; zeros without quota."""
        account = self.account(tenant, flavor)
        if account is None:
            return QuotaView(tenant, flavor, 0, 0, 0, 0)
        return QuotaView(
            tenant,
            flavor,
            account.quota.nominal,
            account.usage,
            account.borrowed,
            max(0, account.available()),
        )

    @property
    def has_fair_cohorts(self) -> bool:
        """Whether any cohort takes turns by fair share."""
        return bool(self._fair_cohorts)

    def is_fair(self, cohort: str) -> bool:
        """Whether the cohort's members take turns by fair share."""
        return cohort in self._fair_cohorts

    def has_user_limit(self, ask: Ask) -> bool:
        """Whether any limit names this ask's user."""
        if not self._has_user_limits:
            return False
        name = f"{ask.tenant}/{ask.user}"
        return any(("user", name, flavor) in self._limits for flavor in ask.flavors)

    def _over(self) -> tuple[OverAdmission, ...]:
        found: dict[tuple[str, str], int] = {}
        for flavor, tree in self._trees.items():
            for account in tree.values():
                for node in account.path():
                    over = -_own_available(node)
                    if over > 0:
                        found[node.name, flavor] = over
        return tuple(OverAdmission(name, flavor, over) for (name, flavor), over in found.items())


def _own_available(account: Account) -> int:
    """What the account's own rules leave, its ancestors' troubles left aside."""
    if account.parent is None:
        return account.subtree - account.usage
    limit = account.quota.borrowing_limit
    return 0 if limit is None else account.subtree + limit - account.usage


def _told(value: float) -> float | None:
    """A share as a number that JSON can hold: None for infinity (weight 0)."""
    return None if math.isinf(value) else round(value, 3)


def _limit_keys(ask: Ask, flavor: str) -> tuple[Key, Key]:
    return (
        ("queue", ask.queue, flavor),
        ("user", f"{ask.tenant}/{ask.user}", flavor),
    )


def _limits_of(snapshot: Snapshot) -> dict[Key, int]:
    limits: dict[Key, int] = {}
    for queue in snapshot.queues:
        for flavor, limit in queue.limits:
            limits["queue", queue.name, flavor] = limit
    for row in snapshot.user_limits:
        limits["user", f"{row.tenant}/{row.user}", row.flavor] = row.limit
    return limits


def _tree_of(snapshot: Snapshot, flavor: str) -> dict[str, Account]:
    cohorts = [
        (cohort.name, cohort.parent, _quota(cohort.quotas, flavor)) for cohort in snapshot.cohorts
    ]
    tenants = [
        (tenant.name, tenant.cohort, _quota(tenant.quotas, flavor)) for tenant in snapshot.tenants
    ]
    tree = build_tree(cohorts, tenants)
    for account in tree.values():
        if account.quota.outside:
            account.add(account.quota.outside)
    return tree


def _quota(quotas: tuple[FlavorQuota, ...], flavor: str) -> FlavorQuota:
    for quota in quotas:
        if quota.flavor == flavor:
            return quota
    return FlavorQuota(flavor)
