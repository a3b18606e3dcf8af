"""Every kind of fault by name: how it begins, how it ends, what it takes.

`Injector.begin` is what the control API and the seeded schedules call.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from scheduler.simcluster.clock import Timer, stamp
from scheduler.simcluster.faults.actions import Actions, Undo
from scheduler.simcluster.faults.gate import WAYS, ApiFault, Gate
from scheduler.simcluster.world import World

Json = dict[str, Any]
EXPIRE_EVERY_SECONDS = 2.0


class BadFaultError(ValueError):
    """A fault that cannot be: unknown kind or wrong parameters."""


@dataclass(slots=True)
class ActiveFault:
    """A fault that has begun."""

    id: int
    kind: str
    parameters: Json
    began: float
    ends: float | None = None
    undo: Undo = None
    timer: Timer | None = field(default=None, repr=False)

    def shown(self) -> Json:
        """As the control API shows it."""
        return {
            "id": self.id, "kind": self.kind, "parameters": self.parameters,
            "began": stamp(self.began), "ends": None if self.ends is None else stamp(self.ends),
        }  # fmt: skip


class Injector:
    """Begins and ends faults."""

    def __init__(self, world: World, actions: Actions, gate: Gate) -> None:
        self._world, self._gate = world, gate
        self._count = 0
        self.active: dict[int, ActiveFault] = {}
        names = (
            "node_not_ready", "node_silent", "node_gone", "node_reboot", "node_deleted",
            "clock_skew", "node_condition", "node_event", "node_added", "driver_upgrade",
            "gpu_xid", "gpu_ecc", "gpu_heat", "gpu_nvlink",
            "gpu_reset", "plugin_stopped", "plugin_missing", "plugin_restart", "exporter_down",
            "pull_fails", "pull_slow", "pod_oom", "pod_exit", "pod_hang", "pod_evicted",
        )  # fmt: skip
        self.kinds: dict[str, Callable[..., Undo]] = {
            name: getattr(actions, name) for name in names
        }
        for way in WAYS:
            self.kinds[f"api_{way}"] = self._api_kind(way)
        self.kinds |= {
            "watch_drop": self._watch_drop, "watch_silent": self._watch_silent,
            "watch_expire": self._watch_expire,
        }  # fmt: skip

    def described(self) -> list[Json]:
        """Kinds with parameters and meaning, for the panel and for people."""
        described = []
        for name, action in self.kinds.items():
            parameters = {
                item.name: None if item.default is inspect.Parameter.empty else item.default
                for item in inspect.signature(action).parameters.values()
            }
            meaning = (action.__doc__ or "").strip()
            described.append({"kind": name, "parameters": parameters, "meaning": meaning})
        return described

    def begin(self, kind: str, parameters: Json, seconds: float | None = None) -> ActiveFault:
        """Starts a fault, for `seconds` of the cluster's time or until it is ended.

        Raises BadFaultError, or NoSuchTarget when what it names is not there.
        """
        action = self.kinds.get(kind)
        if action is None:
            raise BadFaultError(f"unknown kind {kind!r}")
        try:
            inspect.signature(action).bind(**parameters)
        except TypeError as error:
            raise BadFaultError(f"{kind}: {error}") from None
        self._count += 1
        now = self._world.clock.now()
        fault = ActiveFault(self._count, kind, parameters, now)
        fault.undo = action(**parameters)
        if fault.undo is None:
            return fault
        self.active[fault.id] = fault
        if seconds is not None:
            fault.ends = now + seconds
            fault.timer = self._world.timers.after(seconds, lambda: self._expire(fault.id))
        return fault

    def end(self, fault_id: int) -> bool:
        """Ends a fault; False when it is not active."""
        fault = self.active.pop(fault_id, None)
        if fault is None:
            return False
        if fault.timer is not None:
            fault.timer.cancel()
        if fault.undo is not None:
            fault.undo()
        return True

    def _expire(self, fault_id: int) -> None:
        self.end(fault_id)

    def end_all(self) -> int:
        """Ends every active fault; returns how many there were."""
        ids = list(self.active)
        for fault_id in ids:
            self.end(fault_id)
        return len(ids)

    # The API server.

    def _api_kind(self, way: str) -> Callable[..., Undo]:
        def begin(  # noqa: PLR0913 - one parameter per field of a fault
            share: float = 1.0, wait_seconds: float | None = None, status: int = 500,
            retry_after_seconds: int = 1, *, after: bool = False, verbs: tuple[str, ...] = (),
            resources: tuple[str, ...] = (), limit: int = 0,
        ) -> Undo:  # fmt: skip
            fault = ApiFault(
                way, share, wait_seconds, status, retry_after_seconds, after, tuple(verbs),
                tuple(resources), limit, draw=self._generator(),
            )  # fmt: skip
            self._gate.faults.append(fault)
            return lambda: self._gate.faults.remove(fault)

        begin.__doc__ = f"API calls are hit: {way}. `after`: they take effect, the answer is lost."
        return begin

    def _generator(self) -> Random:
        return Random(f"api-fault-{self._world.seed}-{self._count}")

    def _watch_drop(self, resource: str = "") -> Undo:
        """Open watches are reset (of one plural, or all)."""
        self._gate.drop_watches(resource)
        return None

    def _watch_silent(self, resource: str = "") -> Undo:
        """Open watches stay open, but nothing comes."""
        self._gate.silence_watches(resource)
        return lambda: self._gate.silence_watches(resource, silent=False)

    def _watch_expire(self, resource: str = "") -> Undo:
        """A 410 storm: while it lasts, every two seconds history goes and watches expire."""
        state = {"on": True}

        def again() -> None:
            if state["on"]:
                self._gate.expire_watches(resource)
                self._world.timers.after(EXPIRE_EVERY_SECONDS, again)

        def undo() -> None:
            state["on"] = False

        again()
        return undo
