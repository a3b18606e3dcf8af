"""Requests that wait for an event and hold nothing meanwhile: `?wait=30`.

A REST framework view answers at once, and says with its response what it would wait for:

    class Events(APIView):
        def get(self, request):
            ...
            return waits(Response(page), after_seq, lambda heard: heard.tenant == tenant)

`LongPoll`, around Django, keeps that answer back, waits on the live hub, and asks Django again: every look is a
short request of its own, and between looks there is neither a thread nor a database connection. Without it
(Django's test client) the view's first answer is the answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _
from rest_framework.response import Response

from controlplane.common.errors import InvalidError
from controlplane.common.live import Heard, hub
from controlplane.common.pagination import query_error

MOST_SECONDS = 60
# Where the hub cannot tell what was missed, the view looks again at this pace.
PACE_SECONDS = 0.2
# In the ASGI scope: where RequestMiddleware leaves what a response waits for, and how often Django was asked.
WAITS_KEY = "muster.waits"
LOOKS_KEY = "muster.looks"

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Wait:
    """What a response waits for: the first event after `after_seq` that `predicate` accepts.

    after_seq must have been read before the rows that the response shows. The predicate runs in the feed's
    thread and must not touch the database.
    """

    after_seq: int
    predicate: Callable[[Heard], bool]


def waits(response: Response, after_seq: int, predicate: Callable[[Heard], bool]) -> Response:
    """Mark a response as one to wait with, as long as `?wait=` says."""
    response.waits_for = Wait(after_seq, predicate)  # type: ignore[attr-defined]
    return response


def wait_seconds(sent: str | None) -> float:
    """`?wait=` in whole seconds, 0 where it is not sent, at most 60. Raises InvalidError.

    Views call it, so that nonsense is refused.
    """
    if not sent:
        return 0.0
    if not sent.isascii() or not sent.isdecimal() or len(sent) > 6:
        raise query_error("wait", "invalid", _("must be a whole number of seconds, at most 60"))
    return float(min(int(sent), MOST_SECONDS))


class LongPoll:
    """The ASGI application around Django that does the waiting."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        seconds = _seconds(scope)
        if not seconds:
            await self.app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        client = _Client(receive)
        try:
            for number in count(1):
                look = _Look(send)
                asked = {**scope, WAITS_KEY: look.waits, LOOKS_KEY: number}
                await self.app(asked, client.receiver(), look.send)
                left = until - loop.time()
                if not look.waits or left <= 0:
                    await look.release()
                    return
                if not await self._wait(look.waits[-1], left, client):
                    return
        finally:
            client.forget()

    async def _wait(self, wait: Wait, seconds: float, client: "_Client") -> bool:
        """Wait for the event; False when the client has gone away."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        event = asyncio.ensure_future(hub.wait_for(wait.after_seq, wait.predicate, seconds))
        gone = client.gone()
        try:
            await asyncio.wait({event, gone}, return_when=asyncio.FIRST_COMPLETED)
            if event.done() and event.result() is None and loop.time() - began < PACE_SECONDS:
                await asyncio.sleep(min(seconds, PACE_SECONDS))
            return not gone.done()
        finally:
            event.cancel()


def _seconds(scope: Mapping[str, Any]) -> float:
    """How long this request may wait; 0 for requests that never do."""
    if scope["method"] != "GET" or b"wait=" not in scope.get("query_string", b""):
        return 0.0
    try:
        return wait_seconds(QueryDict(scope["query_string"]).get("wait"))
    except (InvalidError, UnicodeDecodeError):
        return 0.0  # the view refuses it


@dataclass(slots=True)
class _Look:
    """One answer of Django's, kept back when it would rather wait."""

    to_client: Send
    waits: list[Wait] = field(default_factory=list)
    kept: list[Message] = field(default_factory=list)

    async def send(self, message: Message) -> None:
        if self.waits:
            self.kept.append(message)
        else:
            await self.to_client(message)

    async def release(self) -> None:
        """Give the client what was kept."""
        for message in self.kept:
            await self.to_client(message)


class _Client:
    """The client's side of a request that Django may see several times: an empty body, and whether it is gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone: asyncio.Task[None] | None = None

    def gone(self) -> "asyncio.Task[None]":
        """Done when the client has disconnected."""
        if self._gone is None:
            self._gone = asyncio.create_task(self._watch())
        return self._gone

    def receiver(self) -> Receive:
        """What Django reads: no body, then nothing until the client goes away."""
        body: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if body:
                return body.pop()
            await asyncio.shield(self.gone())
            return {"type": "http.disconnect"}

        return receive

    def forget(self) -> None:
        """The request is over."""
        if self._gone is not None:
            self._gone.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
