"""Looks at some nodes at a time: what is well costs no row, what is not is judged as ever, by one hand at a time."""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest

from controlplane.common import log
from scheduler.health.findings import Finding, Grade, Source
from scheduler.health.readings import read_page
from scheduler.models import Alert, Gpu, HealthAction, HealthEvent, Node
from scheduler.scraping.closely import (
    AGAIN_AFTER_SECONDS,
    MOST_WATCHED,
    Closely,
    Heard,
    heard_since,
)
from scheduler.scraping.fetching import Scrapes
from scheduler.scraping.process import BATCH_NODES, MOST_BATCHES, HealthProcess, in_batches
from scheduler.services.health.quiet import ROWS_EVERY, SPREAD_SECONDS
from scheduler.services.health.scene import read_scene
from scheduler.services.node_signals import take_finding
from tests.factories import NOW
from tests.health.pages import page
from tests.health.scene import Scene, make_scene

NODES = 6


def look(
    scene: Scene, after: float = 15, *, only: Collection[int] = range(NODES), **changes: Any
) -> int:
    """Look at nodes so many seconds later; how many findings were new. changes: of GPU 3 of the first of them."""
    scene.seconds += after
    first = min(only)
    pages = {}
    for index in only:
        name = scene.name(index)
        changed = {3: changes} if changes and index == first else None
        pages[name] = read_page(page(name, changed, pod=scene.pods.get(name, "")))
    return len(scene.ticker.look(pages, scene.now))


@pytest.fixture
def scene(db: None) -> Scene:
    return make_scene(NODES)


def test_well_nodes_cost_one_query_until_their_rows_are_due(
    scene: Scene, django_assert_num_queries: Any
) -> None:
    look(scene)  # notes that they were judged
    with django_assert_num_queries(1):  # the rules in force
        look(scene)
    with django_assert_num_queries(3):  # and, every half minute, the two notes
        look(scene)
    seen = Gpu.objects.values_list("seen_at", flat=True)
    before = max(seen)
    look(scene, ROWS_EVERY.total_seconds() + SPREAD_SECONDS, utilisation=10)
    assert max(seen.all()) > before  # rows were read, and what had moved was written


def test_a_sign_on_a_quiet_node_acts_as_in_a_whole_tick(scene: Scene) -> None:
    attempt = scene.run()
    look(scene)
    assert look(scene, xid=79) == 1
    attempt.refresh_from_db()
    assert attempt.stop_cause == "node_failure"
    assert (scene.node(0).health, scene.node(0).cordon_wanted) == ("draining", True)
    assert HealthEvent.objects.get(kind="action").jobs[0]["how"] == "on_gpu"
    assert look(scene, xid=79) == 0
    assert HealthAction.objects.count() == 1


def test_a_gpu_that_goes_or_an_exporter_that_falls_silent_wakes_a_quiet_node(scene: Scene) -> None:
    scene.seconds += 15
    scene.ticker.look({scene.name(0): None}, scene.now)
    assert scene.watch(0).unknown_since == scene.now
    gone = read_page(page(scene.name(1), {5: None}))
    scene.ticker.look({scene.name(1): gone}, scene.now)
    assert scene.gpu(1, 5).unknown_since == scene.now
    scene.seconds += 61
    scene.ticker.look({scene.name(1): gone}, scene.now)
    assert scene.gpu(1, 5).state == "repairing"


