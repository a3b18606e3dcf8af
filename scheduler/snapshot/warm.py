"""The warm snapshot: built once, then kept true by reading again what the log says has changed (rule 4).

The loop and the what-if process own one a cluster each; one thread uses it. Unchanged members stay the same
objects from one snapshot to the next, which is what the planner's memo lives on.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from controlplane.common.log import latest_seq
from queues.models import JobDependency
from scheduler.core.inputs.cluster import Node
from scheduler.core.inputs.jobs import Ask, Hold, RunningJob, Seat, WaitingJob
from scheduler.core.inputs.quotas import Tenant
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.resources import NOTHING, Amount
from scheduler.snapshot.changes import Changes, changes_since, is_news_after
from scheduler.snapshot.jobs import IDS_PER_QUERY, JobReader, Jobs, Leaving, Leftover
from scheduler.snapshot.nodes import NO_STRANGERS, Strangers, read_nodes, read_strangers
from scheduler.snapshot.policy import Policy, read_policy
from scheduler.snapshot.reading import consistent_reads
from scheduler.snapshot.usage import (
    HALF_LIFE_SECONDS,
    Owner,
    PastUse,
    decayed_usage,
    is_close,
)
from scheduler.snapshot.windows import WindowReader

T = TypeVar("T")


@dataclass(slots=True)
class _Parts:
    """The tuples of the last snapshot. A member of `stale` is made anew before the next one."""

    nodes: tuple[Node, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    holds: tuple[Hold, ...] = ()
    stale: set[str] = field(
        default_factory=lambda: {"nodes", "tenants", "waiting", "running", "holds"}
    )
    # Nodes whose amounts have to be put together again.
    stale_nodes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class WarmSnapshot:
    """What the planner reads of one cluster, in memory.

    `seq` is the event number up to which it is true, -1 before the first build. `said` is what the planner
    last said of each waiting job, as (class key, reason code).
    """

    cluster_id: int
    cluster: str
    seq: int = -1
    said: dict[str, tuple[str, str]] = field(default_factory=dict)
    _policy: Policy | None = None
    _bare_nodes: dict[str, Node] = field(default_factory=dict)
    _nodes: dict[str, Node] = field(default_factory=dict)
    _strangers: dict[str, Strangers] = field(default_factory=dict)
    _leftovers: dict[str, tuple[Leftover, ...]] = field(default_factory=dict)
    _waiting: dict[str, WaitingJob] = field(default_factory=dict)
    _running: dict[str, RunningJob] = field(default_factory=dict)
    _asks: dict[Ask, Ask] = field(default_factory=dict)
    _past: dict[str, PastUse] = field(default_factory=dict)
    _past_of: dict[Owner, float] = field(default_factory=dict)
    _last_seats: dict[str, tuple[Seat, ...]] = field(default_factory=dict)
    _returning: dict[str, WaitingJob] = field(default_factory=dict)
    _holds: dict[str, Hold] = field(default_factory=dict)
    _leaving: dict[str, tuple[Leaving, ...]] = field(default_factory=dict)
    _windows: WindowReader = field(init=False)
    _parts: _Parts = field(default_factory=_Parts)

    def __post_init__(self) -> None:
        self._windows = WindowReader(self.cluster_id)

    def refresh(self) -> bool:
        """Read what changed since `seq`, or everything the first time. True when the snapshot differs.

        Raises DatabaseError as it comes; the snapshot is then to be thrown away.
        """
        if self.seq >= 0 and latest_seq() == self.seq:
            return False
        with consistent_reads():
            if self.seq < 0:
                self._build()
                return True
            changes = changes_since(self.seq, self.cluster)
            if changes.everything:
                self._build()
                return True
            changed = bool(changes) and self._reread(changes)
            self.seq = changes.seq
        return changed

    def is_behind(self) -> bool:
        """Whether `refresh` would find something. Raises DatabaseError."""
        return is_news_after(self.seq, self.cluster)

    def snapshot(self, now: float) -> Snapshot:
        """The planner's input at `now` (seconds since the epoch). `refresh` must have been called."""
        policy = self._read_policy()
        return Snapshot(
            now=now,
            cluster=policy.cluster,
            flavors=policy.flavors,
            nodes=self._node_tuple(),
            tenants=self._tenant_tuple(policy),
            queues=policy.queues,
            cohorts=policy.cohorts,
            user_limits=policy.user_limits,
            usage=decayed_usage(self._past_of, self._running.values(), now),
            half_life_seconds=HALF_LIFE_SECONDS,
            windows=self._windows.at(now),
            running=self._running_tuple(),
            waiting=self._waiting_tuple(),
            holds=self._hold_tuple(),
            revision=self.seq,
        )

    @property
    def policy(self) -> Policy:
        """The rules as last read."""
        return self._read_policy()

    @property
    def evictions_open(self) -> bool:
        """Whether anybody is to leave, or is leaving by an eviction."""
        return bool(self._leaving)

    def node_names(self) -> frozenset[str]:
        """The nodes that exist."""
        return frozenset(self._bare_nodes)

    def _read_policy(self) -> Policy:
        if self._policy is None:
            raise RuntimeError("the snapshot has not been read yet")
        return self._policy

    def _build(self) -> None:
        self.seq = latest_seq()
        self._policy = read_policy(self.cluster_id)
        self._bare_nodes = read_nodes(self.cluster_id, self._policy.flavor_names)
        self._strangers = read_strangers(self.cluster_id)
        self._windows.forget()
        self._asks.clear()
        self._take_all(self._reader().read())
        self._nodes = {}
        self._parts = _Parts(stale_nodes=set(self._bare_nodes))

    def _reader(self) -> JobReader:
        return JobReader(self.cluster_id, self._read_policy(), self._asks)

    def _take_all(self, jobs: Jobs) -> None:
        self._waiting, self._running = jobs.waiting, jobs.running
        self._leftovers, self.said = jobs.leftovers, jobs.said
        self._last_seats, self._returning = jobs.last_seats, {}
        self._holds, self._leaving = jobs.holds, jobs.leaving
        self._past, self._past_of = {}, {}
        for job, use in jobs.past.items():
            self._count_past(job, use)

    def _count_past(self, job: str, use: PastUse | None) -> None:
        """Replace what a job has used in the sum of its owner."""
        before = self._past.get(job)
        for each, sign in ((before, -1.0), (use, 1.0)):
            if each is not None:
                known = self._past_of.get(each.owner, 0.0)
                self._past_of[each.owner] = max(0.0, known + sign * each.weighted)
        _put(self._past, job, use)

    def _reread(self, changes: Changes) -> bool:
        before = self._read_policy()
        if changes.policy:
            self._policy = read_policy(self.cluster_id, before)
        policy = self._read_policy()
        if policy is not before:
            self._parts.stale.add("tenants")
        if changes.windows:
            self._windows.forget()
        renamed = policy.flavor_names is not before.flavor_names
        if renamed or changes.all_nodes:
            self._reread_nodes(None)
        elif changes.nodes:
            self._reread_nodes(changes.nodes)
        if renamed or policy.allowed is not before.allowed:
            # Every ask names its flavors and its queue.
            self._reread_all_jobs()
        elif changes.jobs:
            self._reread_jobs(changes.jobs)
        return policy is not before or changes.windows or bool(self._parts.stale)

    def _reread_nodes(self, names: set[str] | None) -> None:
        flavor_names = self._read_policy().flavor_names
        nodes = read_nodes(self.cluster_id, flavor_names, names)
        strangers = read_strangers(self.cluster_id, names)
        concerned = (
            names
            if names is not None
            else {*self._bare_nodes, *self._strangers, *nodes, *strangers}
        )
        for name in concerned:
            if _looks(self._bare_nodes.get(name)) != _looks(nodes.get(name)):
                # Windows name nodes by what they are.
                self._windows.forget()
            changed = _put(self._bare_nodes, name, nodes.get(name))
            changed |= _put(self._strangers, name, strangers.get(name))
            if changed:
                self._parts.stale_nodes.add(name)
                self._parts.stale |= {"nodes", "tenants"}
                if self._last_seats:
                    self._parts.stale.add("waiting")

    def _reread_all_jobs(self) -> None:
        jobs = self._reader().read()
        known = (self._waiting, self._running, self._leftovers, self._holds, self._leaving)
        found = (jobs.waiting, jobs.running, jobs.leftovers, jobs.holds, jobs.leaving)
        self._take(jobs, {job for group in (*known, *found) for job in group})

    def _reread_jobs(self, ids: set[str]) -> None:
        concerned = ids | _dependents(ids)
        self._take(self._reader().read(concerned), concerned)

    def _take(self, jobs: Jobs, concerned: Iterable[str]) -> None:
        for job in concerned:
            if _put(self._waiting, job, jobs.waiting.get(job)):
                self._parts.stale.add("waiting")
            if _put(self._last_seats, job, jobs.last_seats.get(job)):
                self._parts.stale.add("waiting")
            if _put(self._running, job, jobs.running.get(job)):
                self._parts.stale.add("running")
            if _put(self._holds, job, jobs.holds.get(job)):
                self._parts.stale.add("holds")
            _put(self._leaving, job, jobs.leaving.get(job))
            held_before = self._leftovers.get(job, ())
            if _put(self._leftovers, job, jobs.leftovers.get(job)):
                held = (*held_before, *self._leftovers.get(job, ()))
                self._parts.stale_nodes |= {leftover.node for leftover in held}
                self._parts.stale.add("nodes")
            _put(self.said, job, jobs.said.get(job))
            if job in jobs.past:
                self._count_past(job, jobs.past[job])

    def _node_tuple(self) -> tuple[Node, ...]:
        if "nodes" in self._parts.stale:
            left = _by_node(self._leftovers)
            for name in self._parts.stale_nodes:
                _put(self._nodes, name, self._with_foreign(name, left.get(name, NOTHING)))
            self._parts.nodes = tuple(self._nodes[name] for name in sorted(self._nodes))
            self._parts.stale_nodes.clear()
            self._parts.stale.discard("nodes")
        return self._parts.nodes

    def _with_foreign(self, name: str, left: Amount) -> Node | None:
        node = self._bare_nodes.get(name)
        if node is None:
            return None
        foreign = self._strangers.get(name, NO_STRANGERS).amount + left
        return node if foreign == NOTHING else replace(node, foreign=foreign)

    def _tenant_tuple(self, policy: Policy) -> tuple[Tenant, ...]:
        if "tenants" in self._parts.stale:
            outside = self._outside()
            tenants = tuple(_with_outside(tenant, outside) for tenant in policy.tenants)
            if tenants != self._parts.tenants:
                self._parts.tenants = tenants
            self._parts.stale.discard("tenants")
        return self._parts.tenants

    def _outside(self) -> dict[tuple[str, str], int]:
        used: dict[tuple[str, str], int] = defaultdict(int)
        for name, strangers in self._strangers.items():
            node = self._bare_nodes.get(name)
            if node is None or node.flavor is None:
                continue
            for tenant, gpus in strangers.by_tenant:
                used[tenant, node.flavor] += gpus
        return used

    def _waiting_tuple(self) -> tuple[WaitingJob, ...]:
        if "waiting" in self._parts.stale:
            self._parts.waiting = tuple(self._shown(job) for job in sorted(self._waiting))
            self._parts.stale.discard("waiting")
        return self._parts.waiting

    def _shown(self, job: str) -> WaitingJob:
        """A waiting job with the seats of its last attempt that are still good, if it lost a node."""
        bare = self._waiting[job]
        if job not in self._last_seats:
            self._returning.pop(job, None)
            return bare
        good = (seat for seat in self._last_seats[job] if self._is_good(seat.node))
        _put(self._returning, job, replace(bare, survivors=tuple(good)))
        return self._returning[job]

    def _is_good(self, name: str) -> bool:
        node = self._bare_nodes.get(name)
        return node is not None and not node.outs

    def _hold_tuple(self) -> tuple[Hold, ...]:
        if "holds" in self._parts.stale:
            self._parts.holds = tuple(self._holds[job] for job in sorted(self._holds))
            self._parts.stale.discard("holds")
        return self._parts.holds

    def _running_tuple(self) -> tuple[RunningJob, ...]:
        if "running" in self._parts.stale:
            self._parts.running = tuple(self._running[job] for job in sorted(self._running))
            self._parts.stale.discard("running")
        return self._parts.running


