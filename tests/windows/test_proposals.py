"""When a window costs least: prices from running jobs, delays from the planner."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from controlplane.common.errors import InvalidError
from queues.models import Cluster
from scheduler.services.proposals import best_times, read_wish
from scheduler.snapshot.warm import WarmSnapshot
from scheduler.whatif.mirror import Mirror
from scheduler.whatif.windows import ask_windows
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World
from tests.windows.builders import HOUR, add_window, leaf, run_gang

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> World:
    return rows.make_world(8, nodes_per_leaf=4)


def wish(**changes: Any) -> Any:
    sent = {"cluster": "demo", "nodes": leaf(), "duration_minutes": 120, "within_days": 1}
    return read_wish(sent | changes, NOW)


def planner(_cluster: str, windows: Sequence[Any]) -> list[Any]:
    """The planner's own answers, without the process around it."""
    world_id = Cluster.objects.get().pk
    mirror = Mirror(WarmSnapshot(world_id, "demo"))
    sent = {"windows": list(windows)}
    delays: list[Any] = ask_windows(mirror, sent, NOW.timestamp(), lambda: True)["delays"]
    return delays


def test_an_idle_leaf_costs_nothing_as_soon_as_people_know(world: World) -> None:
    best = best_times(wish(), NOW, planner)
    assert [each.price for each in best] == [0, 0, 0]
    assert best[0].starts_at == NOW + HOUR / 4
    assert {len(each.nodes) for each in best} == {4}
    gaps = [b.starts_at - a.starts_at for a, b in pairwise(best)]
    assert min(gaps) >= HOUR


def test_the_best_time_is_when_a_job_that_cannot_save_has_ended(world: World) -> None:
    run_gang(world, [4, 5], max_runtime_seconds=6 * 3600, grace_seconds=30)
    best = best_times(wish(), NOW, planner)
    assert best[0].starts_at == NOW + 6.25 * HOUR
    assert (best[0].price, best[0].stopped) == (0, 0)


def test_fewer_nodes_than_asked_are_those_whose_jobs_lose_least(world: World) -> None:
    run_gang(world, [4, 5])
    run_gang(world, [6], checkpoint_interval_seconds=600, checkpoint_grace_seconds=60)
    best = best_times(wish(count=2), NOW, planner)
    assert best[0].nodes == {"gpu-00006", "gpu-00007"}
    assert best[0].lost == 0
    assert best[0].stopped == 1


def test_times_that_another_window_has_taken_are_not_proposed(world: World) -> None:
    add_window(world, starts_at=NOW + HOUR, ends_at=NOW + 20 * HOUR)
    best = best_times(wish(), NOW, planner)
    assert {each.starts_at >= NOW + 20 * HOUR for each in best} == {True}
    taken_whole = wish(not_before=(NOW + 2 * HOUR).isoformat(), within_days=1)
    add_window(world, starts_at=NOW + HOUR, ends_at=NOW + 40 * HOUR)
    assert best_times(taken_whole, NOW, planner) == []


def test_starts_that_a_window_delays_count(world: World) -> None:
    """All nodes are busy for an hour; a gang waits for all of them and cannot cross."""
    run_gang(world, list(range(8)), max_runtime_seconds=3600, grace_seconds=30)
    rows.add_job(world, replicas=8, max_runtime_seconds=3 * 3600, grace_seconds=30)
    best = best_times(wish(), NOW, planner)
    told = planner("demo", [_json(NOW + 2 * HOUR), _json(NOW + 10 * HOUR)])
    assert told[0]["jobs"] == 1
    assert told[0]["gpu_seconds"] == told[0]["seconds"] * 64 > 0
    assert told[1] == {"jobs": 0, "seconds": 0, "gpu_seconds": 0}
    assert best[0].delay == told[1]
    assert best[0].price == 0


def _json(starts_at: Any) -> dict[str, Any]:
    nodes = [f"gpu-{number:05d}" for number in range(4, 8)]
    end = starts_at + timedelta(hours=2)
    return {"starts_at": starts_at.timestamp(), "ends_at": end.timestamp(), "nodes": nodes}


def test_windows_without_time_for_the_planner_are_left_out(world: World) -> None:
    answered = best_times(wish(), NOW, lambda _c, sent: [*planner("demo", sent[:1]), *[None] * 7])
    assert len(answered) == 1


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"cluster": "other"}, "/cluster"),
        ({"nodes": {}}, "/nodes"),
        ({"count": 5}, "/count"),
        ({"count": 0}, "/count"),
        ({"duration_minutes": 0}, "/duration_minutes"),
        ({"within_days": 99}, "/within_days"),
        ({"not_before": (NOW + 48 * HOUR).isoformat()}, "/not_before"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_a_wish_that_cannot_be_met_is_named(
    world: World, changes: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        wish(**changes)
    assert [error.pointer for error in refused.value.errors] == [pointer]
