"""When jobs leave for a window, and how an occurrence goes on: tables over pure functions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queues.checkpoints import Saves
from scheduler.maintenance import life
from scheduler.maintenance.life import (
    Course,
    Runner,
    State,
    Way,
    drain_at,
    expected_empty_at,
    is_time_to_cordon,
    next_state,
)

NOW = datetime(2027, 1, 4, 8, 0, tzinfo=UTC)
START = NOW + timedelta(hours=4)
MINUTE = timedelta(minutes=1)
# Every moment in what they find may be absent; the tests say which are not.
departure: Any = life.departure
departure_now: Any = life.departure_now


def runner(
    interval: int | None = 600,
    *,
    saving: int = 60,
    reported: datetime | None = None,
    ends_at: datetime | None = None,
    notice: str = "signal",
) -> Runner:
    return Runner(
        Saves(NOW, reported, interval, saving),
        gpus=64,
        ends_at=ends_at,
        grace=timedelta(seconds=30),
        notice=notice,
    )


@pytest.mark.parametrize("offset", range(0, 600, 37))
def test_a_job_leaves_after_its_last_save_before_the_start(offset: int) -> None:
    reported = NOW + timedelta(seconds=offset)
    found = departure(runner(reported=reported), "checkpoint", START, None, NOW)
    deadline = START - timedelta(seconds=60)
    assert found.way is Way.CHECKPOINT
    assert found.lost_seconds == 0
    stop = found.leaves_at - timedelta(seconds=30)
    assert deadline - timedelta(seconds=600) < stop <= deadline
    # Ordered after the save before, and before the one it waits for.
    save = stop - timedelta(seconds=60)
    assert save - timedelta(seconds=600) < found.order_at < save
    assert (save - reported) % timedelta(seconds=600) == timedelta()


def test_a_job_without_checkpoints_is_stopped_so_that_the_start_finds_it_gone() -> None:
    found = departure(runner(None), "checkpoint", START, None, NOW)
    assert (found.way, found.wait) == (Way.EVICTED, False)
    assert found.leaves_at <= START
    assert found.lost_seconds == (found.order_at - NOW).total_seconds()


def test_a_job_that_polls_is_told_in_time_to_save_once_more() -> None:
    found = departure(runner(None, notice="poll"), "checkpoint", START, None, NOW)
    assert (found.way, found.wait, found.lost_seconds) == (Way.CHECKPOINT, True, 0)
    assert found.latest_at - found.order_at == timedelta(seconds=120)
    slow = departure(runner(None, notice="file"), "checkpoint", START, None, NOW)
    assert slow.order_at < found.order_at


def test_a_job_that_ends_before_is_left_alone() -> None:
    for how in ("finish", "checkpoint", "evict"):
        found = departure(runner(ends_at=START), how, START, None, NOW)
        assert (found.way, found.order_at, found.leaves_at) == (Way.ENDS, None, START)


def test_finish_waits_for_ever_unless_there_is_a_latest_time() -> None:
    late = START + 30 * MINUTE
    assert departure(runner(), "finish", START, None, NOW).way is Way.STAYS
    assert departure(runner(ends_at=late), "finish", START, None, NOW).leaves_at == late
    assert departure(runner(ends_at=late), "finish", START, late, NOW).way is Way.ENDS
    stopped = departure(runner(ends_at=late), "finish", START, START + MINUTE, NOW)
    assert (stopped.way, stopped.order_at) == (Way.EVICTED, START + MINUTE)


def test_evict_stops_at_the_start_or_at_the_latest_time() -> None:
    assert departure(runner(), "evict", START, None, NOW).order_at == START
    assert departure(runner(), "evict", START, START - MINUTE, NOW).order_at == START - MINUTE


def test_latest_time_ends_the_waiting_for_a_save() -> None:
    found = departure(runner(86_400), "checkpoint", START, START + 5 * MINUTE, NOW)
    assert (found.way, found.latest_at) == (Way.EVICTED, START + 5 * MINUTE)
    assert found.lost_seconds == (START + 5 * MINUTE - NOW).total_seconds()


def test_nobody_is_told_a_day_ahead() -> None:
    later = NOW + timedelta(days=10)
    found = departure(runner(5 * 86_400), "checkpoint", later, None, NOW)
    assert found.order_at >= later - timedelta(hours=25)


def test_a_drain_waits_for_the_next_save_only() -> None:
    at = NOW + timedelta(seconds=100)
    found = departure_now(runner(), "checkpoint", None, at)
    assert (found.order_at, found.lost_seconds) == (at, 0)
    assert found.leaves_at == NOW + timedelta(seconds=600 + 60 + 30)
    sooner = departure_now(runner(), "checkpoint", at + MINUTE, at)
    assert (sooner.leaves_at, sooner.lost_seconds) == (at + MINUTE + timedelta(seconds=30), 160)
    at_once = departure_now(runner(), "evict", None, at)
    assert (at_once.order_at, at_once.lost_seconds) == (at, 100)


def test_draining_begins_with_the_first_job_that_must_be_told() -> None:
    late = departure(runner(600), "checkpoint", START, None, NOW)
    early = departure(runner(3600), "checkpoint", START, None, NOW)
    assert drain_at([late, early], START) == early.order_at < late.order_at
    assert drain_at([], START) == START - 5 * MINUTE
    assert expected_empty_at([late, early], NOW) == max(late.leaves_at, early.leaves_at)
    stays = departure(runner(), "finish", START, None, NOW)
    assert expected_empty_at([late, stays], NOW) is None
    assert expected_empty_at([], NOW) == NOW


def test_nodes_stay_open_while_a_short_job_still_fits() -> None:
    at = START - 60 * MINUTE
    assert not is_time_to_cordon(START, 30 * MINUTE, at)
    assert is_time_to_cordon(START, 61 * MINUTE, at)
    assert is_time_to_cordon(START, None, at)
    assert is_time_to_cordon(START, MINUTE, START - 5 * MINUTE)


def course(state: State, *, left: int = 0, failing: int = 0) -> Course:
    return Course(
        state, START, START + 120 * MINUTE, 60 * MINUTE, START - 15 * MINUTE, left, failing
    )


@pytest.mark.parametrize(
    ("state", "minutes", "left", "failing", "follows"),
    [
        (State.PLANNED, -61, 1, 0, State.PLANNED),
        (State.PLANNED, -60, 1, 0, State.NOTICED),
        (State.PLANNED, -15, 1, 0, State.DRAINING),
        (State.NOTICED, -16, 1, 0, State.NOTICED),
        (State.NOTICED, -15, 1, 0, State.DRAINING),
        (State.NOTICED, 5, 1, 0, State.DRAINING),
        (State.DRAINING, -1, 0, 0, State.DRAINING),
        (State.DRAINING, 0, 1, 0, State.DRAINING),
        (State.DRAINING, 0, 0, 0, State.OPEN),
        (State.DRAINING, 121, 1, 0, State.CHECKING),
        (State.OPEN, 119, 0, 0, State.OPEN),
        (State.OPEN, 120, 0, 1, State.CHECKING),
        (State.CHECKING, 121, 0, 1, State.CHECKING),
        (State.CHECKING, 121, 0, 0, State.OVER),
        (State.OVER, 999, 9, 9, State.OVER),
    ],
)
def test_states_follow_one_another(
    state: State, minutes: int, left: int, failing: int, follows: State
) -> None:
    found = next_state(course(state, left=left, failing=failing), START + minutes * MINUTE)
    assert found is follows
