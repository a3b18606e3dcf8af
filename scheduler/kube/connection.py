"""One HTTP connection pool to one API server; every verb of this room goes through it.

Keeps at most 32 calls in flight, gives each a time-out, repeats what the server asks to repeat
(429, 503, a dropped connection) a bounded number of times with jitter, honours Retry-After, and
raises the typed errors of `errors`. Every verb in this room may be repeated safely: names are
ours, binds and deletes carry the uid.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp

from scheduler.kube.credentials import Credentials
from scheduler.kube.errors import (
    KubeError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    error_from_response,
)

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

Params = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Limits:
    """How hard one connection may lean on the server. Times in seconds."""

    in_flight: int = 32
    tries: int = 4
    call_seconds: float = 20.0
    connect_seconds: float = 5.0
    first_delay_seconds: float = 0.2
    longest_delay_seconds: float = 10.0


class CallMeter(Protocol):
    """Told of every HTTP answer; `code` 0 means none came."""

    def __call__(self, method: str, code: int, seconds: float) -> None: ...


def ignore_call(method: str, code: int, seconds: float) -> None:
    """The meter of those who do not measure."""


class Connection:
    """Use as `async with Connection(credentials) as connection`."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        limits: Limits | None = None,
        meter: CallMeter = ignore_call,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._credentials = credentials
        self._limits = limits or Limits()
        self._meter = meter
        self._jitter = jitter
        self._room = asyncio.Semaphore(self._limits.in_flight)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # The semaphore bounds ordinary calls; watches and followed logs are long and few.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._credentials.ssl_context or True),
            timeout=aiohttp.ClientTimeout(
                total=self._limits.call_seconds, connect=self._limits.connect_seconds
            ),
            headers={"Accept": JSON, "User-Agent": "muster"},
            auto_decompress=True,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(
        self, path: str, params: Params | None = None, *, tries: int | None = None
    ) -> Any:
        """The JSON object at `path`."""
        return _parsed(await self.call("GET", path, params=params, tries=tries))

    async def get_bytes(self, path: str, params: Params | None = None) -> bytes:
        """The raw body at `path`; empty for 204."""
        return await self.call("GET", path, params=params)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create `body` at `path`; the answer's object."""
        return _parsed(await self.call("POST", path, body=body))

    async def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Any:
        """Delete `path` with DeleteOptions; the answer differs by kind."""
        return _parsed(await self.call("DELETE", path, body=options))

    async def merge_patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """JSON merge patch: lists are replaced whole."""
        return _parsed(await self.call("PATCH", path, body=body, content_type=MERGE_PATCH))

    async def apply(self, path: str, body: Mapping[str, Any], field_manager: str) -> Any:
        """Server-side apply, taking fields that others hold (the row is what is wanted)."""
        params = {"fieldManager": field_manager, "force": "true"}
        answer = await self.call("PATCH", path, params=params, body=body, content_type=APPLY_PATCH)
        return _parsed(answer)

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        tries: int | None = None,
    ) -> bytes:
        """One call, repeated while the server is busy or away; the answer's body.

        Raises a `KubeError` when refused, or when the last try failed.
        """
        payload = json.dumps(body).encode() if body is not None else None
        renew = False
        last = tries or self._limits.tries
        for number in range(1, last + 1):
            try:
                return await self._once(method, path, params, payload, content_type, renew=renew)
            except KubeError as error:
                if number == last or not _worth_repeating(error, renewed=renew):
                    raise
                renew = isinstance(error, Unauthorized)
                await asyncio.sleep(self.delay_seconds(number, error.retry_after_seconds))
        raise AssertionError("unreachable: the last try returns or raises")

    def delay_seconds(self, number: int, asked_seconds: float | None = None) -> float:
        """Pause after the `number`-th failure (1…): doubling, jittered, at least what was asked."""
        base = self._limits.first_delay_seconds * 2.0 ** min(number - 1, 20)
        jittered = min(base, self._limits.longest_delay_seconds) * (0.5 + self._jitter())
        # Everybody who was told "1 s" must not come back in the same instant.
        return max(jittered, (asked_seconds or 0.0) * (1.0 + self._jitter() / 4))

    async def _once(
        self,
        method: str,
        path: str,
        params: Params | None,
        payload: bytes | None,
        content_type: str,
        *,
        renew: bool,
    ) -> bytes:
        headers = await self._headers(content_type if payload is not None else None, renew=renew)
        async with self._room:
            started = time.monotonic()
            code = 0
            try:
                async with self._open_session().request(
                    method,
                    self._credentials.base_url + path,
                    params=params,
                    data=payload,
                    headers=headers,
                    server_hostname=self._credentials.server_hostname,
                ) as response:
                    answer = await response.read()
                    code = response.status
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise _no_answer(error) from error
            finally:
                self._meter(method, code, time.monotonic() - started)
        if code >= 400:
            raise error_from_response(code, answer, _retry_after(response.headers))
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, params: Params | None = None
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a long answer (a watch, a followed log): no total time-out, not counted in flight.

        The reader itself may raise `aiohttp.ClientError` or end early; callers expect that.
        """
        headers = await self._headers(None, renew=False)
        timeout = aiohttp.ClientTimeout(
            total=None,
            connect=self._limits.connect_seconds,
            sock_connect=self._limits.connect_seconds,
        )
        try:
            # Headers of a watch come at once; a server that withholds them is away.
            async with asyncio.timeout(self._limits.call_seconds):
                response = await self._open_session().get(
                    self._credentials.base_url + path,
                    params=params,
                    headers=headers,
                    timeout=timeout,
                    server_hostname=self._credentials.server_hostname,
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._meter("WATCH", 0, 0.0)
            raise _no_answer(error) from error
        async with response:
            self._meter("WATCH", response.status, 0.0)
            if response.status >= 400:
                body = await response.read()
                raise error_from_response(response.status, body, _retry_after(response.headers))
            yield response.content

    async def _headers(self, content_type: str | None, *, renew: bool) -> dict[str, str]:
        headers = {} if content_type is None else {"Content-Type": content_type}
        authorization = await self._credentials.authorization(renew=renew)
        if authorization:
            headers["Authorization"] = authorization
        return headers

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use Connection as an async context manager")
        return self._session


def _parsed(answer: bytes) -> Any:
    if not answer:
        return None
    try:
        return json.loads(answer)
    except ValueError as error:
        raise Unavailable(f"the answer is not JSON: {answer[:100]!r}") from error


def _worth_repeating(error: KubeError, *, renewed: bool) -> bool:
    if isinstance(error, TooManyRequests):
        return not error.is_budget
    if isinstance(error, Unauthorized):
        return not renewed
    return isinstance(error, Unavailable)


def _no_answer(error: Exception) -> Unavailable:
    return Unavailable(f"{type(error).__name__}: {error}".rstrip(": "), reason="NoAnswer")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers["Retry-After"]))
    except (KeyError, ValueError):
        return None
