"""Django in the web process: each request in one thread, threads and their database connections used again.

Django's own ASGI handler makes a thread for every request, in which every request opens a database connection
anew, and hops between event loop and thread at every middleware; that costs more than our views do.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

# So many requests are worked on at once, each with a database connection; further ones wait their turn.
MOST_THREADS = 48
KEPT_THREADS = 12


class Turn:
    """One request's share of MOST_THREADS; may be ended twice."""

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns: asyncio.Semaphore | None = turns

    def end(self) -> None:
        """Let the next request in."""
        if self._turns is not None:
            self._turns.release()
            self._turns = None


_turn: ContextVar[Turn] = ContextVar("turn")


class Handler(ASGIHandler):
    """The whole chain of middleware and view in one hop. Requests that wait do so outside (`LongPoll`)."""

    def __init__(self) -> None:
        super().__init__()
        self._idle: list[ThreadPoolExecutor] = []
        self._turns = asyncio.Semaphore(MOST_THREADS)

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002  as Django has it
        """Build the chain for threads."""
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """The chain's response. One that is streamed gives up its turn and its database connection."""
        response = await sync_to_async(self.get_response, thread_sensitive=True)(request)
        if response.streaming:
            await sync_to_async(connections.close_all, thread_sensitive=True)()
            _turn.get().end()
        return response

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request, in the thread that was used last."""
        await self._turns.acquire()
        turn = Turn(self._turns)
        _turn.set(turn)
        thread = self._idle.pop() if self._idle else ThreadPoolExecutor(1, "request")
        try:
            async with ThreadSensitiveContext(executor=thread):
                await self.handle(scope, receive, send)
        finally:
            turn.end()
            self._give_back(thread)

    async def close(self) -> None:
        """End the threads that are kept, and their connections. For the end of the process, and for tests."""
        while self._idle:
            thread = self._idle.pop()
            await asyncio.wrap_future(thread.submit(connections.close_all))
            thread.shutdown()

    def _give_back(self, thread: ThreadPoolExecutor) -> None:
        if len(self._idle) < KEPT_THREADS:
            self._idle.append(thread)
        else:
            thread.submit(connections.close_all)
            thread.shutdown(wait=False)
