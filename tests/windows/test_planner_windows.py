"""What the planner is told of windows."""

from datetime import timedelta

import pytest

from scheduler.core.inputs.cluster import Crossing, WindowKind
from scheduler.models import Occurrence
from scheduler.selectors.windows import windows_of
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World
from tests.windows.builders import HOUR, add_window, leaf

pytestmark = pytest.mark.django_db
LEAF_1 = {f"gpu-{number:05d}" for number in range(4, 8)}


@pytest.fixture
def world() -> World:
    return rows.make_world(8, nodes_per_leaf=4)


def test_a_window_is_its_nodes_and_its_times(world: World) -> None:
    row = add_window(world, crossing="never")
    (window,) = windows_of(world.cluster, NOW)
    assert window.nodes == LEAF_1
    assert (window.starts_at, window.ends_at) == (
        (NOW + 2 * HOUR).timestamp(),
        (NOW + 4 * HOUR).timestamp(),
    )
    assert (window.kind, window.crossing) == (WindowKind.MAINTENANCE, Crossing.NEVER)
    assert window.version == row.version
    assert not window.spare


def test_a_recurring_window_comes_expanded_up_to_the_horizon(world: World) -> None:
    add_window(world, rrule="FREQ=WEEKLY", time_zone="Europe/Berlin")
    found = windows_of(world.cluster, NOW, timedelta(days=22))
    assert len(found) == 4
    assert len({window.id for window in found}) == 4
    assert len(windows_of(world.cluster, NOW)) == 53
    later = windows_of(world.cluster, NOW + timedelta(days=8), timedelta(days=1))
    assert later == ()


def test_what_is_over_or_cancelled_keeps_nobody_off(world: World) -> None:
    row = add_window(world)
    add_window(world, cancelled_at=NOW)
    assert len(windows_of(world.cluster, NOW)) == 1
    assert windows_of(world.cluster, NOW + 4 * HOUR) == ()
    Occurrence.objects.create(
        window=row, starts_at=row.starts_at, ends_at=row.ends_at, state="over"
    )
    assert windows_of(world.cluster, NOW + 3 * HOUR) == ()


def test_nodes_are_those_that_the_selector_means_now(world: World) -> None:
    add_window(world, nodes={**leaf(), "labels": {"rack": "7"}})
    assert windows_of(world.cluster, NOW)[0].nodes == frozenset()
    rows.change_node(world, "gpu-00005", labels={"rack": "7"})
    rows.change_node(world, "gpu-00001", labels={"rack": "7"})
    assert windows_of(world.cluster, NOW)[0].nodes == {"gpu-00005"}


def test_names_and_domains_add_up_while_labels_and_flavor_cut_down(world: World) -> None:
    add_window(world, nodes={**leaf(), "names": ["gpu-00000"], "flavor": "h100"})
    assert windows_of(world.cluster, NOW)[0].nodes == {"gpu-00000", *LEAF_1}


def test_a_reservation_admits_by_the_planners_names(world: World) -> None:
    admits = {"tenants": ["vision"], "queues": ["research.train"], "jobs": ["job_1"]}
    add_window(world, kind="reserved", admits=admits)
    add_window(world, kind="reserved", nodes=leaf("leaf-00"))
    kept, spare = windows_of(world.cluster, NOW)
    assert kept.kind is WindowKind.RESERVED
    assert kept.admits_tenants == {"vision"}
    assert kept.admits_queues == {"research/train"}
    assert kept.admits_jobs == {"job_1"}
    assert (kept.spare, spare.spare) == (False, True)
