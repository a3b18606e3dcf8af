"""When jobs leave for a window or drain, and how one occurrence of a window goes on. Pure; called by
`scheduler.services.{occurrences, drains, departures}` with facts from rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from queues.checkpoints import Saves

# Pods need their grace and then a moment until Kubernetes says that they are gone.
MARGIN = timedelta(seconds=30)
# How long a job that polls, or reads its notice from a file, may take to see it (the kubelet syncs files each minute).
POLL_DELAY = timedelta(seconds=60)
FILE_DELAY = timedelta(seconds=150)
# So close to the start nodes take no new job in any case, and an empty window begins to drain.
SETTLE = timedelta(minutes=5)
# Nobody is told to leave sooner than so long ahead, whatever interval a job promises.
LONGEST_LEAD = timedelta(hours=24)


class Way(StrEnum):
    """How a job leaves."""

    ENDS = "ends"
    CHECKPOINT = "checkpoint"
    EVICTED = "evicted"
    STAYS = "stays"


@dataclass(frozen=True, slots=True)
class Runner:
    """A running attempt on the nodes. gpus: of the whole gang. ends_at: the latest end that its limit allows.

    notice: how the job hears of its end, "signal", "poll" or "file".
    """

    saves: Saves
    gpus: int
    ends_at: datetime | None
    grace: timedelta
    notice: str = "signal"


@dataclass(frozen=True, slots=True)
class Departure:
    """What becomes of a runner. order_at: when it is to be ordered to leave (None: never). wait: for a checkpoint.

    latest_at: by when it is stopped in any case. leaves_at: when its pods are expected to be gone (None: nobody knows).
    lost_seconds: work that is thrown away then, in seconds of the whole gang.
    """

    way: Way
    order_at: datetime | None
    latest_at: datetime | None
    leaves_at: datetime | None
    lost_seconds: float = 0.0
    wait: bool = False


def departure(
    runner: Runner,
    running_jobs: str,
    starts_at: datetime,
    latest_at: datetime | None,
    now: datetime,
) -> Departure:
    """How a runner leaves nodes that are wanted empty at `starts_at`, or at the latest at `latest_at`.

    One that saves by itself leaves after its last save before then, so that neither work nor machine time is lost.
    """
    if runner.ends_at is not None and runner.ends_at <= starts_at:
        return _by_itself(runner)
    if running_jobs == "finish":
        return _finishing(runner, latest_at, now)
    if running_jobs == "evict":
        return _stopped(runner, max(latest_at or starts_at, now))
    deadline = latest_at or starts_at - runner.grace - MARGIN
    return _after_a_save(runner, deadline, now)


def departure_now(
    runner: Runner, running_jobs: str, latest_at: datetime | None, now: datetime
) -> Departure:
    """How a runner leaves a node that is wanted empty as soon as it may be: an operator's drain."""
    if running_jobs == "finish":
        return _finishing(runner, latest_at, now)
    if running_jobs == "evict":
        return _stopped(runner, now)
    written = runner.saves.written_by(now)
    if written is None or _hearing(runner) is not None:
        return _on_demand(runner, latest_at, now)
    stop = written if latest_at is None else max(now, min(written, latest_at))
    return _leaving(runner, now, latest_at, stop, written)


def _by_itself(runner: Runner) -> Departure:
    return Departure(Way.ENDS, None, None, runner.ends_at)


def _finishing(runner: Runner, latest_at: datetime | None, now: datetime) -> Departure:
    if latest_at is None:
        way = Way.STAYS if runner.ends_at is None else Way.ENDS
        return Departure(way, None, None, runner.ends_at)
    if runner.ends_at is not None and runner.ends_at <= latest_at:
        return _by_itself(runner)
    return _stopped(runner, max(latest_at, now))


def _stopped(runner: Runner, at: datetime) -> Departure:
    lost = runner.saves.lost_seconds(at)
    return Departure(Way.EVICTED, at, at, at + runner.grace, lost)


def _on_demand(runner: Runner, latest_at: datetime | None, now: datetime) -> Departure:
    """One that saves when it is told, or never, leaves at once."""
    delay = _hearing(runner)
    if delay is None:
        return _stopped(runner, now)
    latest_at = latest_at or now + delay
    return Departure(Way.CHECKPOINT, now, latest_at, min(latest_at, now + delay), wait=True)


