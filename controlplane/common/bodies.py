"""The limit on request bodies, where they come in: Django would take a body of any size to disk first.

`BodyLimit` wraps the ASGI application and gathers each body, within the limit, before Django gives the request a
thread: whoever sends slowly keeps nobody else waiting. A body without a Content-Length is handed on with one,
since REST framework takes a request without it for an empty one.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from controlplane.common.problems import CONTENT_TYPE, problem, too_large

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

# A client that is cut off while it sends does not read why. So much more is read and thrown away first.
DRAIN_BYTES = 64 * 1024 * 1024
DRAIN_SECONDS = 10.0
BODY_SECONDS = 60.0


class ClientGoneError(Exception):
    """The client went away while it sent."""


class BodyLimit:
    """Answers 413, naming the limit, to bodies over `settings.MAX_BODY_BYTES`."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > settings.MAX_BODY_BYTES:
            await _refuse(receive, send)
        elif length.strip(b"0") or b"transfer-encoding" in headers:
            await self._gathered(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _gathered(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        try:
            body = await asyncio.wait_for(_whole_body(receive), BODY_SECONDS)
        except ClientGoneError:
            return
        except TimeoutError:
            await _answer(send, problem(408, _("The body did not arrive within a minute.")))
            return
        if body is None:
            await _refuse(receive, send)
            return
        others = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        headers = [*others, (b"content-length", str(len(body)).encode())]
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return first.pop() if first else await receive()

        await self.app({**scope, "headers": headers}, receive_again, send)


async def _whole_body(receive: Receive) -> bytes | None:
    """The body, None when it is over the limit. Raises ClientGoneError: half a body is acted on by nobody."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > settings.MAX_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(chunks)


async def _refuse(receive: Receive, send: Send) -> None:
    with suppress(TimeoutError):  # it is told all the same
        await asyncio.wait_for(_drain(receive), DRAIN_SECONDS)
    await _answer(send, too_large())


async def _answer(send: Send, document: dict[str, Any]) -> None:
    body = json.dumps(document).encode()
    headers = [
        (b"content-type", CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": document["status"], "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _drain(receive: Receive) -> None:
    left = DRAIN_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return
