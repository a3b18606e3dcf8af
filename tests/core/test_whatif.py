"""Simulations and previews are plans, compared."""

from dataclasses import replace

from scheduler.core.inputs.quotas import Queue, QueueState
from scheduler.core.whatif import difference, simulate
from tests.core.builders import fabric, gang, running, snapshot, tenant

NODES = fabric(1, 1, 4)


def test_simulation_starts_now_with_placement_and_quota():
    given = snapshot(NODES, tenants=(tenant(nominal=32),))
    answer = simulate(given, gang("new", 2))
    assert answer.verdict == "starts_now"
    assert answer.start is not None
    assert len(answer.start.nodes) == 2
    assert answer.quota_before is not None
    assert answer.quota_after is not None
    assert (answer.quota_before.used, answer.quota_after.used) == (0, 16)


def test_simulation_queues_with_its_reason():
    given = snapshot(NODES, running=(running("r", ("n-0-0-00", 8)),))
    answer = simulate(given, gang("new", 4))
    assert answer.reason is not None
    assert (answer.verdict, str(answer.reason.code)) == ("queued", "waiting_for_nodes")


def test_simulation_says_never():
    assert simulate(snapshot(NODES), gang("new", 5)).verdict == "never"


def test_closed_queue_takes_no_new_job():
    given = replace(snapshot(NODES), queues=(Queue("t/train", "t", QueueState.CLOSED),))
    answer = simulate(given, gang("new", 1))
    assert answer.reason is not None
    assert (answer.verdict, str(answer.reason.code)) == ("never", "queue_closed")


def test_more_quota_starts_more_and_less_quota_makes_wait():
    given = snapshot(NODES, gang("a", 1), gang("b", 1), tenants=(tenant(nominal=8),))
    more = replace(given, tenants=(tenant(nominal=16),))
    assert [start.job for start in difference(given, more).starts] == ["b"]
    assert difference(more, given).waits_longer == ("b",)


def test_quota_cut_below_use_is_warned_of():
    given = snapshot(NODES, running=(running("r", ("n-0-0-00", 8)),), tenants=(tenant(nominal=8),))
    cut = replace(given, tenants=(tenant(nominal=4),))
    assert [o.over_gpus for o in difference(given, cut).over_admissions] == [4]
