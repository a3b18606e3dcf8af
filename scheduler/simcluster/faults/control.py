"""The control API under /_sim/: the state of the simulation, its clock, and faults on command.

Not part of Kubernetes: for tests, for the demo's panel, and for people. docs/simcluster.md lists it.
"""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from scheduler.simcluster.api.access import Access
from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.api.request import User
from scheduler.simcluster.api.verbs import Verbs
from scheduler.simcluster.clock import SteppedClock, Timer, stamp
from scheduler.simcluster.faults.actions import NoSuchTarget
from scheduler.simcluster.faults.catalogue import BadFaultError, Injector
from scheduler.simcluster.faults.schedule import install, plan
from scheduler.simcluster.kubelet.fleet import Fleet
from scheduler.simcluster.kubelet.node import Kubelet
from scheduler.simcluster.nodes.labels import domains
from scheduler.simcluster.world import World

Json = dict[str, Any]
Answer = Json | tuple[int, Json]


class ControlError(Exception):
    """A control call that makes no sense: HTTP status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ControlApi:
    """Answers /_sim/… requests."""

    def __init__(
        self, world: World, fleet: Fleet, verbs: Verbs, access: Access, injector: Injector
    ) -> None:
        self._world, self._fleet, self._verbs, self._access = world, fleet, verbs, access
        self._injector = injector
        self._planned: list[Timer] = []
        self._routes: dict[tuple[str, str], Callable[[Json, list[str]], Answer]] = {
            ("GET", "state"): self._state,
            ("GET", "nodes"): self._nodes,
            ("GET", "clock"): self._clock,
            ("POST", "clock"): self._advance,
            ("POST", "compact"): self._compact,
            ("POST", "tokens"): self._token,
            ("GET", "refused"): self._refused,
            ("GET", "faults"): self._faults,
            ("POST", "faults"): self._begin,
            ("DELETE", "faults"): self._end,
            ("GET", "kinds"): self._kinds,
            ("POST", "schedules"): self._schedule,
            ("DELETE", "schedules"): self._unschedule,
        }

    async def handle(self, request: web.BaseRequest, parts: list[str]) -> web.StreamResponse:
        """One control request."""
        try:
            if parts[:1] == ["exporter"] and request.method == "GET":
                return self._exporter(parts[1:])
            if parts[:1] == ["exporters"] and request.method == "GET":
                return web.json_response(self._targets(request.headers.get("Host", "")))
            raw = await request.read()
            body = json.loads(raw) if raw else {}
            if not isinstance(body, dict):
                raise ControlError(400, "the body must be an object")
            route = self._routes.get((request.method, parts[0] if parts else "state"))
            if route is None:
                raise ControlError(
                    404, f"no such control: {request.method} /_sim/{'/'.join(parts)}"
                )
            answer = route(body, parts[1:])
            self._world.timers.settle()
        except (ControlError, NoSuchTarget) as error:
            return web.json_response({"error": str(error)}, status=getattr(error, "status", 404))
        except (BadFaultError, ValueError, KeyError, TypeError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        status, shown = answer if isinstance(answer, tuple) else (200, answer)
        return web.json_response(shown, status=status)

    def _exporter(self, parts: list[str]) -> web.Response:
        try:
            text = self._verbs.metrics.page(parts[0] if parts else "")
        except ApiError as error:
            return web.json_response(error.status(), status=error.code)
        return web.Response(text=text, content_type="text/plain")

    def _targets(self, host: str) -> list[Json]:
        """The exporters of all nodes with GPUs, for Prometheus' http_sd."""
        return [
            {
                "targets": [host],
                "labels": {
                    "__metrics_path__": f"/_sim/exporter/{name}/metrics", "instance": f"{name}:9400",
                    "node": name,
                },
            }
            for name, kubelet in self._fleet.kubelets.items()
            if kubelet.machine.gpus
        ]  # fmt: skip

    def _state(self, body: Json, rest: list[str]) -> Answer:
        counts = {
            collection.resource.qualified: len(collection.objects)
            for collection in self._world.store.collections()
        }
        return {
            "seed": self._world.seed, "profile": self._fleet.profile.name,
            "now": stamp(self._world.clock.now()), "resourceVersion": self._world.store.version,
            "objects": counts, "watches": len(self._verbs.watches),
            "faults": [fault.shown() for fault in self._injector.active.values()],
        }  # fmt: skip

    def _nodes(self, body: Json, rest: list[str]) -> Answer:
        if rest:
            kubelet = self._fleet.kubelets.get(rest[0])
            if kubelet is None:
                raise ControlError(404, f"no simulated node {rest[0]!r}")
            return _node_shown(kubelet)
        return {"nodes": [_node_shown(kubelet) for kubelet in self._fleet.kubelets.values()]}

    def _clock(self, body: Json, rest: list[str]) -> Answer:
        clock = self._world.clock
        return {
            "now": clock.now(), "text": stamp(clock.now()), "speed": clock.speed,
            "stepped": isinstance(clock, SteppedClock),
        }  # fmt: skip

    def _advance(self, body: Json, rest: list[str]) -> Answer:
        if not isinstance(self._world.clock, SteppedClock):
            raise ControlError(409, "the clock runs by itself")
        seconds = float(body["seconds"])
        if seconds < 0:
            raise ControlError(400, "seconds must not be negative")
        self._world.timers.advance(seconds)
        return self._clock(body, rest)

    def _compact(self, body: Json, rest: list[str]) -> Answer:
        self._world.store.compact(lists_too=bool(body.get("lists")))
        return {"resourceVersion": self._world.store.version}

    def _token(self, body: Json, rest: list[str]) -> Answer:
        user = User(str(body["user"]), tuple(body.get("groups") or ("system:authenticated",)))
        self._access.tokens[str(body["token"])] = user
        return 201, {"user": user.name, "groups": list(user.groups)}

    def _refused(self, body: Json, rest: list[str]) -> Answer:
        return {"refused": dict(self._access.refused)}

    def _faults(self, body: Json, rest: list[str]) -> Answer:
        return {"faults": [fault.shown() for fault in self._injector.active.values()]}

    def _kinds(self, body: Json, rest: list[str]) -> Answer:
        return {"kinds": self._injector.described()}

    def _begin(self, body: Json, rest: list[str]) -> Answer:
        parameters = {key: value for key, value in body.items() if key not in ("kind", "seconds")}
        seconds = body.get("seconds")
        fault = self._injector.begin(
            str(body["kind"]), parameters, None if seconds is None else float(seconds)
        )
        return 201, fault.shown()

    def _end(self, body: Json, rest: list[str]) -> Answer:
        if not rest:
            return {"ended": self._injector.end_all()}
        if not self._injector.end(int(rest[0])):
            raise ControlError(404, f"fault {rest[0]} is not active")
        return {"ended": 1}

    def _schedule(self, body: Json, rest: list[str]) -> Answer:
        machines = [kubelet.machine for kubelet in self._fleet.kubelets.values()]
        planned = plan(
            int(body["seed"]), machines, length_seconds=float(body.get("length_seconds", 1800)),
            mean_gap_seconds=float(body.get("mean_gap_seconds", 60)),
            mean_fault_seconds=float(body.get("mean_fault_seconds", 90)),
            kinds=tuple(body.get("kinds") or ()),
        )  # fmt: skip
        self._planned += install(self._world, self._injector, planned)
        return 201, {"planned": [item.shown() for item in planned]}

    def _unschedule(self, body: Json, rest: list[str]) -> Answer:
        """Begins no more planned faults; active ones go on."""
        left = [timer for timer in self._planned if timer.action is not None]
        for timer in left:
            timer.cancel()
        self._planned.clear()
        return {"cancelled": len(left)}


def _node_shown(kubelet: Kubelet) -> Json:
    machine = kubelet.machine
    leaf, spine = domains(machine.group, machine.number)
    holders = {
        device.gpu: list(run.key)
        for uid, devices in machine.held.items()
        for device in devices
        if (run := kubelet.runs.get(uid)) is not None
    }
    return {
        "name": machine.name, "leaf": leaf, "spine": spine, "powered": machine.powered,
        "kubelet": machine.kubelet_up, "ready_problem": machine.ready_problem,
        "plugin": machine.plugin, "exporter": machine.exporter_up, "pods": len(machine.held),
        "gpus": [
            {
                "index": gpu.index, "uuid": gpu.uuid, "healthy": gpu.healthy, "lost": gpu.lost,
                "xid": gpu.xid, "hot": gpu.hot, "pod": holders.get(gpu.index),
            }
            for gpu in machine.gpus
        ],
    }  # fmt: skip
