"""The HTTP door: takes requests apart, calls the verb, sends the reply or the stream.

Uses aiohttp's low-level server: Kubernetes' paths are regular, and a router would only cost.
"""

import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from scheduler.simcluster.api.access import Access
from scheduler.simcluster.api.discovery import Discovery
from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.api.openapi import OpenApi
from scheduler.simcluster.api.request import NOT_A_PATH, Call, Reply, error_reply, parse_path
from scheduler.simcluster.api.verbs import Stream, Verbs
from scheduler.simcluster.faults.gate import CutConnection, Gate
from scheduler.simcluster.world import World

logger = logging.getLogger(__name__)
Control = Callable[[web.BaseRequest, list[str]], Awaitable[web.StreamResponse]]
MAX_BODY_BYTES = 3 * 1024 * 1024


class ApiServer:
    """Answers every request of a cluster."""

    def __init__(
        self,
        world: World,
        verbs: Verbs,
        access: Access,
        control: Control,
        gate: Gate,
    ) -> None:
        self._world, self._verbs, self._access = world, verbs, access
        self._control, self._gate = control, gate
        self._discovery = Discovery(world.registry)
        self._openapi = OpenApi(world.registry, verbs.custom)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        try:
            return await self._answer(request)
        except CutConnection:
            return _cut(request)
        except ApiError as error:
            return _response(error_reply(error), [])
        except Exception:
            logger.exception("request failed: %s %s", request.method, request.path_qs)
            defect = ApiError(
                500, "InternalError", "the simulated API server has a defect; see its log"
            )
            return _response(error_reply(defect), [])

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if parts[0] == "_sim":
            return await self._control(request, parts[1:])
        user = self._access.authenticate(request.headers)
        call = parse_path(parts, self._world.registry)
        if call is None:
            accept = request.headers.get("Accept", "")
            found = self._openapi.answer(request.path, accept) if parts[0] == "openapi" else None
            if found is None:
                server = request.headers.get("Host", "")
                found = self._discovery.answer(request.path, server, accept)
            return _response(NOT_A_PATH if found is None else found, [])
        call.method, call.query, call.headers, call.user = (
            request.method, request.query, request.headers, user,
        )  # fmt: skip
        self._access.authorize(call)
        return await self._run(call, request)

    async def _run(self, call: Call, request: web.BaseRequest) -> web.StreamResponse:
        if request.body_exists:
            call.raw = await request.content.read(MAX_BODY_BYTES + 1)
            while len(call.raw) <= MAX_BODY_BYTES and not request.content.at_eof():
                call.raw += await request.content.read(MAX_BODY_BYTES + 1)
            if len(call.raw) > MAX_BODY_BYTES:
                raise ApiError(
                    413,
                    "RequestEntityTooLarge",
                    f"Request entity too large: limit is {MAX_BODY_BYTES}",
                )
        later = await self._gate.before(call)
        try:
            found = self._verbs.run(call)
        finally:
            self._world.timers.settle()
        if isinstance(found, Stream):
            return await _send_stream(found, request)
        for fault in later:
            await self._gate.strike(fault)
        return _response(found, call.warnings)


def _cut(request: web.BaseRequest) -> web.Response:
    """Resets the connection; what is returned never leaves."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _send_stream(stream: Stream, request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": stream.content_type})
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        async for chunk in stream.lines:
            await response.write(chunk)
        if stream.aborts and stream.aborts():
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write_eof()
    except (ConnectionResetError, ConnectionError):
        return response
    finally:
        await stream.aclose()
    return response


def _response(reply: Reply, warnings: list[str]) -> web.Response:
    response = web.Response(status=reply.status, body=reply.body or None)
    response.headers["Content-Type"] = reply.content_type
    for name, value in reply.headers.items():
        response.headers[name] = value
    for text in warnings:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{escaped}"')
    return response