def differences(one: Snapshot, other: Snapshot) -> list[str]:
    """Names of what differs between two snapshots, a few members each; empty when they are equal."""
    found = []
    for part in fields(Snapshot):
        left, right = getattr(one, part.name), getattr(other, part.name)
        if left == right or part.name == "revision":
            continue
        if part.name == "usage" and is_close(left, right):
            continue
        found.append(f"{part.name}: {_members_that_differ(left, right)}")
    return found


def _members_that_differ(left: object, right: object) -> str:
    if not isinstance(left, tuple) or not isinstance(right, tuple):
        return f"{left!r} != {right!r}"
    lefts, rights = set(left), set(right)
    return f"{sorted(map(repr, lefts - rights))[:3]} != {sorted(map(repr, rights - lefts))[:3]}"


def _looks(node: Node | None) -> object:
    """What the selectors of windows see of a node."""
    return None if node is None else (node.domains, node.labels, node.flavor)


def _put(known: dict[str, T], key: str, value: T | None) -> bool:
    """Store, or remove for None. An equal value keeps the old object. True when something changed."""
    before = known.get(key)
    if before == value:
        return False
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value
    return True


def _by_node(leftovers: Mapping[str, tuple[Leftover, ...]]) -> dict[str, Amount]:
    held: dict[str, Amount] = {}
    for found in leftovers.values():
        for leftover in found:
            held[leftover.node] = held.get(leftover.node, NOTHING) + leftover.amount
    return held


def _with_outside(tenant: Tenant, outside: Mapping[tuple[str, str], int]) -> Tenant:
    if not any((tenant.name, quota.flavor) in outside for quota in tenant.quotas):
        return tenant
    quotas = tuple(
        replace(quota, outside=outside.get((tenant.name, quota.flavor), 0))
        for quota in tenant.quotas
    )
    return replace(tenant, quotas=quotas)


def _dependents(ids: set[str]) -> set[str]:
    listed = sorted(ids)
    found: set[str] = set()
    for at in range(0, len(listed), IDS_PER_QUERY):
        part = listed[at : at + IDS_PER_QUERY]
        found.update(JobDependency.objects.filter(on__in=part).values_list("job_id", flat=True))
    return found
