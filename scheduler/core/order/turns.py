"""The tournament between tenants: whose job is considered next.

As Kueue's scheduling cycle: one head per queue; at each cohort the child with the best head
wins, from the root down. Classic order: not borrowing, priority, age. Fair share: not borrowing,
lower dominant share with the candidate counted and past borrowing added, priority, age. Queues
of one tenant meet by priority and age, and so do trees and lone tenants.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.quotas import OrderPolicy
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.order.line import Line, PlainLine
from scheduler.core.order.usage import past_shares
from scheduler.core.quota.accounts import Accounts
from scheduler.core.quota.shares import bubbled, dominant_share
from scheduler.core.quota.tree import Account

JobKey = Callable[[WaitingJob], tuple[float | int | str, ...]]


@dataclass(slots=True, eq=False)
class _Seatholder:
    """A queue, tenant or cohort in the tournament; `stamp` tells its live heap entry from old ones."""

    name: str
    parent: _Group | None
    stamp: int = 0
    head: WaitingJob | None = None


@dataclass(slots=True, eq=False)
class _Queue(_Seatholder):
    line: Line = field(default_factory=lambda: PlainLine(()))


@dataclass(slots=True, eq=False)
class _Group(_Seatholder):
    policy: OrderPolicy = OrderPolicy.CLASSIC
    is_plain: bool = False
    heap: list[tuple[tuple[object, ...], int, int, _Seatholder]] = field(default_factory=list)

    def best(self) -> _Seatholder | None:
        while self.heap and self.heap[0][1] != self.heap[0][3].stamp:
            heapq.heappop(self.heap)
        return self.heap[0][3] if self.heap else None


class Turns:
    """Hands out waiting jobs one at a time; each is decided before the next is asked for."""

    def __init__(
        self,
        snapshot: Snapshot,
        lines: Mapping[tuple[str, str], Line],
        accounts: Accounts,
        job_key: JobKey,
        head_of: Callable[[Line], WaitingJob | None],
    ) -> None:
        """`lines` are by (tenant, queue). `head_of` gives a line's next job that needs a turn, and
        takes out those before it whose answer is the same whatever their turn."""
        self._accounts = accounts
        self._job_key = job_key
        self._head_of = head_of
        self._flavors = tuple(flavor.name for flavor in snapshot.flavors)
        self._past = past_shares(snapshot, accounts)
        self._count = 0
        self._taken_from: _Queue | None = None
        self._top = _Group("", None, is_plain=True)
        self._tenants = self._seat_tenants(snapshot, {tenant for tenant, _ in lines})
        self._queues: dict[tuple[str, str], _Queue] = {}
        for key in sorted(lines):
            self._queues[key] = _Queue(key[1], self._tenants[key[0]], line=lines[key])
            self._update(self._queues[key])

    def next(self) -> WaitingJob | None:
        """Take the next job out of its line; None when all lines are empty."""
        self._catch_up()
        winner: _Seatholder | None = self._top
        while isinstance(winner, _Group):
            winner = winner.best()
        if not isinstance(winner, _Queue):
            return None
        self._taken_from = winner
        return winner.line.pop()

    def _catch_up(self) -> None:
        """Find the next head of the queue that was served last, now that its job is decided (and
        counted, if it started)."""
        if self._taken_from is not None:
            self._update(self._taken_from)
            self._taken_from = None

    def _seat_tenants(self, snapshot: Snapshot, names: set[str]) -> dict[str, _Group]:
        groups: dict[str, _Group] = {}
        parents = {cohort.name: cohort.parent for cohort in snapshot.cohorts}
        for cohort in snapshot.cohorts:
            groups[cohort.name] = _Group(cohort.name, self._top, policy=cohort.order)
        for name, group in groups.items():
            parent = parents[name]
            if parent in groups and not _in_circle(name, parents):
                group.parent = groups[parent]
        cohorts = {tenant.name: tenant.cohort for tenant in snapshot.tenants}
        return {
            name: _Group(name, groups.get(cohorts.get(name) or "", self._top), is_plain=True)
            for name in sorted(names)
        }

    def _update(self, seat: _Seatholder) -> None:
        """Recompute the seat's head and its standing, and those above it."""
        current: _Seatholder | None = seat
        while current is not None and current is not self._top:
            current.head = self._head(current)
            current.stamp += 1
            group = current.parent
            if group is not None and current.head is not None:
                self._count += 1
                key = self._standing(group, current, current.head)
                heapq.heappush(group.heap, (key, current.stamp, self._count, current))
            current = group

    def _head(self, seat: _Seatholder) -> WaitingJob | None:
        if isinstance(seat, _Group):
            best = seat.best()
            return None if best is None else best.head
        return self._head_of(seat.line) if isinstance(seat, _Queue) else None

    def _standing(self, group: _Group, seat: _Seatholder, head: WaitingJob) -> tuple[object, ...]:
        if group.is_plain:
            return self._job_key(head)
        depth = self._depth(seat, head)
        flavor = self._likeliest(head)
        account = self._account(head, flavor, depth)
        extra = self._reaching(head, flavor, depth)
        borrows = account is not None and account.usage + extra > account.subtree
        if group.policy is OrderPolicy.CLASSIC:
            return (borrows, *self._job_key(head))
        every = [self._account(head, name, depth) for name in self._flavors]
        share = dominant_share(every, {flavor: extra})
        if depth == 0:
            share += self._past.get(head.ask.tenant, 0.0)
        return (borrows, share, *self._job_key(head))

    def _likeliest(self, head: WaitingJob) -> str:
        """The first flavor on which the job would not borrow, else its first."""
        flavors = head.ask.flavors
        if len(flavors) > 1:
            for flavor in flavors:
                if not self._accounts.would_borrow(head.ask.tenant, flavor, head.ask.gpus):
                    return flavor
        return flavors[0] if flavors else ""

    def _depth(self, seat: _Seatholder, head: WaitingJob) -> int:
        depth = 0
        current: _Seatholder | None = self._tenants[head.ask.tenant]
        while current is not None and current is not seat:
            current, depth = current.parent, depth + 1
        return depth

    def _account(self, head: WaitingJob, flavor: str, depth: int) -> Account | None:
        leaf = self._accounts.account(head.ask.tenant, flavor)
        if leaf is None:
            return None
        for _ in range(depth):
            if leaf.parent is None:
                return None
            leaf = leaf.parent
        return leaf

    def _reaching(self, head: WaitingJob, flavor: str, depth: int) -> int:
        leaf = self._accounts.account(head.ask.tenant, flavor)
        if leaf is None:
            return 0
        if depth == 0:
            return head.ask.gpus
        amounts = bubbled(list(leaf.path()), head.ask.gpus)
        return amounts[min(depth, len(amounts) - 1)]


def _in_circle(name: str, parents: Mapping[str, str | None]) -> bool:
    seen = {name}
    parent = parents.get(name)
    while parent is not None:
        if parent in seen:
            return True
        seen.add(parent)
        parent = parents.get(parent)
    return False