def test_what_others_write_counts_once_the_log_tells_of_it(scene: Scene) -> None:
    look(scene)
    Node.objects.filter(name=scene.name(2)).update(
        labels={"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
    )
    look(scene)
    assert not scene.node(2).health_closed
    scene.ticker.disturb([scene.name(2)])
    look(scene)
    assert scene.node(2).health_closed


def test_conclude_settles_alerts_of_nodes_that_are_quiet_again(scene: Scene) -> None:
    names = [scene.name(index) for index in range(NODES)]
    hot: dict[str, Any] = {"temperature_c": 95}
    for _ in range(10):
        look(scene, **hot)
        scene.ticker.conclude(names, {}, scene.now)
    assert Alert.objects.get(kind="gpu_hot").state == "open"
    look(scene)
    scene.ticker.conclude(names, {}, scene.now)
    assert Alert.objects.get(kind="gpu_hot").state == "resolved"


def test_two_who_take_in_the_same_sign_act_once_and_share_one_budget(scene: Scene) -> None:
    """Both have read the rows before either acts: the cluster process and the health process, say."""
    first, second = (read_scene(scene.cluster) for _ in range(2))
    for read in (first, second):
        for index in range(3):
            finding = Finding(
                "kernel", Grade.UNHEALTHY, "XID 79", "kernel: 79", Source.KERNEL, scene.now, index=0, xid=79,
            )  # fmt: skip
            take_finding(read, read.nodes[scene.name(index)], finding, scene.now)
    assert HealthEvent.objects.filter(kind="action").count() == 2
    assert HealthAction.objects.filter(what="out").count() == 2  # the budget
    assert Alert.objects.get(kind="budget_exhausted").node == scene.name(2)


def test_batches_cover_all_nodes_and_one_answer_for_all_is_one_batch() -> None:
    names = [f"n{index}" for index in range(1000)]
    batches = in_batches(names, whole=False)
    assert [name for batch in batches for name in batch] == names
    assert len(batches) <= MOST_BATCHES
    assert in_batches(names, whole=True) == [names]
    assert in_batches(names[:BATCH_NODES], whole=False) == [names[:BATCH_NODES]]
    assert in_batches([], whole=False) == [[]]


def test_troubled_nodes_are_looked_at_again_and_again_and_others_once() -> None:
    closely = Closely()
    assert closely.pause_seconds(NOW) is None
    closely.watch(Heard(frozenset({"a", "b"}), frozenset({"a"})), NOW)
    assert closely.due(NOW, set()) == ["a", "b"]
    moments = []
    for tenth in range(1, 500):
        moment = NOW + timedelta(seconds=tenth / 10)
        moments += [tenth / 10 for _ in closely.due(moment, set())]
    assert moments == list(AGAIN_AFTER_SECONDS[1:])
    assert closely.pause_seconds(NOW) is None
    # One that is being read already waits; and there is a limit.
    closely.watch(Heard(frozenset({"a"})), NOW)
    assert closely.due(NOW, {"a"}) == []
    assert closely.due(NOW, set()) == ["a"]
    many = frozenset(f"n{index}" for index in range(2 * MOST_WATCHED))
    closely.watch(Heard(many, many), NOW)
    assert len(closely.due(NOW, set())) == MOST_WATCHED


def test_heard_since_tells_trouble_from_mere_change(scene: Scene) -> None:
    attempt = scene.run(first_node=3)
    Node.objects.filter(name=scene.name(1)).update(gpus_allocatable=7)
    before = log.latest_seq()
    with log.writing():
        for index in (0, 1):
            log.record(log.NewEvent("node.changed", NOW, cluster="demo", node=scene.name(index)))
    scene.fail_pod(attempt, 0)
    heard = heard_since(scene.cluster, before)
    assert heard.troubled == {scene.name(1), scene.name(3)}
    assert heard.nodes == {scene.name(0), scene.name(1), scene.name(3)}
    assert heard_since(scene.cluster, log.latest_seq()) == Heard()


class SlowSource:
    """Answers when it is told to; remembers what it was asked for."""

    answers_for_all = False

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.gate = asyncio.Event()

    async def read(self, nodes: Collection[str]) -> Scrapes:
        self.asked.append(sorted(nodes))
        if nodes:
            await self.gate.wait()
        return {}


def test_a_node_is_never_read_twice_at_once(scene: Scene) -> None:
    """Else a page that was read first, and judged last, would undo what the newer one has shown."""

    async def race() -> list[list[str]]:
        source = SlowSource()
        process = HealthProcess(scene.cluster, source)
        batch = asyncio.create_task(process._read_and_judge(["a", "b"]))
        await asyncio.sleep(0)
        close_look = asyncio.create_task(process._read_and_judge(["b", "c"], awaited=True))
        await asyncio.sleep(0)
        source.gate.set()
        await asyncio.gather(batch, close_look)
        await process._read_and_judge(["b"])
        return source.asked

    assert asyncio.run(race()) == [["a", "b"], ["c"], ["b"]]
