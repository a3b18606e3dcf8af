"""`…/pods/NAME/log`: the containers' output, whole or followed."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from itertools import islice

from scheduler.simcluster.api.errors import ApiError, bad_request
from scheduler.simcluster.api.reading import Reader
from scheduler.simcluster.api.request import Call
from scheduler.simcluster.clock import moment_of, nano_stamp
from scheduler.simcluster.kubelet.containers import Container
from scheduler.simcluster.kubelet.fleet import Fleet
from scheduler.simcluster.kubelet.output import Output
from scheduler.simcluster.world import World

Line = tuple[float, str]
IDLE_CHECK_SECONDS = 0.5


class LogReader:
    """One log request. `lines()` yields bytes."""

    def __init__(self, call: Call, world: World, fleet: Fleet) -> None:
        self._call, self._world = call, world
        query = call.query
        self.follow = query.get("follow") in ("true", "1")
        self._stamps = query.get("timestamps") in ("true", "1")
        self._tail = _number(query.get("tailLines"))
        self._limit = _number(query.get("limitBytes"))
        self._since = self._since_moment()
        self._container, self.empty = self._find(fleet)
        self._sent = 0

    def _since_moment(self) -> float:
        query = self._call.query
        if query.get("sinceSeconds"):
            return self._world.clock.now() - float(query["sinceSeconds"])
        if query.get("sinceTime"):
            try:
                return moment_of(query["sinceTime"])
            except ValueError:
                raise bad_request(f"invalid sinceTime {query['sinceTime']!r}") from None
        return -math.inf

    def _find(self, fleet: Fleet) -> tuple[Container | None, bool]:
        call = self._call
        stored = Reader(self._world.store).get(
            Call("GET", call.resource, call.namespace, call.name)
        )
        body = stored.body
        node = body["spec"].get("nodeName")
        names = [container["name"] for container in body["spec"]["containers"]]
        name = call.query.get("container") or ""
        if not name:
            if len(names) > 1:
                raise bad_request(
                    f"a container name must be specified for pod {call.name}, choose one of: "
                    f"[{' '.join(names)}]"
                )
            name = names[0]
        elif name not in names:
            raise bad_request(f"container {name} is not valid for pod {call.name}")
        if not node:
            return None, True
        kubelet = fleet.kubelets.get(node)
        if kubelet is None or not kubelet.machine.reachable:
            raise _unreachable(node, call, name, kubelet.machine.address if kubelet else "")
        run = kubelet.find(stored.key)
        if run is None:
            raise bad_request(f'container "{name}" in pod "{call.name}" is not available')
        return next(item for item in run.containers if item.name == name), False

    def _output(self) -> Output:
        container = self._container
        if container is None:
            raise bad_request("no container")
        previous = self._call.query.get("previous") in ("true", "1")
        if previous:
            if container.previous_output is None:
                raise bad_request(
                    f'previous terminated container "{container.name}" in pod '
                    f'"{self._call.name}" not found'
                )
            return container.previous_output
        if container.output is None:
            waiting = container.state.get("waiting") or {}
            reason = waiting.get("reason", "ContainerCreating")
            text = f'container "{container.name}" in pod "{self._call.name}" is '
            if reason == "ContainerCreating":
                raise bad_request(f"{text}waiting to start: {reason}")
            raise bad_request(f"{text}waiting to start: {waiting.get('message') or reason}")
        return container.output

    def check(self) -> None:
        """Raises ApiError 400 when there is no log yet."""
        self._output()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Bytes of the log; with `follow` until the container ends."""
        output = self._output()
        now = self._world.clock.now()
        planned, extras = output.planned_until(now), _extras_until(output, now)
        first = self._render(self._present(output, now))
        if first:
            yield first
        while self.follow and not self._full():
            if self._over(output, planned, extras):
                return
            await self._pause(output, planned, extras)
            now = self._world.clock.now()
            fresh = list(output.between(planned, now))
            fresh += output.extra[extras : _extras_until(output, now)]
            planned, extras = max(planned, output.planned_until(now)), _extras_until(output, now)
            chunk = self._render(sorted(fresh))
            if chunk:
                yield chunk

    def _present(self, output: Output, now: float) -> Iterator[Line]:
        count = output.planned_until(now)
        start = 0
        if self._tail is not None:
            start = max(0, count - self._tail)
        lines = list(output.between(start, now))
        lines = sorted([*lines, *(line for line in output.extra if line[0] <= now)])
        lines = [line for line in lines if line[0] >= self._since]
        if self._tail is not None:
            return iter(deque(lines, maxlen=self._tail))
        return islice(iter(lines), None)

    def _render(self, lines: Iterator[Line] | list[Line]) -> bytes:
        parts = []
        for moment, text in lines:
            shown = f"{nano_stamp(moment)} {text}\n" if self._stamps else f"{text}\n"
            parts.append(shown.encode())
        chunk = b"".join(parts)
        if self._limit is not None:
            chunk = chunk[: max(0, self._limit - self._sent)]
        self._sent += len(chunk)
        return chunk

    def _full(self) -> bool:
        return self._limit is not None and self._sent >= self._limit

    def _over(self, output: Output, planned: int, extras: int) -> bool:
        container = self._container
        live = container is not None and container.output is output and container.running
        if live:
            return False
        now = self._world.clock.now()
        return output.planned_until(now) <= planned and len(output.extra) <= extras

    async def _pause(self, output: Output, planned: int, extras: int) -> None:
        """Waits for the next line, or a moment to see whether the container has ended."""
        clock = self._world.clock
        due = output.next_after(planned)
        if extras < len(output.extra):
            due = min(due, output.extra[extras][0])
        wait = (due - clock.now()) / clock.speed
        await asyncio.sleep(min(max(wait, 0.005), IDLE_CHECK_SECONDS))


def _extras_until(output: Output, moment: float) -> int:
    return sum(1 for line in output.extra if line[0] <= moment)


def _number(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if not text.isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _unreachable(node: str, call: Call, container: str, address: str) -> ApiError:
    place = f"{address or node}:10250/containerLogs/{call.namespace}/{call.name}/{container}"
    return ApiError(
        500, "InternalError",
        f'Get "https://{place}": dial tcp {address or node}:10250: connect: no route to host',
        {"causes": [{"message": f'Get "https://{place}": dial tcp: no route to host'}]},
    )  # fmt: skip
