"""What keeps jobs back before placement is tried."""

from dataclasses import replace

import pytest

from scheduler.core.identity import class_key
from scheduler.core.inputs.cluster import ClusterMode
from scheduler.core.inputs.quotas import Queue, QueueState
from scheduler.core.inputs.snapshot import Effort, Options
from scheduler.core.planner import plan
from tests.core.builders import NOW, code_of, fabric, gang, planned, snapshot, started

NODES = fabric(1, 1, 4)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"depends_on": ("job_x",)}, "waiting_for_dependency"),
        ({"begin_at": NOW + 60}, "begin_time"),
        ({"begin_at": NOW - 60}, None),
        ({"backoff_until": NOW + 10}, "backoff"),
        ({"refused_until": NOW + 10, "refused_message": "no"}, "refused_by_kubernetes"),
    ],
)
def test_jobs_own_reasons_come_first(changes, code):
    made = planned(snapshot(NODES, replace(gang("a", 1), **changes)))
    assert code_of(made, "a") == code


@pytest.mark.parametrize(
    ("cluster", "code"),
    [
        ({"mode": ClusterMode.PAUSED}, "cluster_paused"),
        ({"mode": ClusterMode.OBSERVE}, "cluster_observing"),
        ({"reachable": False}, "cluster_unreachable"),
    ],
)
def test_cluster_that_takes_nothing_says_why(cluster, code):
    given = snapshot(NODES, gang("a", 1))
    given = replace(given, cluster=replace(given.cluster, **cluster))
    assert code_of(planned(given), "a") == code
    assert started(plan(given, Options(dry_mode=True))) == ["a"]


def test_held_queue_starts_none_and_closed_queue_starts_what_it_has():
    given = snapshot(NODES, gang("a", 1))
    held = replace(given, queues=(Queue("t/train", "t", QueueState.HELD),))
    assert code_of(planned(held), "a") == "queue_held"
    closed = replace(given, queues=(Queue("t/train", "t", QueueState.CLOSED),))
    assert started(planned(closed)) == ["a"]


def test_start_budget_leaves_the_rest_for_the_next_plan():
    made = planned(snapshot(NODES, gang("a", 1), gang("b", 1)), Options(max_starts=1))
    assert started(made) == ["a"]
    assert code_of(made, "b") == "not_yet_considered"


def test_equal_shapes_are_tried_once_and_starve_nobody_behind_them():
    blocked = [gang(f"big{i:02d}", 5, age=100 - i) for i in range(20)]
    made = planned(snapshot(NODES, *blocked, gang("small", 1)))
    assert started(made) == ["small"]
    assert (made.stats.tried, made.stats.skipped) == (2, 19)
    assert made.verdicts[class_key(blocked[0])].job == "big00"
    assert made.verdicts[class_key(blocked[0])].jobs == 20


def test_decisions_do_not_depend_on_explanations():
    given = snapshot(NODES, gang("a", 3), gang("b", 2), gang("c", 1))
    plain = plan(given, Options(effort=Effort.DECIDE))
    assert plain.starts == planned(given).starts
    assert plain.verdicts == {}


def test_same_snapshot_same_plan_and_identity():
    given = snapshot(NODES, gang("a", 3), gang("b", 2), gang("c", 1))
    assert plan(given) == plan(given)
    other = snapshot(NODES, gang("a", 2), gang("b", 2), gang("c", 1))
    assert plan(given).identity != plan(other).identity
