"""Faults of the API server itself: slow, failing, hanging and cut calls; watches that die or lie.

The gate stands before and after every call. Which calls are hit is drawn from the fault's own
generator, so that it depends on the seed and on the order of matching calls only.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from scheduler.simcluster.api.access import verb_of
from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.api.request import Call
from scheduler.simcluster.api.verbs import Verbs
from scheduler.simcluster.api.watching import Watch
from scheduler.simcluster.world import World

WAYS = ("slow", "error", "timeout", "reset")
REASONS = {
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: etcdserver: request timed out"),
    503: ("ServiceUnavailable", "apiserver not ready"),
    504: ("Timeout", "Timeout: request did not complete within the allotted duration"),
}  # fmt: skip
SLOW_SECONDS, HANG_SECONDS = 1.0, 60.0


class CutConnection(Exception):  # noqa: N818 - an order to the server, not a failure
    """The connection is to be reset without an answer."""


@dataclass(slots=True)
class ApiFault:
    """Calls that go wrong, and how."""

    way: str
    share: float = 1.0
    """Of the calls that match, how many are hit."""
    wait_seconds: float | None = None
    """How long a slow (default 1 s) or hanging (default 60 s) call waits."""
    status: int = 500
    retry_after_seconds: int = 1
    after: bool = False
    """Whether the call takes effect first and only the answer is lost."""
    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    limit: int = 0
    """How many calls are hit at most; 0 for all."""
    hits: int = 0
    draw: Random = field(default_factory=Random)

    def takes(self, call: Call) -> bool:
        """Whether this call is hit."""
        if self.limit and self.hits >= self.limit:
            return False
        name = call.resource.plural + (f"/{call.subresource}" if call.subresource else "")
        if self.resources and name not in self.resources:
            return False
        if self.verbs and verb_of(call) not in self.verbs:
            return False
        if self.draw.random() >= self.share:
            return False
        self.hits += 1
        return True


class Gate:
    """All API faults that are on."""

    def __init__(self, world: World, verbs: Verbs) -> None:
        self._world, self._verbs = world, verbs
        self.faults: list[ApiFault] = []
        self.struck: Counter[str] = Counter()
        """By kind of fault: how many calls or watches were hit."""

    async def before(self, call: Call) -> list[ApiFault]:
        """Holds up or refuses a call; returns the faults that strike after it.

        Raises ApiError or CutConnection.
        """
        if not self.faults:
            return []
        later: list[ApiFault] = []
        for fault in [fault for fault in self.faults if fault.takes(call)]:
            if fault.after:
                later.append(fault)
            else:
                await self.strike(fault)
        return later

    async def strike(self, fault: ApiFault) -> None:
        """Does what a fault does to one call. Raises ApiError or CutConnection."""
        speed = self._world.clock.speed
        self.struck[f"api_{fault.way}"] += 1
        if fault.way == "slow":
            await asyncio.sleep((fault.wait_seconds or SLOW_SECONDS) / speed)
        elif fault.way == "reset":
            raise CutConnection
        elif fault.way == "timeout":
            await asyncio.sleep((fault.wait_seconds or HANG_SECONDS) / speed)
            raise ApiError(504, *REASONS[504])
        else:
            reason, message = REASONS.get(
                fault.status, ("InternalError", "Internal error occurred")
            )
            headers, details = {}, None
            if fault.status in (429, 503):
                headers = {"Retry-After": str(fault.retry_after_seconds)}
                details = {"retryAfterSeconds": fault.retry_after_seconds}
            raise ApiError(fault.status, reason, message, details, headers)

    # Watches.

    def drop_watches(self, resource: str = "") -> int:
        """Resets the connections of open watches (of one plural, or all)."""
        chosen = self._chosen(resource)
        self.struck["watch_drop"] += len(chosen)
        for watch in chosen:
            watch.cut(reset=True)
        return len(chosen)

    def silence_watches(self, resource: str = "", *, silent: bool = True) -> None:
        """Watches stay open but nothing comes any more; or they speak again."""
        chosen = self._chosen(resource)
        if silent:
            self.struck["watch_silent"] += len(chosen)
        for watch in chosen:
            watch.hush(silent=silent)

    def expire_watches(self, resource: str = "") -> int:
        """A 410 storm: history is dropped and every open watch ends with Expired."""
        self._world.store.compact()
        chosen = self._chosen(resource)
        self.struck["watch_expire"] += len(chosen)
        for watch in chosen:
            watch.fail_expired()
        return len(chosen)

    def _chosen(self, resource: str) -> list[Watch]:
        return [
            watch for watch in list(self._verbs.watches)
            if not resource or watch.call.resource.plural == resource
        ]  # fmt: skip
