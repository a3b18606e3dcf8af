"""Elastic growth, extensions, and a month-long job under weekly windows, in virtual time."""

from dataclasses import replace

import pytest

from scheduler.core.inputs.cluster import Window
from scheduler.core.inputs.jobs import Checkpoint
from scheduler.core.inputs.quotas import DecayedUsage
from scheduler.core.inputs.snapshot import Options
from scheduler.core.whatif import extension_refusal
from tests.core.builders import (
    NOW,
    ask,
    code_of,
    fabric,
    gang,
    job,
    planned,
    role,
    running,
    snapshot,
    start_of,
    started,
    tenant,
)
from tests.core.test_bookings import busy, sized, window

NODES = fabric(1, 2, 4)
EXACT = Options(start_allowance_seconds=0.0)
DAY, WEEK = 86_400.0, 604_800.0


def elastic(**changes):
    wanted = ask(role(4, min_replicas=2), max_runtime_seconds=36_000.0)
    made = running("e", ("n-0-0-00", 8), ("n-0-0-01", 8), wanted=wanted)
    return replace(made, last_checkpoint_at=NOW - 5, **changes)


def grows(given, options=None):
    return [(r.job, r.from_replicas, r.to_replicas) for r in planned(given, options).resizes]


def test_elastic_job_grows_at_a_checkpoint_when_nobody_waits():
    assert grows(snapshot(NODES, running=(elastic(),))) == [("e", 2, 4)]


def test_gang_whose_replicas_end_one_by_one_is_not_restarted_larger():
    assert grows(snapshot(NODES, running=(replace(elastic(), replicas_ended=True),))) == []
    rigid = ask(role(4), max_runtime_seconds=36_000.0)
    ending = running("e", ("n-0-0-00", 8), ("n-0-0-01", 8), wanted=rigid)
    assert grows(snapshot(NODES, running=(replace(ending, last_checkpoint_at=NOW - 5),))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"last_checkpoint_at": None},
        {"last_checkpoint_at": NOW - 600},
        {"stopping": True, "stops_by": NOW + 5},
        {"evicted_for": "x"},
    ],
)
def test_elastic_job_does_not_grow_outside_its_training_gap(changes):
    assert grows(snapshot(NODES, running=(replace(elastic(), **changes),))) == []


def test_elastic_job_does_not_grow_while_somebody_waits():
    assert grows(snapshot(NODES, gang("big", 7), running=(elastic(),))) == []


def test_elastic_job_grows_only_within_quota_and_only_when_it_pays():
    assert grows(snapshot(NODES, running=(elastic(),), tenants=(tenant(nominal=24),))) == [
        ("e", 2, 3)
    ]
    nearly = replace(elastic().ask, max_runtime_seconds=120.0)
    assert grows(snapshot(NODES, running=(elastic(ask=nearly),))) == []


def test_extension_is_refused_when_it_delays_a_booking():
    held = busy("r", 1_000.0, *(n.name for n in NODES))
    given = snapshot(NODES, sized("head", 8, 500), running=(held,))
    refusal = extension_refusal(given, "r", 2_000.0, EXACT)
    assert refusal is not None
    assert refusal.code == "waiting_for_booking"
    assert (refusal.numbers["booked_job"], refusal.numbers["longest_seconds"]) == ("head", 1_000.0)
    assert extension_refusal(replace(given, waiting=()), "r", 2_000.0, EXACT) is None


def test_extension_is_refused_when_it_crosses_a_window():
    held = busy("r", 1_000.0, "n-0-0-00")
    given = snapshot(NODES, running=(held,), windows=(window(1_500, 2_000, "n-0-0-00"),))
    refusal = extension_refusal(given, "r", 1_600.0, EXACT)
    assert refusal is not None
    assert refusal.code == "waiting_for_maintenance"
    assert refusal.numbers["longest_seconds"] == 1_500
    assert extension_refusal(given, "r", 1_400.0, EXACT) is None
    with pytest.raises(KeyError):
        extension_refusal(given, "nobody", 1.0)


def weekly(count):
    """Every week two hours on every leaf."""
    names = frozenset(n.name for n in NODES)
    return tuple(
        Window(f"w{i}", NOW + (i + 1) * WEEK, NOW + (i + 1) * WEEK + 7_200, names)
        for i in range(count)
    )


def month(checkpoint):
    wanted = ask(role(8), max_runtime_seconds=30 * DAY, grace_seconds=60.0, checkpoint=checkpoint)
    return job("month", wanted)


def test_month_long_job_stops_for_each_weekly_window_and_returns():
    """Virtual time: enact each planned stop, plan again when the window ends."""
    given = snapshot(NODES, month(Checkpoint(1_800.0, 120.0)), windows=weekly(5))
    moments = []
    for _ in range(4):
        start = start_of(planned(given, EXACT), "month")
        stops, returns = start.planned_stop_at, start.planned_return_at
        assert stops is not None
        assert returns is not None
        moments.append((given.now - NOW, stops - NOW, returns - NOW))
        inside = replace(given, now=returns - 60)
        assert code_of(planned(inside, EXACT), "month") == "waiting_for_maintenance"
        given = replace(given, now=returns)
    expected = [
        ((i * WEEK + 7_200) if i else 0.0, (i + 1) * WEEK - 180, (i + 1) * WEEK + 7_200)
        for i in range(4)
    ]
    assert moments == expected


def test_month_long_job_without_checkpoints_says_why_and_what_would_help():
    given = snapshot(NODES, month(None), windows=weekly(5))
    made = planned(given, replace(EXACT, probe_first=1))
    reason = made.reason_of("month")
    assert reason is not None
    assert reason.code == "waiting_for_maintenance"
    assert reason.numbers["window"] == "w0"
    assert [dict(c.change) for c in made.counterfactuals["month"]] == [
        {"max_runtime_seconds": WEEK - 60},
        {"checkpoint.interval_seconds": 1_800.0},
    ]


def test_colleague_waits_at_most_one_job_length_behind_500_jobs():
    """The busy user's job takes everything for an hour; then the colleague is next."""
    many = tuple(job(f"m{i:03d}", ask(role(8), user="busy"), 500.0 - i) for i in range(500))
    given = snapshot(NODES, *many)
    given = replace(given, queues=(replace(given.queues[0], user_fairness=True),))
    assert started(planned(given, EXACT)) == ["m000"]
    colleague = job("colleague", ask(role(8), user="rare"), -1.0)
    used = DecayedUsage("t", "busy", 64 * 3_600.0)
    later = replace(given, now=NOW + 3_600, waiting=(*many[1:], colleague), usage=(used,))
    assert started(planned(later, EXACT)) == ["colleague"]
