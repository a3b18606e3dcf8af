"""What happens to maintenance windows by themselves: announced, drained, opened, checked, given back.

`tick_windows` is called by the loop in every tick, and by tests and drivers with a stepped clock. Each step is one
transaction that begins with the loop's fence and changes the row only from the state it read, so that two loops, or
one that died in the middle, are harmless.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import F, Min

from controlplane.common import log
from controlplane.common.errors import ConflictError
from queues.lifecycle import Phase
from queues.models import Cluster, ClusterMode, Job
from scheduler.maintenance.life import (
    Course,
    Departure,
    State,
    departure,
    drain_at,
    expected_empty_at,
    is_time_to_cordon,
    next_state,
)
from scheduler.maintenance.selection import selector_of
from scheduler.models import (
    CordonSource,
    EvictionRule,
    Node,
    Occurrence,
    OccurrenceState,
    WindowKind,
)
from scheduler.selectors.windows import node_looks
from scheduler.services.alerts import AlertFacts, settle_alerts
from scheduler.services.cordons import lift_cordons, set_cordons
from scheduler.services.departures import START_ALLOWANCE, Leaver, leavers
from scheduler.services.drains import tick_drains
from scheduler.services.driver_upgrades import hold_upgrades, release_upgrades
from scheduler.services.evictions import order_eviction
from scheduler.services.node_checks import failing_checks, looks_before
from scheduler.services.window_notices import post_notices, to_be_told
from scheduler.services.windows import (
    cordon_key,
    ordered_by,
    sync_occurrences,
    window_event,
    withdraw_orders,
)

# Nothing happens to a window sooner: the longest notice, and the longest interval of checkpoints that is waited for.
LOOK_AHEAD = timedelta(days=14, hours=1)
DRAIN_LOOK = timedelta(hours=25)
SOON = timedelta(seconds=1)
LATER = timedelta(seconds=15)
# The GPU operator takes a while over each of its steps; looking costs a reading of all nodes.
UPGRADES = timedelta(seconds=5)
MOVED = timedelta(seconds=60)
Hold = Callable[[], None]


def nobody_else() -> None:
    """No fence: for drivers that are alone."""


def tick_windows(cluster: Cluster, now: datetime, hold: Hold = nobody_else) -> None:
    """Bring every occurrence and drain of the cluster as far as it is at `now`."""
    WindowTicker(cluster).tick(now, hold)


@dataclass(slots=True)
class WindowTicker:
    """Remembers when there is something to do next: calling it in every tick of a burst costs nothing.

    changed: whether the log has told of anything since the last call; then it looks within a second.
    """

    cluster: Cluster
    _again_at: datetime | None = field(default=None)
    _soon_at: datetime | None = field(default=None)
    _upgrades_at: datetime | None = field(default=None)
    _news: bool = field(default=False)

    def tick(self, now: datetime, hold: Hold = nobody_else, *, changed: bool = True) -> None:
        """One pass, if it is time for one."""
        self._news = self._news or changed
        if not _is_time(self._again_at, now) and not (self._news and _is_time(self._soon_at, now)):
            return
        self._news = False
        busy = tick_drains(self.cluster, now, hold)
        late: list[tuple[str, int]] = []
        for each in _due(self.cluster, now):
            scene = _Scene(each, now, hold)
            scene.go_on()
            late += scene.late()
            busy = busy or scene.is_busy
        settle_alerts("window_late", self.cluster, _late_facts(self.cluster, late), now)
        if _is_time(self._upgrades_at, now):
            hold_upgrades(self.cluster, now, hold)
            self._upgrades_at = now + UPGRADES
        self._soon_at = now + SOON
        self._again_at = now + (SOON if busy else LATER)


def _is_time(at: datetime | None, now: datetime) -> bool:
    return at is None or now >= at


def _due(cluster: Cluster, now: datetime) -> list[Occurrence]:
    rows = Occurrence.objects.filter(
        Occurrence.LIVE, window__cluster=cluster, starts_at__lte=now + LOOK_AHEAD
    )
    return list(rows.select_related("window__cluster").order_by("starts_at", "pk"))


def _late_facts(cluster: Cluster, late: Sequence[tuple[str, int]]) -> list[AlertFacts]:
    """One alert a cluster, whatever number of its windows is late."""
    if not late:
        return []
    numbers = {
        "nodes": sum(nodes for _title, nodes in late),
        "title": ", ".join(sorted({title for title, _nodes in late})),
    }
    return [AlertFacts("window_late", cluster=cluster, numbers=numbers)]


@dataclass(slots=True)
class _Scene:
    """One occurrence at one moment."""

    each: Occurrence
    now: datetime
    hold: Hold
    _leavers: list[Leaver] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the next second may bring something."""
        return self.each.state not in (
            OccurrenceState.PLANNED,
            OccurrenceState.NOTICED,
            OccurrenceState.OPEN,
        )

    def go_on(self) -> None:
        """Through as many states as are due, and what each of them asks for."""
        for _step in State:
            self._work()
            following = next_state(self._course(), self.now)
            if following == self.each.state or not self._enter(following):
                return

    def late(self) -> list[tuple[str, int]]:
        """Title and nodes, where its time has begun and jobs are still there."""
        each = self.each
        if each.state != OccurrenceState.DRAINING or self.now < each.starts_at:
            return []
        nodes = {node for leaver in self._found() for node in leaver.nodes}
        return [(each.window.title, len(nodes))] if nodes else []

    def _course(self) -> Course:
        each = self.each
        near = each.starts_at - self.now <= DRAIN_LOOK
        before = each.state in (OccurrenceState.PLANNED, OccurrenceState.NOTICED)
        return Course(
            state=State(each.state),
            starts_at=each.starts_at,
            ends_at=each.ends_at,
            notice=timedelta(minutes=each.window.notice_minutes),
            drain_at=drain_at(self._departures(), each.starts_at)
            if before and near
            else each.starts_at,
            left=len(self._found()) if each.state == OccurrenceState.DRAINING else 0,
            failing=len(each.checks) if each.state == OccurrenceState.CHECKING else 0,
        )

    # --- what is there ---

    def _names(self) -> frozenset[str]:
        if self.each.nodes:
            return frozenset(self.each.nodes)
        window = self.each.window
        return selector_of(window.nodes).of(node_looks(window.cluster))

    def _nodes(self) -> list[Node]:
        rows = Node.objects.filter(cluster=self.each.window.cluster, name__in=self.each.nodes)
        return list(rows.filter(gone_at__isnull=True).select_related("cluster"))

    def _found(self) -> list[Leaver]:
        if self._leavers is None:
            window = self.each.window
            admits = window.admits if window.kind == WindowKind.RESERVED else {}
            self._leavers = leavers(window.cluster, self._names(), admits)
        return self._leavers

    def _departures(self) -> list[Departure]:
        return [self._departure(leaver) for leaver in self._found()]

    def _departure(self, leaver: Leaver) -> Departure:
        each = self.each
        return departure(
            leaver.runner, each.window.running_jobs, each.starts_at, each.latest_at, self.now
        )

    @property
    def _acts(self) -> bool:
        """Whether the cluster's mode lets anything be evicted or cordoned."""
        return bool(self.each.window.cluster.mode == ClusterMode.SCHEDULE)

    # --- steps ---

    def _enter(self, state: State) -> bool:
        """Move the row on; False when somebody else did."""
        each, step = self.each, f"{state.value}_at"
        changes: dict[str, object] = {"state": state.value, _STEPS.get(state, step): self.now}
        if state is State.DRAINING:
            names = sorted(self._names())
            changes |= {"nodes": names, "held": looks_before(each.window.cluster, names)}
        with log.writing():
            self.hold()
            mine = Occurrence.objects.filter(pk=each.pk, state=each.state)
            if not mine.update(**changes):
                return False
            for name, value in changes.items():
                setattr(each, name, value)
            if state is State.NOTICED or (state is State.DRAINING and each.window.notice_minutes):
                # One whose jobs have to be told to leave before they were to be told of it: now at the latest.
                post_notices(each, to_be_told(each, self._found()), self.now)
            if state is State.CHECKING:
                withdraw_orders(each, "the window is over", self.now)
            if state is State.OVER:
                sync_occurrences(each.window, self.now)
            numbers = {"starts_at": each.starts_at.isoformat(), "nodes": len(each.nodes)}
            log.record(window_event(each.window, f"window.{state}", self.now, numbers=numbers))
        return True

    def _work(self) -> None:
        """What the state asks for again and again."""
        match self.each.state:
            case OccurrenceState.NOTICED:
                self._tell_others()
            case OccurrenceState.DRAINING:
                self._drain()
            case OccurrenceState.OPEN:
                self._keep_open()
            case OccurrenceState.CHECKING:
                self._check()

    def _tell_others(self) -> None:
        """Jobs that have been placed across it since it was announced."""
        others = to_be_told(self.each, self._found())
        if others:
            with log.writing():
                self.hold()
                post_notices(self.each, others, self.now)

    def _drain(self) -> None:
        pairs = [(leaver, self._departure(leaver)) for leaver in self._found()]
        if self._acts:
            self._cordon()
            for leaver, leaves in sorted(pairs, key=_soonest):
                if leaves.order_at is not None and self.now >= leaves.order_at:
                    self._order(leaver, leaves)
        self._tell_empty([leaves for _leaver, leaves in pairs])

    def _cordon(self) -> None:
        each, window = self.each, self.each.window
        if window.kind == WindowKind.RESERVED:
            return  # the planner keeps others off; those whom it is kept for must get in
        if not is_time_to_cordon(each.starts_at, self._shortest_job(), self.now):
            return
        with log.writing():
            self.hold()
            set_cordons(
                self._nodes(),
                source=CordonSource.WINDOW,
                key=cordon_key(each),
                reason=window.title,
                by=f"window {window.pk}",
                now=self.now,
            )

    def _shortest_job(self) -> timedelta | None:
        """The shortest of those that wait, from placement to its latest end."""
        waiting = Job.objects.filter(
            phase=Phase.PENDING,
            queue__cluster=self.each.window.cluster,
            max_runtime_seconds__isnull=False,
        )
        found = waiting.aggregate(least=Min(F("max_runtime_seconds") + F("grace_seconds")))["least"]
        return None if found is None else START_ALLOWANCE + timedelta(seconds=found)

    def _order(self, leaver: Leaver, leaves: Departure) -> None:
        each, window = self.each, self.each.window
        try:
            with log.writing():
                self.hold()
                order_eviction(
                    leaver.attempt,
                    rule=EvictionRule.MAINTENANCE,
                    message=f"maintenance window “{window.title}” from {each.starts_at:%H:%M} UTC",
                    ordered_by=ordered_by(each),
                    now=self.now,
                    numbers={"window": window.pk, "starts_at": each.starts_at.isoformat()},
                    wait_for_checkpoint=leaves.wait,
                    latest_at=leaves.latest_at,
                )
        except ConflictError:
            return  # it leaves already

    def _tell_empty(self, departures: list[Departure]) -> None:
        each = self.each
        changes: dict[str, datetime | None] = {}
        if not departures and each.empty_at is None:
            changes = {"empty_at": self.now, "expected_empty_at": self.now}
        elif departures:
            expected = expected_empty_at(departures, self.now)
            if _moved(each.expected_empty_at, expected):
                changes = {"expected_empty_at": expected}
        if not changes:
            return
        with log.writing():
            self.hold()
            Occurrence.objects.filter(pk=each.pk).update(**changes)
            for name, value in changes.items():
                setattr(each, name, value)
            if each.empty_at is not None:
                log.record(window_event(each.window, "window.empty", self.now))

    def _keep_open(self) -> None:
        if self.each.window.kind == WindowKind.MAINTENANCE and self._acts:
            release_upgrades(self._nodes(), self.now, self.hold)

    def _check(self) -> None:
        """Nodes that are well again come back one by one; the others are named."""
        each = self.each
        failing = {}
        if each.window.kind == WindowKind.MAINTENANCE:
            failing = failing_checks(each, self.now)
        well = [node for node in self._nodes() if node.name not in failing]
        with log.writing():
            self.hold()
            lift_cordons(
                well,
                source=CordonSource.WINDOW,
                key=cordon_key(each),
                now=self.now,
                by=f"window {each.window_id}",
                reason="the window is over",
            )
            if failing != each.checks:
                Occurrence.objects.filter(pk=each.pk).update(checks=failing)
                each.checks = failing
                log.record(
                    window_event(
                        each.window, "window.checked", self.now, numbers={"failing": len(failing)}
                    )
                )


_STEPS = {State.OPEN: "opened_at"}


def _soonest(pair: tuple[Leaver, Departure]) -> tuple[bool, datetime | None, float, int]:
    leaver, leaves = pair
    lost = leaves.lost_seconds * leaver.runner.gpus
    return leaves.order_at is None, leaves.order_at, lost, leaver.attempt.pk


def _moved(before: datetime | None, after: datetime | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > MOVED
