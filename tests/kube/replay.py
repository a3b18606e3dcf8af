"""An HTTP server that answers as a real kube-apiserver once did, and one that follows a script."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from scheduler.kube.connection import Connection, Limits
from scheduler.kube.credentials import Credentials

FIXTURES = Path(__file__).parent.parent / "fixtures" / "kube"
EXCHANGES: dict[str, dict[str, Any]] = {
    e["name"]: e for e in json.loads((FIXTURES / "exchanges.json").read_text())["exchanges"]
}
QUICK = Limits(first_delay_seconds=0.001, longest_delay_seconds=0.01, call_seconds=5.0)


def body_of(name: str) -> dict[str, Any]:
    body = EXCHANGES[name]["response"]["body"]
    assert isinstance(body, dict)
    return body


@dataclass
class Call:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Scripted:
    """Answers each call with the next of `answers`; remembers what was asked."""

    answers: deque[Answer] = field(default_factory=deque)
    calls: list[Call] = field(default_factory=list)
    url: str = ""
    in_flight: int = 0
    most_in_flight: int = 0

    def will(self, *names_or_answers: str | Answer) -> Scripted:
        for one in names_or_answers:
            self.answers.append(recorded(one) if isinstance(one, str) else one)
        return self

    async def serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.calls.append(
            Call(
                request.method,
                request.path,
                dict(request.query),
                json.loads(raw) if raw else None,
                dict(request.headers),
            )
        )
        if not self.answers:
            return web.Response(status=500, text="the script has ended")
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self.answers.popleft()(request)
        finally:
            self.in_flight -= 1


def recorded(name: str) -> Answer:
    """The recorded answer of that name, whatever was asked."""
    response = EXCHANGES[name]["response"]

    async def answer(request: web.Request) -> web.StreamResponse:
        if "lines" in response:
            return await stream(response["lines"])(request)
        body = response.get("body")
        text = body if isinstance(body, str) else json.dumps(body) if body is not None else ""
        headers = {k: v for k, v in response["headers"].items() if k != "Content-Type"}
        kind = response["headers"].get("Content-Type", "text/plain").split(";")[0]
        return web.Response(
            status=response["status"], text=text, headers=headers, content_type=kind
        )

    return answer


def json_answer(body: Any, status: int = 200, **headers: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def stream(lines: list[Any], *, then_hang: bool = False, then_cut: bool = False) -> Answer:
    """A watch: one JSON object a line; ends normally, hangs, or breaks in mid-chunk."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(json.dumps(line).encode() + b"\n")
        if then_hang:
            await asyncio.sleep(3600)
        if then_cut:
            await asyncio.sleep(0.05)  # let what was written arrive before the reset
            await response.write(b'{"type": "ADDED", "obj')
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    """The connection breaks before any answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def scripted_server(
    *names_or_answers: str | Answer, limits: Limits = QUICK
) -> AsyncIterator[tuple[Scripted, Connection]]:
    script = Scripted().will(*names_or_answers)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", script.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    script.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with Connection(Credentials(script.url, None), limits=limits) as connection:
            yield script, connection
    finally:
        await runner.cleanup()
