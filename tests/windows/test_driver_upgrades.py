"""Driver upgrades of the GPU operator: held off outside a window, let go node by node inside one."""

import pytest

from controlplane.common.models import Event
from scheduler.models import Node, Occurrence, WantedLabel
from scheduler.services.driver_upgrades import SKIP_LABEL, STATE_LABEL
from scheduler.services.occurrences import tick_windows
from scheduler.services.windows import sync_occurrences
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World
from tests.windows.builders import HOUR, add_window
from tests.windows.test_occurrences import Clock

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
START, END = NOW + 2 * HOUR, NOW + 4 * HOUR
ON_LEAF = [f"gpu-{number:05d}" for number in range(4, 8)]


@pytest.fixture
def world() -> World:
    made = rows.make_world(8, nodes_per_leaf=4)
    for number in range(8):
        operator_says(made, f"gpu-{number:05d}", "upgrade-required")
    return made


def operator_says(world: World, name: str, state: str) -> None:
    """The operator's label, and what the cluster process made of our wishes."""
    node = Node.objects.get(name=name)
    labels = {**node.labels, STATE_LABEL: state}
    wish = WantedLabel.objects.filter(node=node, key=SKIP_LABEL).first()
    if wish is not None:
        labels.pop(SKIP_LABEL, None)
        labels |= {SKIP_LABEL: wish.value} if wish.value is not None else {}
    rows.change_node(world, name, labels=labels)


def wishes() -> dict[str, str | None]:
    found = WantedLabel.objects.filter(key=SKIP_LABEL)
    return dict(found.values_list("node__name", "value"))


def test_upgrades_wait_for_the_window_and_go_node_by_node(world: World) -> None:
    sync_occurrences(add_window(world), NOW)
    tick_windows(world.cluster, NOW)
    assert wishes() == dict.fromkeys(ON_LEAF, "true")
    assert Event.objects.filter(kind="node.label_wanted").count() == 4
    clock = Clock(world)
    clock.until(START)
    assert Occurrence.objects.get().state == "open"
    for number, name in enumerate(ON_LEAF):
        clock.until(clock.now + HOUR / 6)
        freed = [node for node, value in wishes().items() if value is None]
        assert freed == ON_LEAF[: number + 1], "one at a time, in order"
        operator_says(world, name, "drain-required")
        tick_windows(world.cluster, clock.now)
        assert [n for n, value in wishes().items() if value is None] == freed
        operator_says(world, name, "upgrade-failed" if number == 1 else "upgrade-done")
    clock.until(END + HOUR / 60)
    each = Occurrence.objects.get()
    assert each.state == "checking"
    assert each.checks == {"gpu-00005": {"code": "driver_upgrade", "state": "upgrade-failed"}}
    operator_says(world, "gpu-00005", "upgrade-done")
    clock.until(END + HOUR / 30)
    assert Occurrence.objects.get().state == "over"


def test_what_was_not_reached_is_held_again_afterwards(world: World) -> None:
    sync_occurrences(add_window(world, rrule="FREQ=WEEKLY"), NOW)
    clock = Clock(world)
    clock.until(START + HOUR / 6)
    assert wishes()["gpu-00004"] is None
    clock.until(END + HOUR / 60)
    assert wishes() == dict.fromkeys(ON_LEAF, "true")


def test_nodes_that_no_window_covers_any_more_are_let_go(world: World) -> None:
    window = add_window(world)
    sync_occurrences(window, NOW)
    tick_windows(world.cluster, NOW)
    for name in ON_LEAF:
        operator_says(world, name, "upgrade-required")
    window.cancelled_at = NOW
    window.save()
    tick_windows(world.cluster, NOW)
    assert set(wishes().values()) == {None}
    for name in ON_LEAF:
        operator_says(world, name, "upgrade-required")
    tick_windows(world.cluster, NOW)
    assert wishes() == {}


def test_a_cluster_that_is_only_observed_is_left_alone(world: World) -> None:
    world.cluster.mode = "observe"
    world.cluster.save()
    sync_occurrences(add_window(world), NOW)
    tick_windows(world.cluster, NOW)
    assert wishes() == {}
