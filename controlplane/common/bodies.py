"""The limit on request bodies, where they come in: Django would take a body of any size to disk first.

`BodyLimit` wraps the ASGI application. A body without a Content-Length is gathered here, within the limit, and
handed on with one, since REST framework takes a request without it for an empty one.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from django.conf import settings

from controlplane.common.problems import CONTENT_TYPE, too_large

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

# A client that is cut off while it sends does not read why. So much more is read and thrown away first.
DRAIN_BYTES = 64 * 1024 * 1024
DRAIN_SECONDS = 10.0


class BodyLimit:
    """Answers 413, naming the limit, to bodies over `settings.MAX_BODY_BYTES`."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > settings.MAX_BODY_BYTES:
            await _refuse(receive, send)
        elif b"transfer-encoding" in headers and not length:
            await self._gathered(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _gathered(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = await _whole_body(receive)
        if body is None:
            await _refuse(receive, send)
            return
        headers = [*scope["headers"], (b"content-length", str(len(body)).encode())]
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return first.pop() if first else await receive()

        await self.app({**scope, "headers": headers}, receive_again, send)


async def _whole_body(receive: Receive) -> bytes | None:
    """The body, None when it is over the limit. A client that goes away leaves an empty one."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > settings.MAX_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(chunks)


async def _refuse(receive: Receive, send: Send) -> None:
    with suppress(TimeoutError):  # it is told all the same
        await asyncio.wait_for(_drain(receive), DRAIN_SECONDS)
    body = json.dumps(too_large()).encode()
    headers = [
        (b"content-type", CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _drain(receive: Receive) -> None:
    left = DRAIN_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return
