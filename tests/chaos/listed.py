"""The faults that issue trackers of clusters are full of, each by its name, and a run that meets them one by one. Pure.

What random plots do by chance is done here for certain: `Report.struck` says under `marks` whether it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.chaos.plot import BUSY, Fault, JobPlan, Plot

SCENE_SECONDS = 45.0
"""From one fault to the next: time for a gang to start, to be struck, to start again and to end."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Faults by seconds from the moment before the scene's gangs are submitted, and how a report names them."""

    faults: tuple[Fault, ...]
    marks: tuple[str, ...]


def _killed(step: str, nth: int = 1) -> Listed:
    return Listed((Fault(0.0, "crash", 15.0, {"step": step, "nth": nth}),), (step,))


def _api(kind: str, **parameters: Any) -> Listed:
    return Listed((Fault(0.0, kind, 30.0, parameters),), (kind,))


LISTED: dict[str, Listed] = {
    "killed while it plans": _killed("worker.plan"),
    "killed before it commits": _killed("worker.commit.before"),
    "killed after it has committed": _killed("worker.commit.after"),
    "killed before a pod is created": _killed("cluster.create.before", 2),
    "killed after a pod was created": _killed("cluster.create.after", 2),
    "killed before a pod is bound": _killed("cluster.bind.before", 2),
    "killed after a pod was bound": _killed("cluster.bind.after", 2),
    "killed before it looks": _killed("cluster.observe.before", 2),
    "killed after it has looked": _killed("cluster.observe.after", 2),
    "one call in ten fails": Listed(
        (
            Fault(0.0, "api_error", 30.0, {"share": 0.1, "status": 500}),
            Fault(0.0, "api_error", 30.0, {"share": 0.1, "status": 504, "after": True}),
        ),
        ("api_error",),
    ),
    "calls time out": _api("api_timeout", share=0.2),
    "watches are dropped": Listed(
        tuple(Fault(at, "watch_drop", 1.0, {"resource": ""}) for at in (1.0, 6.0, 11.0)),
        ("watch_drop",),
    ),
    "a storm of 410": _api("watch_expire", resource=""),
    "a leader stands still and comes back with an old token": Listed(
        (Fault(0.0, "crash", 30.0, {"step": "worker.pause", "nth": 1}),), ("worker.pause",)
    ),
    "two cluster processes at once": Listed(
        (Fault(0.0, "second_cluster_process", 30.0, {}),), ("second_cluster_process",)
    ),
    "connections to the database are cut": Listed(
        (
            Fault(0.0, "database_cut", 10.0, {"nth": 20}),
            Fault(4.0, "database_cut", 10.0, {"nth": 20}),
            Fault(12.0, "commit_lost", 10.0, {"nth": 1}),  # when the gangs' ends are written
            Fault(22.0, "database_away", 10.0, {}),
        ),
        ("database_cut", "commit_lost", "database_away"),
    ),
    "the node under a running gang is deleted": Listed(
        (Fault(8.0, "node_deleted", 20.0, {"node": BUSY}),), ("node_deleted",)
    ),
    "a pod is deleted by hand": Listed(
        (
            Fault(6.0, "pod_deleted", 1.0, {"nth": 1, "grace_seconds": 0}),
            Fault(8.0, "pod_deleted", 1.0, {"nth": 0, "grace_seconds": 30}),
        ),
        ("pod_deleted",),
    ),
}
"""Redis is away in every run, from its beginning to its end (`tests.chaos.seams`)."""


def tour(names: Sequence[str]) -> Plot:
    """A run in which these faults come one after the other, each upon gangs that have just been submitted."""
    jobs: list[JobPlan] = []
    faults: list[Fault] = []
    for scene, name in enumerate(names):
        at = 2.0 + scene * SCENE_SECONDS
        faults += [replace(fault, at=at + fault.at) for fault in LISTED[name].faults]
        jobs += [_gang(len(jobs), at + 0.5, 3, 8), _gang(len(jobs) + 1, at + 1.5, 2, 4)]
    return Plot(
        seed=len(names), nodes=6, nodes_per_leaf=2, nominal=24, jobs=tuple(jobs), acts=(),
        faults=tuple(faults),
    )  # fmt: skip


def _gang(number: int, at: float, replicas: int, gpus: int) -> JobPlan:
    fields: dict[str, Any] = {
        "name": f"job-{number}", "tenant": ("research", "vision")[number % 2], "queue": "train",
        "image": "registry.example/train:1", "gpus_per_replica": gpus, "replicas": replicas,
        "cpu_per_replica": "8", "memory_per_replica": "64Gi", "max_runtime_seconds": 900,
        "grace_seconds": 5, "preemptible": True, "external_id": f"chaos-{number}",
        "annotations": {"sim.muster.dev/run-seconds": "12", "sim.muster.dev/log-lines": "1"},
    }  # fmt: skip
    return JobPlan(at, fields, "succeeded")