def _after_a_save(runner: Runner, deadline: datetime, now: datetime) -> Departure:
    delay = _hearing(runner)
    if runner.saves.started_at is None:
        return _stopped(runner, max(deadline, now))
    if delay is not None:
        order_at = max(now, deadline - delay)
        return Departure(Way.CHECKPOINT, order_at, deadline, deadline + runner.grace, wait=True)
    if runner.saves.interval_seconds:
        return _after_the_last_save(runner, deadline, now)
    return _stopped(runner, max(deadline, now))


def _after_the_last_save(runner: Runner, deadline: datetime, now: datetime) -> Departure:
    """Ordered between its last two saves before the deadline: half an interval either way is forgiven."""
    interval = timedelta(seconds=runner.saves.interval_seconds or 0)
    writing = timedelta(seconds=runner.saves.grace_seconds)
    order_at = max(now, deadline - interval - writing, deadline - LONGEST_LEAD)
    written = runner.saves.written_by(order_at)
    if written is not None and written <= deadline:
        more = (deadline - written) // interval
        written += more * interval
        order_at = max(order_at, written - writing - interval / 2)
    stop = max(now, min(written or deadline, deadline))
    return _leaving(runner, order_at, deadline, stop, written)


def _leaving(
    runner: Runner,
    order_at: datetime,
    latest_at: datetime | None,
    stop: datetime,
    written: datetime | None,
) -> Departure:
    saved = written is not None and written <= stop
    lost = 0.0 if saved else runner.saves.lost_seconds(stop)
    way = Way.CHECKPOINT if saved else Way.EVICTED
    return Departure(way, order_at, latest_at, stop + runner.grace, lost, wait=True)


def _hearing(runner: Runner) -> timedelta | None:
    """How long a job that saves when told needs for it; None for one that is not told beforehand."""
    writing = timedelta(seconds=runner.saves.grace_seconds)
    if runner.notice == "poll":
        return writing + POLL_DELAY
    return writing + FILE_DELAY if runner.notice == "file" else None


class State(StrEnum):
    """Where an occurrence stands."""

    PLANNED = "planned"
    NOTICED = "noticed"
    DRAINING = "draining"
    OPEN = "open"
    CHECKING = "checking"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Course:
    """What one occurrence's state follows from. left: jobs that still have to go. failing: nodes not fit to return."""

    state: State
    starts_at: datetime
    ends_at: datetime
    notice: timedelta
    drain_at: datetime
    left: int
    failing: int


def next_state(course: Course, now: datetime) -> State:
    """The state after this one, or the same where nothing is due. Asked again until it stays."""
    match course.state:
        case State.PLANNED | State.NOTICED if now >= min(course.drain_at, course.starts_at):
            return State.DRAINING
        case State.PLANNED if course.notice and now >= course.starts_at - course.notice:
            return State.NOTICED
        case State.DRAINING if now >= course.ends_at:
            return State.CHECKING
        case State.DRAINING if now >= course.starts_at and not course.left:
            return State.OPEN
        case State.OPEN if now >= course.ends_at:
            return State.CHECKING
        case State.CHECKING if not course.failing:
            return State.OVER
    return course.state


def drain_at(departures: Iterable[Departure], starts_at: datetime) -> datetime:
    """When the first job has to be told, or the nodes to be closed if there is none."""
    orders = [each.order_at for each in departures if each.order_at is not None]
    return min([starts_at - SETTLE, *orders])


def expected_empty_at(departures: Iterable[Departure], now: datetime) -> datetime | None:
    """When the last one is expected to be gone; None when nobody can say."""
    leaves = [each.leaves_at for each in departures]
    if any(at is None for at in leaves):
        return None
    return max([now, *(at for at in leaves if at is not None)])


def is_time_to_cordon(starts_at: datetime, shortest_job: timedelta | None, now: datetime) -> bool:
    """Whether no job that would end before the start fits any more. shortest_job: of those that wait, None if none."""
    left = starts_at - now
    return left <= SETTLE or shortest_job is None or shortest_job > left
