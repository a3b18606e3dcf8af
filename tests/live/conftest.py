"""Live doors against a real log: rows are committed, and the hub's threads end with each test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.db import connections
from django.test import Client

from controlplane.asgi import application, handler
from controlplane.common.live import hub
from tenants.consumers import warden
from tenants.throttling import buckets
from tests.world import World, make_world


async def rows(function: Callable[..., Any], *args: Any) -> Any:
    """Read or write rows from an async test, in a thread that gives its connection back."""

    def work() -> Any:
        try:
            return function(*args)
        finally:
            connections.close_all()

    return await asyncio.to_thread(work)


@pytest.fixture
def world(transactional_db: None) -> World:
    """Two tenants and everyone in `tests.world.PEOPLE`, committed."""
    buckets.clear()
    return make_world()


@pytest.fixture
async def live(world: World) -> AsyncIterator[None]:
    """The process's hub, stopped afterwards together with every connection it used."""
    yield
    await hub.stop()
    await handler.close()
    warden._watched.clear()
    await sync_to_async(connections.close_all)()


def cookie_of(client: Client) -> str:
    """The login cookie of a client that is logged in."""
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


class LiveSocket(ApplicationCommunicator):
    """A page's socket to the whole application. Channels' own communicator would need Daphne."""

    client: Client

    def __init__(self, path: str = "/ws/live/", **headers: str) -> None:
        sent = {"host": "127.0.0.1", **headers}
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ["127.0.0.1", 50_000],
        }
        super().__init__(application, scope)

    async def connect(self) -> bool:
        """Whether the handshake is accepted."""
        await self.send_input({"type": "websocket.connect"})
        answer = await self.receive_output(timeout=10)
        return bool(answer["type"] == "websocket.accept")

    async def send_text(self, text: str) -> None:
        """A text frame from the page."""
        await self.send_input({"type": "websocket.receive", "text": text})

    async def disconnect(self) -> None:
        """The page goes away."""
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(timeout=5)

    async def subscribe(self, *topics: str, after: int = 0) -> None:
        """Send the one message that pages send."""
        message = {"type": "subscribe", "topics": list(topics), "after": after}
        await self.send_text(json.dumps(message))

    async def message(self, kind: str, seconds: float = 10) -> dict[str, Any]:
        """The next message of this type; others are passed over."""
        while True:
            event = await self.receive_output(timeout=seconds)
            assert event["type"] == "websocket.send", event
            found: dict[str, Any] = json.loads(event["text"])
            if found["type"] == kind:
                return found

    async def close_code(self, seconds: float = 10) -> int:
        """The code with which the server closes; messages before it are passed over."""
        while True:
            event = await self.receive_output(timeout=seconds)
            if event["type"] == "websocket.close":
                return int(event.get("code") or 1000)


async def page_of(world: World, name: str, **headers: str) -> LiveSocket:
    """An open socket of somebody who is logged in in a browser."""
    client = Client()
    await rows(client.force_login, world.users[name])
    socket = LiveSocket(cookie=cookie_of(client), origin="http://127.0.0.1", **headers)
    socket.client = client
    assert await socket.connect()
    return socket


@dataclass(frozen=True)
class Answer:
    """What came back over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)


class Caller(ApplicationCommunicator):
    """One HTTP request to the whole application, as a server would hand it over."""

    def __init__(self, path: str, token: str = "", method: str = "GET", **headers: str) -> None:
        address, _mark, query = path.partition("?")
        sent = {"host": "127.0.0.1", **headers}
        if token:
            sent["authorization"] = f"Bearer {token}"
        scope = {
            "type": "http",
            "method": method,
            "path": address,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ["127.0.0.1", 50_000],
            "server": ["127.0.0.1", 80],
        }
        super().__init__(application, scope)

    async def ask(self, *chunks: bytes) -> None:
        """Send the body."""
        parts = chunks or (b"",)
        for number, chunk in enumerate(parts, start=1):
            more = number < len(parts)
            await self.send_input({"type": "http.request", "body": chunk, "more_body": more})

    async def answer(self, seconds: float = 15) -> Answer:
        """The whole response."""
        start = await self.receive_output(timeout=seconds)
        body = b""
        while True:
            part = await self.receive_output(timeout=seconds)
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], headers, body)


async def call(path: str, token: str = "", **headers: str) -> Answer:
    """GET, from end to end."""
    caller = Caller(path, token, **headers)
    await caller.ask()
    return await caller.answer()
