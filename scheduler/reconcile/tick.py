"""One tick: what was seen and what was done, into rows, in one transaction; what is to be done, out.

Called by `process`, always in the one thread that talks to the database. A tick that fails has
changed nothing: its caller gives the results again, and the rows are read anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Q

from controlplane.common import log
from controlplane.common.log import latest_seq
from controlplane.common.models import Event
from queues.lifecycle import EndedBy
from queues.models import Attempt
from scheduler.kube.namespaces import NamespaceWanted
from scheduler.kube.seen import NodeEvent, NodeSeen, PodSeen
from scheduler.kube.watching import Observation, Standing, WatchState
from scheduler.reconcile.adoption import Adoption, has_forgotten_pods
from scheduler.reconcile.books import ACTOR, Books
from scheduler.reconcile.burn_ins import burn_in_pods
from scheduler.reconcile.drift import (
    CHECK_SECONDS,
    changed_namespaces,
    overfull_nodes,
    pod_drift,
    wrong_seats,
)
from scheduler.reconcile.ends import Stop
from scheduler.reconcile.ledger import AttemptLife
from scheduler.reconcile.node_rows import Policy, is_managed
from scheduler.reconcile.orders import LaunchOrder, launch_orders
from scheduler.reconcile.outcomes import take_results
from scheduler.reconcile.placements import take_pods
from scheduler.reconcile.results import Result
from scheduler.reconcile.saves import SaveReader
from scheduler.reconcile.standing import StandingBook
from scheduler.reconcile.steps import Settled, release_after_reboot, settle
from scheduler.reconcile.strangers import Strangers
from scheduler.reconcile.suspicion import Suspicion
from scheduler.reconcile.view import AttemptKey, Changes
from scheduler.reconcile.wanted import Action, Launch, Pods, wants_of
from scheduler.selectors.notices import notice_of
from scheduler.services.node_signals import note_kernel_event

# So many nodes, pods and attempts a transaction: SQLite has one writer, and others wait for it.
MOST_ON_SQLITE = 200
MOST = 500
# Nothing should be missed; if something is, it is found within a minute.
FULL_PASS_SECONDS = 60.0
# Events of jobs that say nothing of an attempt; there are many of them.
_BESIDE_ATTEMPTS = frozenset({"job.submitted", "job.reason"})
# Events without a job or a node that say nothing of mode, levels, flavors, tenants or quotas.
_BESIDE_POLICY = (
    "job",
    "audit",
    "token",
    "secret",
    "user",
    "member",
    "log",
    "attempt",
    "placement",
)


@dataclass(frozen=True, slots=True)
class Given:
    """What has come in since the last tick."""

    nodes: tuple[Observation[NodeSeen], ...] = ()
    pods: tuple[Observation[PodSeen], ...] = ()
    results: tuple[Result, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class Orders:
    """What to do now. `due`: when to tick again at the latest; `more`: at once. `inspect`: compare the
    namespaces with what is wanted."""

    actions: tuple[Action | LaunchOrder, ...]
    namespaces: Mapping[str, NamespaceWanted]
    policy: Policy
    due: datetime
    more: bool
    inspect: bool = False


@dataclass(slots=True)
class Ticker:
    """The books, and which attempts and nodes have still to be looked at."""

    books: Books
    strangers: Strangers = field(default_factory=Strangers)
    adoption: Adoption = field(default_factory=Adoption)
    loaded: bool = False
    _keys: dict[AttemptKey, None] = field(default_factory=dict)
    _nodes: set[str] = field(default_factory=set)
    _results: list[Result] = field(default_factory=list)
    _events: list[NodeEvent] = field(default_factory=list)
    _full_pass_at: datetime | None = None
    _saves: SaveReader = field(default_factory=SaveReader)
    _standing: StandingBook = field(default_factory=StandingBook)
    _suspicion: Suspicion = field(default_factory=Suspicion)

    def take_in(self, given: Given) -> None:
        """Note what was seen and done; cannot fail, and is done once, whatever the tick does."""
        for nodes in given.nodes:
            self.books.view.take_node(nodes)
        for pods in given.pods:
            self.books.view.take_pod(pods)
        self._results += given.results
        self._events += given.events
        if given.standing is not None:
            self._standing.standing = given.standing
            self.books.nodes_live = given.standing.state is WatchState.LIVE

    def run(self, now: datetime, busy: frozenset[AttemptKey]) -> Orders:
        """Write, decide, and say what to do. Raises database errors; then call `doubt`."""
        if not self.loaded:
            self._load()
        with log.writing():
            self._read_log()
            orders = self._in_transaction(now, busy)
            self.books.flush()
        self._results.clear()
        self._events.clear()
        self._suspicion.went_well()
        return orders

    def may_bind(self, key: AttemptKey) -> bool:
        """Whether the attempt is still to be started, as far as the rows were read. Asked in another
        thread: what is being read again just now may not be bound, and is with the next tick."""
        attempt = self.books.ledger.attempts.get(key)
        if attempt is None or attempt.stop_cause or attempt.ended_at is not None:
            return False
        whole = all(p.gone_at is None and p.ended_at is None for p in attempt.placements)
        return whole and self.books.policy.may_start

    def doubt(self, *, defect: bool = False) -> None:
        """After a failure: nothing in memory is trusted. After a `defect` of ours the attempts are
        looked at one by one, until the one that brings it out is known and left alone a while."""
        self.loaded = False
        if defect:
            self._results = self._suspicion.narrow_down(self._results)
            self._events.clear()

    def _load(self) -> None:
        self.books.ledger.seq = latest_seq()
        self.books.load()
        self._full_pass_at = None
        self.loaded = True

    def _read_log(self) -> None:
        """What others have changed since the last tick."""
        ledger = self.books.ledger
        newest = latest_seq()
        if newest == ledger.seq:
            return
        # Most of a burst is our own word. Burn-ins are told of in our name, whoever ends them.
        rows = Event.objects.filter(
            ~Q(actor=ACTOR) | Q(kind="node.health"),
            seq__gt=ledger.seq,
            seq__lte=newest,
            cluster__in=("", self.books.cluster.name),
        ).exclude(kind__in=_BESIDE_ATTEMPTS)
        ledger.seq = newest
        jobs: set[str] = set()
        nodes: set[str] = set()
        policy = False
        for kind, job, node, actor in rows.values_list("kind", "job", "node", "actor"):
            self.books.burn_ins.doubtful |= kind == "node.health"
            if actor == ACTOR:
                continue
            if job:
                jobs.add(job)
            if node:
                nodes.add(node)
            policy |= not job and not node and not kind.startswith(_BESIDE_POLICY)
        if policy:
            self._reload_policy()
        if jobs:
            concerned = self.books.reload(jobs)
            self.strangers.forget(concerned)
            self._keys.update(dict.fromkeys(concerned))
        if nodes:
            self.books.wishes.load(nodes)
            self.books.burn_ins.doubtful = True
            self._nodes |= nodes

    def _reload_policy(self) -> None:
        before = self.books.policy
        self.books.load_policy()
        # Quotas and flavors may be new: what strangers use counts against them, too.
        self.books.foreign.counted = False
        if self.books.policy != before:
            self._keys.update(dict.fromkeys(self.books.ledger.attempts))
            self.books.view.doubt_everything()

    def _in_transaction(self, now: datetime, busy: frozenset[AttemptKey]) -> Orders:
        books = self.books
        self._standing.write(books.cluster, now)
        keys, nodes = take_results(books, self._results, now)
        self._keys.update(dict.fromkeys(keys))
        self._nodes |= nodes
        if not books.view.synced:
            # Nothing may be concluded from what has not been listed whole.
            return self._orders([], now)
        inspect = self._full_pass_at is None or now >= self._full_pass_at
        if inspect:
            self._begin_full_pass(now)
        changes = books.view.take_changes(most_at_once())
        actions: list[Action | LaunchOrder] = [*self._take_nodes(changes, now)]
        self._keys.update(dict.fromkeys(k for k in changes.pods.values() if k is not None))
        actions += self._take_attempts(now, busy)
        self._saves.take(books, changes.pods, now)
        actions += self._take_strangers(changes, now)
        actions += self._take_burn_ins(now)
        books.foreign.count_use(books.nodes, now)
        self._tell_events(now)
        self._look_around(now)
        return replace(self._orders(actions, now), inspect=inspect)

    def _tell_events(self, now: datetime) -> None:
        for event in self._events:
            note_kernel_event(
                self.books.cluster.name,
                event.node,
                reason=event.reason,
                message=event.message,
                at=event.at or now,
                now=now,
            )

    def _take_burn_ins(self, now: datetime) -> list[Action]:
        books = self.books
        if not books.policy.may_act:
            return []
        return [*books.burn_ins.take(burn_in_pods(books.view.own_pods()), now)]

    def _look_around(self, now: datetime) -> None:
        """What needs all that was seen to be in the rows: adopt, compare, say that we have caught up."""
        view = self.books.view
        if view.changed_nodes or view.changed_pods or self._keys:
            return
        if self.books.policy.may_act:
            self._adopt(now)
        if self.books.drift.is_due(now):
            self._compare(now)
        if not self._standing.caught_up:
            self._standing.caught_up = True
            self._standing.write(self.books.cluster, now)

    def _adopt(self, now: datetime) -> None:
        books = self.books
        adopted = self.adoption.take(books, self.strangers.unclaimed(books), now)
        self.strangers.forget(adopted)
        self._keys.update(dict.fromkeys(adopted))
        for key in adopted:
            books.view.changed_pods.update({pod.uid: key for pod in books.view.pods_of(key)})

    def _compare(self, now: datetime) -> None:
        """Find drift."""
        books, view = self.books, self.books.view
        books.flush()
        attempts = books.ledger.attempts
        books.drift.take(
            [
                *pod_drift(view, attempts, self._why_unclaimed),
                *overfull_nodes(view, books.policy),
                *wrong_seats(books.cluster),
                *changed_namespaces(books.drift.namespaces),
                *books.wishes.unfulfilled(view.nodes, books.policy),
            ],
            now,
        )
        books.drift.prune(now)

    def _begin_full_pass(self, now: datetime) -> None:
        """Look at everything, and at rows of what is no longer there though nobody saw it go."""
        books = self.books
        self._full_pass_at = now + timedelta(seconds=FULL_PASS_SECONDS)
        self._keys.update(dict.fromkeys(books.ledger.attempts))
        # Our taint goes with the last row that wanted it: nodes without a wish are looked at, too.
        books.wishes.load()
        books.burn_ins.doubtful = True
        self._nodes |= books.view.nodes.keys()
        books.view.changed_nodes |= books.nodes.names() - books.view.nodes.keys()
        gone = books.foreign.uids() - books.view.pods.keys()
        books.view.changed_pods.update(dict.fromkeys(gone))

    def _take_nodes(self, changes: Changes, now: datetime) -> list[Action]:
        books = self.books
        changed, rebooted = books.nodes.write(changes.nodes, books.view.nodes, books.policy, now)
        release_after_reboot(books, rebooted, now)
        books.foreign.counted = books.foreign.counted and not changed
        for node in changed:
            self._keys.update(dict.fromkeys(books.ledger.on_node(node)))
        looked_at = {*changes.nodes, *self._nodes}
        self._nodes.clear()
        if not books.policy.may_act:
            return []
        wishes, view = books.wishes, books.view
        # Nodes that the cluster's selector leaves out are read-only.
        looked_at = {
            name
            for name in looked_at & view.nodes.keys()
            if is_managed(view.nodes[name], books.policy)
        }
        wishes.fulfil_uncordons(looked_at, view.nodes)
        on_drained = {name: view.pods_on(name) for name in wishes.drained(looked_at)}
        return [*wishes.actions(looked_at, view.nodes, on_drained)]

    def _take_attempts(
        self, now: datetime, busy: frozenset[AttemptKey]
    ) -> list[Action | LaunchOrder]:
        """Bring some of the attempts that may have changed up to date, and say what they need."""
        books = self.books
        due = [key for key, moment in books.dues.items() if moment <= now]
        self._keys.update(dict.fromkeys(due))
        keys = self._suspicion.choose(self._keys, now, most_at_once())
        for key in keys:
            del self._keys[key]
            books.dues.pop(key, None)
            self._update_placements(key, now)
        settled = settle(books, keys, books.standings(), busy, now)
        self._keys.update(dict.fromkeys(settled.later))
        self._record_changes(now)
        if not books.policy.may_act:
            return []
        return self._actions(keys, settled, now)

    def _actions(
        self, keys: Iterable[AttemptKey], settled: Settled, now: datetime
    ) -> list[Action | LaunchOrder]:
        """What the attempts need; what has to be read for those to launch is read for all at once."""
        actions: list[Action | LaunchOrder] = []
        to_launch: list[AttemptLife] = []
        for key in keys:
            for action in self._wants(key, now, check_start=key in settled.to_check):
                if isinstance(action, Launch):
                    to_launch.append(self.books.ledger.attempts[key])
                else:
                    actions.append(action)
        actions += launch_orders(self.books, to_launch, now)
        for attempt in to_launch:
            if attempt.key in self.books.stops:
                self._keys[attempt.key] = None  # the launch cannot be: decide at once
        return actions

    def _update_placements(self, key: AttemptKey, now: datetime) -> None:
        books = self.books
        attempt = books.ledger.attempts.get(key)
        if attempt is None:
            return
        if has_forgotten_pods(books, attempt):
            if not self.adoption.take(books, [key], now):
                told = f"its gang runs already, and cannot be adopted: {self.adoption.why(key)}"
                books.stops[key] = Stop(EndedBy.PLACEMENT_MISS, told, attempt.grace_seconds)
            return
        elsewhere = take_pods(attempt, books.view.pods_of(key), books.changes, now)
        if elsewhere is not None and not attempt.stop_cause:
            books.stops[key] = Stop(EndedBy.PLACEMENT_MISS, elsewhere, attempt.grace_seconds)

    def _record_changes(self, now: datetime) -> None:
        """One event an attempt whose pods have changed: pages and the planner read it again."""
        books = self.books
        for key in sorted(books.changes.attempts):
            attempt = books.ledger.attempts.get(key)
            if attempt is not None:
                pods = attempt.placements
                books.record(
                    "attempt.pods",
                    attempt,
                    now,
                    pods=len(pods),
                    bound=sum(p.bound_at is not None for p in pods),
                    started=sum(p.started_at is not None for p in pods),
                    ended=sum(p.ended_at is not None for p in pods),
                )
        books.changes.attempts.clear()

    def _wants(self, key: AttemptKey, now: datetime, *, check_start: bool) -> tuple[Action, ...]:
        books = self.books
        attempt = books.ledger.attempts.get(key)
        if attempt is None:
            return ()
        pods = Pods(
            seen={pod.uid: pod for pod in books.view.pods_of(key)},
            kept_logs=books.kept_logs,
            may_start=books.policy.may_start,
            check_start=check_start,
            notice=_notice_of(attempt, now),
        )
        wants = wants_of(attempt, pods, now)
        if wants.due is not None:
            books.dues[key] = min(wants.due, books.dues.get(key, wants.due))
        return wants.actions

    def _take_strangers(self, changes: Changes, now: datetime) -> list[Action]:
        """Pods of attempts that have still to be looked at wait for that."""
        books = self.books
        later: dict[str, AttemptKey | None] = {
            uid: key for uid, key in changes.pods.items() if key in self._keys
        }
        books.view.give_back(Changes((), later))
        ready = {uid: key for uid, key in changes.pods.items() if uid not in later}
        leftovers = self.strangers.take(books, ready, now)
        return [*leftovers] if books.policy.may_act else []

    def _why_unclaimed(self, pod: PodSeen, key: AttemptKey) -> str | None:
        unclaimed = self.strangers.is_unclaimed(self.books, pod, key)
        return self.adoption.why(key) if unclaimed else None

    def _orders(self, actions: list[Action | LaunchOrder], now: datetime) -> Orders:
        books = self.books
        view = books.view
        waiting = view.synced and (view.changed_nodes or view.changed_pods or self._keys)
        dues = [self._full_pass_at or now + timedelta(seconds=FULL_PASS_SECONDS)]
        dues += books.dues.values()
        if books.drift.checked_at is not None:
            dues.append(books.drift.checked_at + timedelta(seconds=CHECK_SECONDS))
        return Orders(
            actions=tuple(actions),
            namespaces=books.namespaces if books.policy.may_act else {},
            policy=books.policy,
            due=min(dues),
            more=bool(waiting),
        )


def most_at_once() -> int:
    """How many nodes, pods or attempts one transaction writes."""
    return MOST_ON_SQLITE if connection.vendor == "sqlite" else MOST


def _notice_of(attempt: AttemptLife, now: datetime) -> str:
    """What a job that reads its file is told of orders to leave and of its limit."""
    if attempt.checkpoint_notice != "file" or attempt.ended_at is not None:
        return ""
    row = Attempt.objects.select_related("job").filter(pk=attempt.id).first()
    told = notice_of(row, now) if row is not None else None
    return told.text if told is not None else ""
