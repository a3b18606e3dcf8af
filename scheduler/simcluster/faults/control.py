"""The control API under /_sim/: the state of the simulation, its clock, and faults on command.

Not part of Kubernetes: for tests, for the demo's panel, and for people. docs/simcluster.md lists it.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from scheduler.simcluster.api.access import Access
from scheduler.simcluster.api.request import User
from scheduler.simcluster.api.verbs import Verbs
from scheduler.simcluster.clock import SteppedClock, stamp
from scheduler.simcluster.kubelet.fleet import Fleet
from scheduler.simcluster.nodes.labels import domains
from scheduler.simcluster.world import World

Json = dict[str, Any]


class ControlError(Exception):
    """A control call that makes no sense: HTTP status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ControlApi:
    """Answers /_sim/… requests."""

    def __init__(self, world: World, fleet: Fleet, verbs: Verbs, access: Access) -> None:
        self._world, self._fleet, self._verbs, self._access = world, fleet, verbs, access
        self._routes: dict[tuple[str, str], Callable[[Json, list[str]], Awaitable[Json]]] = {
            ("GET", "state"): self._state,
            ("GET", "nodes"): self._nodes,
            ("GET", "clock"): self._clock,
            ("POST", "clock"): self._advance,
            ("POST", "compact"): self._compact,
            ("POST", "tokens"): self._token,
        }

    async def handle(self, request: web.BaseRequest, parts: list[str]) -> web.StreamResponse:
        """One control request."""
        try:
            raw = await request.read()
            body = json.loads(raw) if raw else {}
            if not isinstance(body, dict):
                raise ControlError(400, "the body must be an object")
            route = self._routes.get((request.method, parts[0] if parts else "state"))
            if route is None:
                raise ControlError(
                    404, f"no such control: {request.method} /_sim/{'/'.join(parts)}"
                )
            answer = await route(body, parts[1:])
            self._world.timers.settle()
            return web.json_response(answer)
        except ControlError as error:
            return web.json_response({"error": str(error)}, status=error.status)
        except (ValueError, KeyError, TypeError) as error:
            return web.json_response({"error": f"bad request: {error!r}"}, status=400)

    async def _state(self, body: Json, rest: list[str]) -> Json:
        counts = {
            collection.resource.qualified: len(collection.objects)
            for collection in self._world.store.collections()
        }
        return {
            "seed": self._world.seed, "profile": self._fleet.profile.name,
            "now": stamp(self._world.clock.now()), "resourceVersion": self._world.store.version,
            "objects": counts, "watches": len(self._verbs.watches),
        }  # fmt: skip

    async def _nodes(self, body: Json, rest: list[str]) -> Json:
        shown = []
        for name, kubelet in self._fleet.kubelets.items():
            machine = kubelet.machine
            leaf, spine = domains(machine.group, machine.number)
            shown.append(
                {
                    "name": name, "leaf": leaf, "spine": spine, "powered": machine.powered,
                    "kubelet": machine.kubelet_up, "plugin": machine.plugin,
                    "exporter": machine.exporter_up, "pods": len(machine.held),
                    "gpus": [
                        {"index": gpu.index, "uuid": gpu.uuid, "healthy": gpu.healthy, "xid": gpu.xid}
                        for gpu in machine.gpus
                    ],
                }
            )  # fmt: skip
        return {"nodes": shown}

    async def _clock(self, body: Json, rest: list[str]) -> Json:
        clock = self._world.clock
        return {
            "now": clock.now(), "text": stamp(clock.now()), "speed": clock.speed,
            "stepped": isinstance(clock, SteppedClock),
        }  # fmt: skip

    async def _advance(self, body: Json, rest: list[str]) -> Json:
        if not isinstance(self._world.clock, SteppedClock):
            raise ControlError(409, "the clock runs by itself")
        seconds = float(body["seconds"])
        if seconds < 0:
            raise ControlError(400, "seconds must not be negative")
        self._world.timers.advance(seconds)
        return await self._clock(body, rest)

    async def _compact(self, body: Json, rest: list[str]) -> Json:
        self._world.store.compact(lists_too=bool(body.get("lists")))
        return {"resourceVersion": self._world.store.version}

    async def _token(self, body: Json, rest: list[str]) -> Json:
        user = User(body["user"], tuple(body.get("groups") or ("system:authenticated",)))
        self._access.tokens[body["token"]] = user
        return {"user": user.name}
