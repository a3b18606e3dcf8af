"""The life of a window in virtual time: real rows and services, a stepped clock, pods that end when they are told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from controlplane.common import log
from controlplane.common.models import Event
from queues.lifecycle import EndedBy
from queues.models import Attempt, Cluster, Job, Placement
from queues.services.attempts import end_attempt
from scheduler.models import (
    Alert,
    ClusterState,
    Cordon,
    CordonSource,
    Eviction,
    MaintenanceWindow,
    Node,
    Occurrence,
    Seat,
)
from scheduler.services.cordons import set_cordon
from scheduler.services.evictions import carry_out_evictions
from scheduler.services.occurrences import tick_windows
from scheduler.services.windows import cancel_window, change_window, finish_window, sync_occurrences
from tenants.access import Actor
from tenants.models import OutboxMessage, PlatformRole, User
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World
from tests.windows.builders import HOUR, add_window, run_gang

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
START = NOW + 2 * HOUR
END = NOW + 4 * HOUR


@dataclass(slots=True)
class Clock:
    """Steps through time: ticks windows and evictions, lets jobs save, lets pods end after their grace."""

    world: World
    now: datetime = NOW
    step: timedelta = timedelta(seconds=30)
    saving: bool = True
    seen: list[tuple[datetime, str]] = field(default_factory=list)

    def until(self, end: datetime, each: Callable[[datetime], None] = lambda _now: None) -> None:
        """Small steps while somebody leaves or the end is near, long ones otherwise."""
        while self.now < end:
            going = Occurrence.objects.filter(state__in=["draining", "checking"]).exists()
            step = self.step if going else 10 * MINUTE
            due = [at for at in (START - 5 * MINUTE, START, END) if at > self.now]
            self.now = min([self.now + step, end, *due])
            self.beat()
            each(self.now)

    def beat(self) -> None:
        ClusterState.objects.filter(cluster=self.world.cluster).update(heard_at=self.now)
        if self.saving:
            self._save()
        tick_windows(self.world.cluster, self.now)
        carry_out_evictions(self.world.cluster, self.now)
        self._end_pods()
        carry_out_evictions(self.world.cluster, self.now)
        for state in Occurrence.objects.values_list("state", flat=True):
            if not self.seen or self.seen[-1][1] != state:
                self.seen.append((self.now, state))

    def _save(self) -> None:
        attempt: Any
        for attempt in Attempt.objects.filter(ended_at__isnull=True, stop_cause=""):
            interval = attempt.job.checkpoint_interval_seconds
            if interval:
                done = (self.now - attempt.started_at).total_seconds() // interval
                saved = attempt.started_at + timedelta(seconds=done * interval)
                Attempt.objects.filter(pk=attempt.pk).update(last_checkpoint_at=saved)

    def _end_pods(self) -> None:
        attempt: Any
        for attempt in Attempt.objects.filter(ended_at__isnull=True).exclude(stop_cause=""):
            grace = timedelta(seconds=attempt.stop_grace_seconds or 0)
            if self.now >= attempt.stop_requested_at + grace:
                with log.writing():
                    held = Placement.objects.filter(attempt=attempt)
                    Seat.objects.filter(placement__in=held).delete()
                    held.update(released_at=self.now)
                    end_attempt(
                        attempt,
                        ended_by=EndedBy(attempt.stop_cause),
                        message="",
                        exit_code=None,
                        now=self.now,
                    )

    def entered(self, state: str) -> datetime:
        return next(at for at, word in self.seen if word == state)


@pytest.fixture
def world() -> World:
    return rows.make_world(8, nodes_per_leaf=4)


@pytest.fixture
def clock(world: World) -> Clock:
    return Clock(world)


def opened(world: World, **changes: object) -> MaintenanceWindow:
    row = add_window(world, **changes)
    sync_occurrences(row, NOW)
    return row


def cordoned() -> set[str]:
    return set(Node.objects.filter(cordon_wanted=True).values_list("name", flat=True))


LEAF_1 = {f"gpu-{number:05d}" for number in range(4, 8)}


def saving(seconds: int = 600) -> dict[str, Any]:
    return {
        "checkpoint_interval_seconds": seconds,
        "checkpoint_grace_seconds": 60,
        "grace_seconds": 30,
    }


def test_a_leaf_is_empty_at_the_start_and_less_is_lost_than_by_draining_at_once(
    world: World, clock: Clock
) -> None:
    """The finish line: a 2-hour window, gangs that save every 10 minutes at different times."""
    window = opened(world, notice_minutes=90)
    gangs = [
        run_gang(world, [4, 5], now=NOW - timedelta(seconds=330), **saving()),
        run_gang(world, [6], now=NOW - timedelta(seconds=110), **saving()),
        run_gang(world, [7], now=NOW - timedelta(seconds=560), **saving()),
    ]
    beside = run_gang(world, [0, 1], **saving())
    clock.until(START)
    gone: dict[int, Any] = {each.pk: Attempt.objects.get(pk=each.pk) for each in gangs}
    assert all(each.ended_by == "maintenance" for each in gone.values())
    assert {"window.open", "window.empty"} <= set(Event.objects.values_list("kind", flat=True))
    occurrence: Any = Occurrence.objects.get()
    assert occurrence.state == "open"
    assert occurrence.empty_at <= START
    assert abs(occurrence.empty_at - occurrence.expected_empty_at) <= MINUTE

    lost = sum(each.lost_gpu_seconds for each in gone.values())
    idle = sum(
        (START - each.ended_at).total_seconds() * 8 * each.placements.count()
        for each in gone.values()
    )
    drained_at = occurrence.draining_at
    at_once = 0.0
    for each in gone.values():
        gpus = 8 * each.placements.count()
        at_once += (drained_at - each.started_at).total_seconds() % 600 * gpus
        at_once += (START - drained_at).total_seconds() * gpus
    print(
        f"GPU seconds lost: {lost + idle:.0f} at checkpoints ({lost} of work), "
        f"{at_once:.0f} by draining at once"
    )
    assert lost + idle < at_once
    assert lost <= 32 * 100  # the time that writing takes, and a step of the clock

    assert cordoned() == LEAF_1
    clock.until(END + MINUTE)
    assert Occurrence.objects.get().state == "over"
    assert cordoned() == set()
    assert not Cordon.objects.exists()
    assert Attempt.objects.get(pk=beside.pk).ended_at is None
    assert Job.objects.get(pk=gangs[0].job_id).phase == "pending"
    assert [state for _at, state in clock.seen] == [
        *("planned", "noticed", "draining", "open", "over")
    ]
    assert clock.entered("noticed") == START - 90 * MINUTE
    assert window.occurrences.count() == 1


def test_nodes_close_no_sooner_than_short_jobs_stop_fitting(world: World, clock: Clock) -> None:
    opened(world)
    clock.step = MINUTE
    run_gang(world, [4], now=NOW - MINUTE, **saving(3600))
    rows.add_job(world, max_runtime_seconds=1200, grace_seconds=30)
    closed: list[datetime] = []

    def look(now: datetime) -> None:
        if cordoned() and not closed:
            closed.append(now)

    clock.until(START, look)
    draining = clock.entered("draining")
    assert draining < START - 25 * MINUTE
    # 20 minutes, its grace, and the allowance for its start.
    assert START - timedelta(seconds=1290) < closed[0] <= START - timedelta(seconds=1230)


def test_without_jobs_nodes_close_five_minutes_ahead_and_open_in_time(
    world: World, clock: Clock
) -> None:
    opened(world)
    clock.until(START)
    assert clock.entered("draining") == START - 5 * MINUTE
    assert clock.entered("open") == START


def test_a_window_that_is_late_is_alerted_and_opens_when_the_last_job_has_left(
    world: World, clock: Clock
) -> None:
    opened(world, running_jobs="finish", latest_at=START + 10 * MINUTE)
    attempt = run_gang(world, [4])
    clock.until(START + MINUTE)
    assert Occurrence.objects.get().state == "draining"
    assert Alert.objects.get(kind="window_late").state == "open"
    clock.until(START + 12 * MINUTE)
    assert Attempt.objects.get(pk=attempt.pk).ended_by == "maintenance"
    assert Occurrence.objects.get().state == "open"
    assert clock.entered("open") >= START + 10 * MINUTE
    assert Alert.objects.get(kind="window_late").state == "resolved"


def test_evict_stops_jobs_at_the_start_and_not_before(world: World, clock: Clock) -> None:
    opened(world, running_jobs="evict")
    attempt = run_gang(world, [4], **saving())
    clock.until(START)
    assert Attempt.objects.get(pk=attempt.pk).stop_requested_at == START


def test_nodes_come_back_one_by_one_when_they_are_well(world: World, clock: Clock) -> None:
    opened(world)
    clock.until(START)
    rows.change_node(world, "gpu-00004", ready=False)
    rows.change_node(world, "gpu-00005", gpus_allocatable=7)
    rows.change_node(world, "gpu-00006", health="unhealthy")
    clock.until(END + MINUTE)
    each = Occurrence.objects.get()
    assert each.state == "checking"
    assert {name: why["code"] for name, why in each.checks.items()} == {
        "gpu-00004": "not_ready",
        "gpu-00005": "gpus",
        "gpu-00006": "health",
    }
    assert cordoned() == {"gpu-00004", "gpu-00005", "gpu-00006"}
    for name in each.checks:
        rows.change_node(world, name, ready=True, gpus_allocatable=8, health="healthy")
    clock.until(END + 2 * MINUTE)
    assert Occurrence.objects.get().state == "over"
    assert cordoned() == set()


def test_nothing_comes_back_on_old_news(world: World, clock: Clock) -> None:
    opened(world)
    clock.until(START)
    ClusterState.objects.update(heard_at=END - MINUTE)
    tick_windows(world.cluster, END + MINUTE)
    each = Occurrence.objects.get()
    assert each.state == "checking"
    assert {why["code"] for why in each.checks.values()} == {"unheard"}
    assert cordoned() == LEAF_1


def test_a_window_lifts_only_its_own_cordon(world: World, clock: Clock) -> None:
    node = Node.objects.get(name="gpu-00005")
    set_cordon(node, source=CordonSource.OPERATOR, reason="fan", by="ines", now=NOW)
    opened(world)
    clock.until(END + MINUTE)
    assert Occurrence.objects.get().state == "over"
    assert cordoned() == {"gpu-00005"}
    assert Cordon.objects.get().source == "operator"


def test_owners_hear_of_it_ahead_once_and_nobody_else(
    world: World, clock: Clock, settings: Any
) -> None:
    settings.EMAIL_URL = "smtp://mail.example.org"
    User.objects.filter(username__in=["ravi", "mei"]).update(email="someone@example.org")
    opened(world)
    run_gang(world, [4, 5], **saving())
    run_gang(world, [6], max_runtime_seconds=600, grace_seconds=30)
    run_gang(world, [0], tenant="vision", **saving())
    clock.until(START - 50 * MINUTE)
    message: Any = OutboxMessage.objects.get()
    assert message.user.username == "ravi"
    assert "New driver" in message.subject
    assert message.body.count("/jobs/") == 1
    events = Event.objects.filter(kind="job.maintenance_ahead")
    assert [event.tenant for event in events] == ["research"]


def operator() -> Actor:
    user, _made = User.objects.get_or_create(
        username="ines", defaults={"platform_role": PlatformRole.OPERATOR}
    )
    return Actor(user)


def test_cancelling_while_it_drains_lets_jobs_run_on(world: World, clock: Clock) -> None:
    window = opened(world)
    attempt = run_gang(world, [4], now=NOW - MINUTE, **saving(3600))
    clock.until(START - 60 * MINUTE)
    clock.saving = False
    clock.until(START - 59 * MINUTE)
    assert Eviction.objects.filter(Eviction.OPEN).count() == 1
    cancel_window(operator(), window.pk, 1, "not today", clock.now)
    assert Occurrence.objects.get().state == "cancelled"
    assert cordoned() == set()
    assert Eviction.objects.get().withdrawn_at == clock.now
    clock.until(START + MINUTE)
    assert Attempt.objects.get(pk=attempt.pk).ended_at is None


def test_finishing_early_gives_the_nodes_back(world: World, clock: Clock) -> None:
    window = opened(world)
    clock.until(START + MINUTE)
    finish_window(operator(), window.pk, None, clock.now)
    clock.until(START + 2 * MINUTE)
    assert Occurrence.objects.get().state == "over"
    assert cordoned() == set()


def test_moving_a_window_moves_what_is_planned(world: World, clock: Clock) -> None:
    window = opened(world)
    later = {"starts_at": "2026-01-05T20:00:00Z", "ends_at": "2026-01-05T21:00:00Z"}
    change_window(operator(), window.pk, later, 1, NOW)
    each = Occurrence.objects.get()
    assert (each.state, each.starts_at) == ("planned", NOW + 8 * HOUR)
    clock.until(START + MINUTE)
    assert cordoned() == set()


def test_a_window_that_is_moved_back_happens(world: World, clock: Clock) -> None:
    window = opened(world, notice_minutes=120)
    clock.until(NOW + MINUTE)
    assert Occurrence.objects.get().state == "noticed"
    later = {"starts_at": "2026-01-05T20:00:00Z", "ends_at": "2026-01-05T21:00:00Z"}
    change_window(operator(), window.pk, later, 1, clock.now)
    back = {"starts_at": START.isoformat(), "ends_at": END.isoformat()}
    change_window(operator(), window.pk, back, 2, clock.now)
    clock.until(START)
    assert Occurrence.objects.get(starts_at=START).state == "open"


def test_a_recurring_window_goes_on_by_itself(world: World, clock: Clock) -> None:
    opened(world, rrule="FREQ=YEARLY")
    assert [each.starts_at.year for each in Occurrence.objects.all()] == [2026, 2027]
    clock.until(END + 5 * MINUTE)
    assert [each.starts_at.year for each in Occurrence.objects.all()] == [2026, 2027, 2028]


def test_a_reservation_keeps_its_own_people_in_and_cordons_nothing(
    world: World, clock: Clock
) -> None:
    opened(world, kind="reserved", admits={"tenants": ["vision"]})
    theirs = run_gang(world, [4], tenant="vision", **saving())
    others = run_gang(world, [5], **saving())
    clock.until(START + MINUTE)
    assert Attempt.objects.get(pk=theirs.pk).ended_at is None
    assert Attempt.objects.get(pk=others.pk).ended_by == "maintenance"
    assert cordoned() == set()
    assert Occurrence.objects.get().state == "open"
    clock.until(END + MINUTE)
    assert Occurrence.objects.get().state == "over"


@pytest.mark.parametrize("mode", ["observe", "paused"])
def test_a_cluster_that_muster_may_not_touch_is_not_touched(
    world: World, clock: Clock, mode: str
) -> None:
    Cluster.objects.update(mode=mode)
    world.cluster.refresh_from_db()
    opened(world)
    attempt = run_gang(world, [4], **saving())
    clock.until(START + MINUTE)
    assert Attempt.objects.get(pk=attempt.pk).stop_cause == ""
    assert cordoned() == set()
    assert not Eviction.objects.exists()


def test_two_ticks_at_once_do_nothing_twice(world: World, clock: Clock) -> None:
    opened(world)
    run_gang(world, [4, 5], **saving())
    clock.until(START - 10 * MINUTE)
    seen = Event.objects.count()
    tick_windows(world.cluster, clock.now)
    tick_windows(world.cluster, clock.now)
    assert Event.objects.count() == seen
