"""The HTTP door of the what-if process: JSON in, JSON out, one question after the other, an answer within 2 s or none.

Started by `manage.py run_whatif`, asked by `scheduler.services.whatif`. Planning runs in one thread beside the
event loop, so that a question that takes long delays others but never the refusal of those that come too late.
"""

import asyncio
import gc
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from django.db import DatabaseError, connection

from scheduler.services.whatif import door_key
from scheduler.whatif import changes, questions
from scheduler.whatif.mirror import Mirror, Mirrors, UnknownClusterError
from scheduler.whatif.windows import ask_windows

logger = logging.getLogger(__name__)

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DEADLINE_SECONDS = 2.0
# What tries one thing after the other stops here, to leave time for the way back.
TRY_SECONDS = 1.2
# A simulation is answered within half a second: its start is looked for so long at most.
SIMULATE_SECONDS = 0.25
MOST_WAITING = 8
KEEP_WARM_SECONDS = 5.0
# Looking ahead takes a twenty-fifth of the time at most, and waits while somebody asks.
LOOK_SECONDS = 1.0
LOOK_REST = 24
MOST_BYTES = 32 * 1024 * 1024


class BusyError(Exception):
    """Too many questions, or none was answered in time."""


@dataclass(slots=True)
class Whatif:
    """The questions' thread and what it reads from. clock: seconds since the epoch.

    freeze: as of `scheduler.loop.pulse.Pulse`.
    """

    deadline_seconds: float = DEADLINE_SECONDS
    clock: Callable[[], float] = time.time
    freeze: bool = False
    _mirrors: Mirrors = field(default_factory=Mirrors)
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(max_workers=1, thread_name_prefix="whatif")
    )
    _waiting: int = 0

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(middlewares=[_authorized, _refusals], client_max_size=MOST_BYTES)
        app.add_routes(
            [
                web.get("/healthz", _healthz),
                web.post("/simulate", self._door(self._simulate)),
                web.post("/never", self._door(questions.ask_never)),
                web.post("/explain", self._door(self._explain)),
                web.post("/change", self._door(changes.ask_change)),
                web.post("/quotas", self._door(questions.ask_quotas)),
                web.post("/longer-run", self._door(questions.ask_longer_run)),
                web.post("/windows", self._door(self._windows)),
            ]
        )
        app.cleanup_ctx.append(self._kept_warm)
        return app

    def _door(self, ask: Callable[[Mirror, Mapping[str, Any], float], Json]) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            sent = await _body(request)
            return web.json_response(await self._in_time(lambda: self._answer(ask, sent)))

        return handler

    def _simulate(self, mirror: Mirror, sent: Mapping[str, Any], now: float) -> Json:
        until = time.monotonic() + SIMULATE_SECONDS
        return questions.ask_simulation(mirror, sent, now, lambda: until - time.monotonic())

    def _explain(self, mirror: Mirror, sent: Mapping[str, Any], now: float) -> Json:
        until = time.monotonic() + TRY_SECONDS
        return questions.ask_explanation(mirror, sent, now, lambda: until - time.monotonic())

    def _windows(self, mirror: Mirror, sent: Mapping[str, Any], now: float) -> Json:
        until = time.monotonic() + TRY_SECONDS
        return ask_windows(mirror, sent, now, lambda: time.monotonic() < until)

    def _answer(
        self, ask: Callable[[Mirror, Mapping[str, Any], float], Json], sent: Mapping[str, Any]
    ) -> Json:
        """Runs in the questions' thread."""
        try:
            return ask(self._mirrors.of(str(sent["cluster"])), sent, self.clock())
        except DatabaseError:
            self._start_over()
            raise

    async def _in_time(self, work: Callable[[], Json]) -> Json:
        """Wait for the thread, but not for longer than the deadline; raises BusyError."""
        if self._waiting >= MOST_WAITING:
            raise BusyError
        self._waiting += 1
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        running.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(running), self.deadline_seconds)
        except TimeoutError as error:
            # If nobody has begun with it, nobody needs to.
            running.cancel()
            raise BusyError from error

    def _done(self, running: "asyncio.Future[Json]") -> None:
        self._waiting -= 1
        if not running.cancelled() and running.exception() is not None:
            logger.debug("a question failed: %s", running.exception())

    async def _kept_warm(self, app: web.Application) -> Any:
        tasks = [asyncio.create_task(work()) for work in (self._keep_warm, self._look_ahead)]
        yield
        for task in tasks:
            task.cancel()
        self._thread.submit(_close_connection)
        self._thread.shutdown(wait=True, cancel_futures=False)

    async def _keep_warm(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(self._thread, self._read)
            await asyncio.sleep(KEEP_WARM_SECONDS)

    async def _look_ahead(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if not self._waiting:
                await loop.run_in_executor(self._thread, self._look)
            await asyncio.sleep(max(LOOK_SECONDS, LOOK_REST * (loop.time() - began)))

    def _look(self) -> None:
        """Each cluster's next few jobs. Runs in the questions' thread."""
        try:
            for mirror in self._mirrors.known():
                if questions.look_ahead(mirror, self.clock()) and self.freeze:
                    self.freeze = False
                    gc.collect()
                    gc.freeze()
        except DatabaseError as error:
            logger.warning("the database is away: %s", error)
            self._start_over()

    def _read(self) -> None:
        try:
            self._mirrors.keep_warm(self.clock())
        except DatabaseError as error:
            logger.warning("the database is away: %s", error)
            self._start_over()

    def _start_over(self) -> None:
        self._mirrors.forget()
        connection.close()


def _close_connection() -> None:
    """The connection of the thread that runs this: Django keeps one for each."""
    connection.close()


async def _healthz(request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _body(request: web.Request) -> Mapping[str, Any]:
    try:
        sent = await request.json()
    except json.JSONDecodeError as error:
        raise web.HTTPBadRequest(text=f"not JSON: {error}") from error
    if not isinstance(sent, dict):
        raise web.HTTPBadRequest(text="not an object")
    return sent


@web.middleware
async def _authorized(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers tell all tenants' jobs: only processes that share the project's key are told."""
    sent = request.headers.get("Authorization", "")
    if request.path != "/healthz" and not hmac.compare_digest(
        sent.encode(), f"Bearer {door_key()}".encode()
    ):
        raise web.HTTPUnauthorized
    return await handler(request)


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BusyError:
        return web.json_response({"error": "busy"}, status=503)
    except DatabaseError as error:
        logger.warning("the database is away: %s", error)
        return web.json_response({"error": "database"}, status=503)
    except (UnknownClusterError, questions.NotWaitingError):
        return web.json_response({"error": "not_found"}, status=404)
    except (KeyError, TypeError, ValueError) as error:
        return web.json_response({"error": f"malformed: {error!r}"}, status=400)
