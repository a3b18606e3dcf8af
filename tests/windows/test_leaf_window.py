"""A window on a leaf, from the announcement to the nodes' return, on the real loop and cluster process over a
simulated cluster in virtual time; times are unshortened. The pods themselves say what was lost, not our rows."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from controlplane.common.models import Event
from queues.models import Attempt, Cluster
from scheduler.models import Cordon, Node, Occurrence
from scheduler.services.drains import DrainAsk, drain_nodes
from scheduler.simcluster.store.resources import NODES
from scheduler.simcluster.store.store import Change
from tenants.access import Actor
from tenants.models import PlatformRole
from tests import factories
from tests.chaos.cast import Routine, Worker
from tests.chaos.plot import Act, Fault, JobPlan, Plot, WindowPlan
from tests.chaos.run import Play, empty_database
from tests.chaos.virtual import START, LoopClock, VirtualLoop
from tests.e2e.witness import Sighting

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
HOUR = 3600.0
INTERVAL = 600.0
WRITING = 20.0
OPENS, CLOSES = 1500.0, 1500.0 + 2 * HOUR
LEAF = tuple(f"gpu-{number:05d}" for number in range(5, 10))
# The GPU operator wants to upgrade two of them; somebody has cordoned a third by kubectl, for reasons of their own.
UPGRADED, CORDONED = LEAF[:2], LEAF[4]
STATE_LABEL = "nvidia.com/gpu-driver-upgrade-state"


def gang(number: int, at: float, replicas: int, **fields: Any) -> JobPlan:
    """A job that saves every ten minutes and would run for a day."""
    sent: dict[str, Any] = {
        "name": f"gang-{number}", "tenant": "research", "queue": "train",
        "image": "registry.example/train:1", "gpus_per_replica": 8, "replicas": replicas,
        "cpu_per_replica": "8", "memory_per_replica": "64Gi", "grace_seconds": 10,
        "max_runtime_seconds": 86_400, "external_id": f"chaos-{number}",
        "checkpoint": {"interval_seconds": int(INTERVAL), "grace_seconds": int(WRITING)},
        "annotations": {"sim.muster.dev/run-seconds": "86400", "sim.muster.dev/log-lines": "1",
                        "sim.muster.dev/on-sigterm": "exit"},
    }  # fmt: skip
    return JobPlan(at, sent | fields, "succeeded")


# The first fills the other leaf; the others fill the leaf of the window, and save at different times.
JOBS = (gang(0, 1, 5), gang(1, 20, 2), gang(2, 250, 1), gang(3, 420, 1))
PLOT = Plot(
    seed=1,
    nodes=10,
    nodes_per_leaf=5,
    nominal=80,
    jobs=JOBS,
    acts=tuple(Act(CLOSES + 100, "cancel", number) for number in range(4)),
    faults=(),
)
WINDOW = WindowPlan(500, OPENS, CLOSES, LEAF, "checkpoint", "checkpointable")
UPGRADES = tuple(
    Fault(600, "driver_upgrade", CLOSES - 600, {"node": node, "step_seconds": 20})
    for node in UPGRADED
)


@dataclass(frozen=True, slots=True)
class Loss:
    """GPU seconds of gangs that had to leave: work since their last save, and machines idle until the start."""

    work: float
    idle: float

    @property
    def whole(self) -> float:
        """All that was lost."""
        return self.work + self.idle


_wait = Worker._wait


async def patient(worker: Worker, seconds: float) -> None:
    """Look each second where it matters, and otherwise when the log has told something, or now and then."""
    at = worker._stage.clock().timestamp() - START
    matters = at < 30 or OPENS - 15 < at < OPENS + 15 or CLOSES - 15 < at < CLOSES + 60
    rarely = 60 if OPENS < at < CLOSES - 75 else 5
    await _wait(worker, seconds if matters else rarely * seconds)


@dataclass(frozen=True, slots=True)
class Record:
    """What became of each pod, and the states of driver upgrades: (when, node, state)."""

    pods: list[Sighting]
    upgrades: list[tuple[float, str, str]]


def play(plot: Plot, *operators: Callable[[Play], Routine]) -> Record:
    """The run, judged like every chaos run."""
    empty_database()
    with (
        tempfile.TemporaryDirectory(prefix="window-") as folder,
        patch.dict(os.environ, {"DJANGO_ALLOW_ASYNC_UNSAFE": "true"}),
        patch("scheduler.reconcile.process.LONGEST_WAIT_SECONDS", 30.0),
        patch.object(Worker, "_wait", patient),
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        stage = Play(plot, LoopClock(runner.get_loop()), Path(folder), ())
        stage._routines = [operator(stage) for operator in operators]
        stage.workers = stage.workers[:1]
        record = Record(stage.witness.sightings, [])
        stage.sim.world.store.listen(NODES, lambda change: note_upgrade(record, stage, change))
        report = runner.run(stage.perform())
    assert not report.violations, report.told()
    return record


def note_upgrade(record: Record, stage: Play, change: Change) -> None:
    body = change.now.body
    state = (body["metadata"].get("labels") or {}).get(STATE_LABEL, "")
    name = body["metadata"]["name"]
    known = [told for _at, node, told in record.upgrades if node == name]
    if state and (not known or known[-1] != state):
        record.upgrades.append((stage.clock.now() - START, name, state))


def loss_of(sightings: Iterable[Sighting], until: float, at_once: float | None = None) -> Loss:
    """Of the first attempts on the leaf, by when their pods ran and were gone; at_once: had all been told then."""
    began: dict[str, float] = {}
    gone: dict[str, float] = {}
    gpus: dict[str, int] = {}
    for seen in sightings:
        if seen.node not in LEAF or seen.attempt != "1":
            continue
        gpus[seen.uid] = seen.gpus
        if seen.phase == "Running":
            began.setdefault(seen.uid, seen.at - START)
        if not seen.holds_gpus:
            gone.setdefault(seen.uid, seen.at - START)
    assert gone, "nobody left"
    if at_once is not None:
        gone = dict.fromkeys(gone, at_once)
    work = sum((gone[uid] - began[uid]) % INTERVAL * gpus[uid] for uid in gone)
    idle = sum(max(0.0, until - at) * gpus[uid] for uid, at in gone.items())
    return Loss(work, idle)


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(START + seconds, UTC)


def once(
    name: str, at: float, act: Callable[[Play, datetime], object]
) -> Callable[[Play], Routine]:
    """Somebody does something at `at`."""

    def made(stage: Play) -> Routine:
        done: list[bool] = []

        def look(now: datetime) -> None:
            if not done and now >= moment(at):
                done.append(True)
                act(stage, now)

        return Routine(name, 60.0, look)

    return made


def drain_at_once(_stage: Play, now: datetime) -> None:
    """As an operator does who knows nothing of checkpoints: everybody out."""
    ask = DrainAsk("new driver", "evict", None, "")
    operator = Actor(factories.make_user("ines", PlatformRole.OPERATOR))
    drain_nodes(operator, Cluster.objects.get(), LEAF, ask, now)


def cordon_by_kubectl(stage: Play, _now: datetime) -> None:
    closed = {"spec": {"unschedulable": True}}
    kind = "application/merge-patch+json"
    assert stage.direct.call("PATCH", f"/api/v1/nodes/{CORDONED}", closed, kind).status == 200


def test_a_leaf_is_empty_at_the_start_loses_less_than_at_once_and_is_back_by_itself() -> None:
    plot = replace(PLOT, windows=(WINDOW,), faults=UPGRADES)
    record = play(plot, once("kubectl", 480, cordon_by_kubectl))
    each: Any = Occurrence.objects.get()
    draining_at = each.draining_at.timestamp() - START
    with_checkpoints = loss_of(record.pods, OPENS)
    drained = loss_of(record.pods, OPENS, at_once=draining_at)
    print(f"GPU seconds lost until the start: {told(with_checkpoints)} by the window, "
          f"{told(drained)} by draining at once, {draining_at:.0f} s")  # fmt: skip
    assert each.empty_at <= moment(OPENS)
    assert each.opened_at - moment(OPENS) < timedelta(seconds=2)
    assert not [
        seen for seen in record.pods
        if seen.node in LEAF and seen.holds_gpus and OPENS <= seen.at - START < CLOSES
    ]  # fmt: skip
    ends = list(Attempt.objects.filter(number=1).order_by("pk").values_list("ended_by", flat=True))
    assert ends == ["cancelled", "maintenance", "maintenance", "maintenance"]
    upgraded_one_by_one(record)

    # Afterwards: open again but for the node that somebody else has cordoned; every gang whole and running as before.
    assert each.over_at - moment(CLOSES) < timedelta(seconds=90)
    assert not Cordon.objects.filter(source="window").exists()
    closed = Node.objects.filter(unschedulable=True).values_list("name", flat=True)
    assert list(closed) == [CORDONED]
    again = Attempt.objects.filter(number=2)
    assert again.count() == 3
    for attempt in again:
        assert attempt.started_at is not None
        assert attempt.started_at - moment(CLOSES) < timedelta(seconds=95)
        assert set(attempt.placements.values_list("node", flat=True)) <= set(LEAF) - {CORDONED}
    kinds = list(Event.objects.filter(kind__startswith="window.").values_list("kind", flat=True))
    assert [kind for kind in kinds if kind != "window.checked"] == [
        *("window.created", "window.draining", "window.empty"),
        *("window.open", "window.checking", "window.over"),
    ]

    assert with_checkpoints.whole < drained.whole
    assert with_checkpoints.work < drained.work / 4


def test_draining_at_once_loses_what_is_reckoned_above() -> None:
    at = 900.0
    acts = tuple(Act(at + 60, "cancel", number) for number in range(4))
    record = play(replace(PLOT, acts=acts), once("ines", at, drain_at_once))
    found, reckoned = loss_of(record.pods, OPENS), loss_of(record.pods, OPENS, at_once=at)
    print(f"GPU seconds lost by draining at once: {told(found)}, reckoned {told(reckoned)}")
    assert found.whole == pytest.approx(reckoned.whole, rel=0.05)
    assert found.work == pytest.approx(reckoned.work, rel=0.1)


def upgraded_one_by_one(record: Record) -> None:
    """Held off until the window is open, then one node after the other, all of it before the end."""
    steps: dict[str, list[tuple[float, str]]] = {
        name: [(at, state) for at, node, state in record.upgrades if node == name and at >= 600]
        for name in UPGRADED
    }
    for taken in steps.values():
        assert taken[0][1] == "upgrade-required"
        assert taken[1][0] >= OPENS
        assert taken[-1][1] == "upgrade-done"
        assert taken[-1][0] < CLOSES
    one, other = (steps[name] for name in UPGRADED)
    assert one[-1][0] <= other[1][0]
    print(f"driver upgrades wanted at {one[0][0]:.0f} s, begun at {one[1][0]:.0f} and "
          f"{other[1][0]:.0f} s, done at {one[-1][0]:.0f} and {other[-1][0]:.0f} s")  # fmt: skip


def told(loss: Loss) -> str:
    return f"{loss.whole:.0f} ({loss.work:.0f} of work thrown away)"
