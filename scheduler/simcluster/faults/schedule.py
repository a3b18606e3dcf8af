"""Seeded schedules of faults: the same seed and cluster give the same faults at the same times."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from scheduler.simcluster.clock import Timer
from scheduler.simcluster.faults.actions import NoSuchTarget
from scheduler.simcluster.faults.catalogue import Injector
from scheduler.simcluster.nodes.machine import Machine
from scheduler.simcluster.world import World

Json = dict[str, Any]
WEIGHTS = {
    "gpu_xid": 6, "gpu_ecc": 3, "gpu_heat": 3, "gpu_nvlink": 2, "gpu_reset": 2,
    "node_not_ready": 3, "node_silent": 3, "node_gone": 2, "node_reboot": 2, "node_deleted": 1,
    "clock_skew": 1, "plugin_stopped": 2, "plugin_missing": 1, "plugin_restart": 2,
    "exporter_down": 3, "pull_fails": 2, "pull_slow": 2,
    "api_slow": 2, "api_error": 3, "api_reset": 1, "watch_drop": 3, "watch_silent": 1,
    "watch_expire": 2,
}  # fmt: skip
_XIDS = (13, 31, 43, 48, 63, 64, 74, 79, 79, 92, 94, 95, 119, 120, 140)


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault at a time: seconds from the start of the schedule, and how long it lasts."""

    at_seconds: float
    kind: str
    parameters: Json
    seconds: float

    def shown(self) -> Json:
        """As the control API shows it."""
        return {
            "at_seconds": round(self.at_seconds, 3), "kind": self.kind,
            "parameters": self.parameters, "seconds": round(self.seconds, 3),
        }  # fmt: skip


def plan(
    seed: int, machines: list[Machine], *, length_seconds: float, mean_gap_seconds: float,
    mean_fault_seconds: float = 90.0, kinds: tuple[str, ...] = (),
) -> list[Planned]:  # fmt: skip
    """Draws a schedule. Raises ValueError for an unknown kind or a gap that is not above 0."""
    unknown = [kind for kind in kinds if kind not in WEIGHTS]
    if unknown:
        raise ValueError(f"unknown kind {unknown[0]!r}")
    if mean_gap_seconds <= 0:
        raise ValueError("mean_gap_seconds must be above 0")
    draw = Random(f"faults-{seed}")
    chosen = kinds or tuple(WEIGHTS)
    weights = [WEIGHTS[kind] for kind in chosen]
    planned: list[Planned] = []
    at = draw.expovariate(1 / mean_gap_seconds)
    while at < length_seconds:
        kind = draw.choices(chosen, weights)[0]
        seconds = min(length_seconds, draw.expovariate(1 / mean_fault_seconds))
        planned.append(Planned(at, kind, _parameters(kind, machines, draw), seconds))
        at += draw.expovariate(1 / mean_gap_seconds)
    return planned


def _parameters(kind: str, machines: list[Machine], draw: Random) -> Json:
    if kind.startswith("api_"):
        found: Json = {"share": round(draw.uniform(0.05, 0.3), 3)}
        if kind == "api_error":
            found["status"] = draw.choice((429, 500, 503))
        if kind == "api_slow":
            found["wait_seconds"] = round(draw.uniform(0.1, 2.0), 2)
        if kind == "api_reset":
            found["after"] = draw.random() < 0.5
        return found
    if kind.startswith("watch_"):
        return {"resource": draw.choice(("", "pods", "nodes"))}
    with_gpus = [machine for machine in machines if machine.gpus]
    machine = draw.choice(with_gpus if kind.startswith("gpu_") and with_gpus else machines)
    found = {"node": machine.name}
    if kind.startswith("gpu_") and machine.gpus:
        found["gpu"] = draw.randrange(len(machine.gpus))
    if kind == "gpu_xid":
        found["code"] = draw.choice(_XIDS)
    if kind == "clock_skew":
        found["skew_seconds"] = draw.choice((-300.0, 45.0, 600.0))
    return found


def install(world: World, injector: Injector, planned: list[Planned]) -> list[Timer]:
    """Sets a timer for every fault of a schedule, from now; cancel them to stop it."""
    return [world.timers.after(item.at_seconds, _beginner(injector, item)) for item in planned]


def _beginner(injector: Injector, item: Planned) -> Callable[[], None]:
    def begin() -> None:
        try:
            injector.begin(item.kind, item.parameters, item.seconds)
        except NoSuchTarget:
            return  # the node has gone in the meantime

    return begin
