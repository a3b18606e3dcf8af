"""What goes around every request: its id and timing, and static files.

All of it works in the event loop as well as in threads. One middleware that does not would make a waiting
long poll hold a thread (see `longpoll.py`).
"""

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _
from whitenoise.middleware import WhiteNoiseMiddleware

from controlplane.common.errors import FieldError
from controlplane.common.metrics import bounded_method, request_seconds, requests_total
from controlplane.common.problems import problem, problem_answer
from controlplane.common.timing import Meter, current_meter

logger = logging.getLogger(__name__)
GetResponse = Callable[[HttpRequest], Any]
_SENT_ID = re.compile(r"^[A-Za-z0-9._-]{8,64}$")


class TwoWayMiddleware:
    """Middleware that adds something before and after, in a thread or in the event loop."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._is_async:
            return self._later(request)
        state = self.before(request)
        if isinstance(state, HttpResponseBase):
            return state
        response: HttpResponseBase = self.get_response(request)
        return self.after(request, response, state)

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        state = self.before(request)
        if isinstance(state, HttpResponseBase):
            return state
        response: HttpResponseBase = await self.get_response(request)
        return self.after(request, response, state)

    def before(self, request: HttpRequest) -> Any:
        """Called first; a response ends the matter, anything else is handed to `after`."""

    def after(
        self, request: HttpRequest, response: HttpResponseBase, state: Any
    ) -> HttpResponseBase:
        """Called with the response."""
        return response


class RequestMiddleware(TwoWayMiddleware):
    """`X-Request-Id`, `Server-Timing` and the request counters. Goes first."""

    def before(self, request: HttpRequest) -> Meter:
        """Name the request (a sensible id that was sent is kept) and start its meter."""
        sent = request.headers.get("X-Request-Id", "")
        name = sent if _SENT_ID.match(sent) else secrets.token_hex(8)
        request.request_id = name  # type: ignore[attr-defined]
        meter = Meter()
        current_meter.set(meter)
        return meter

    def after(
        self, request: HttpRequest, response: HttpResponseBase, state: Meter
    ) -> HttpResponseBase:
        """Say what was measured, and count."""
        response["X-Request-Id"] = request.request_id  # type: ignore[attr-defined]
        response["Server-Timing"] = state.header()
        match = request.resolver_match
        route = match.route if match else "none"
        method = bounded_method(request.method)
        requests_total.labels(method, route, str(response.status_code)).inc()
        request_seconds.labels(method, route).observe(state.total_seconds)
        return response


class WellFormedMiddleware(TwoWayMiddleware):
    """Refuses U+0000 in an address: no database takes it, and no honest client sends it."""

    def before(self, request: HttpRequest) -> HttpResponseBase | None:
        """400 for such an address."""
        if "\x00" not in request.path and "%00" not in request.META.get("QUERY_STRING", ""):
            return None
        message = _("contains the character U+0000")
        document = problem(
            400,
            _("The address {what}.").format(what=message),
            errors=(FieldError("", "invalid_character", message),),
        )
        return problem_answer(request, document)


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise, which is not made for the event loop, made fit for it."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        super().__init__(get_response)
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        find = self.find_file if self.autorefresh else self.files.get
        static_file = find(request.path_info)
        if static_file is None:
            return self.get_response(request)
        if self._is_async:
            return _whole_file(static_file, request)
        return self.serve(static_file, request)


async def _whole_file(static_file: Any, request: HttpRequest) -> HttpResponseBase:
    """The file in one piece: Django would have to gather a file stream in the event loop anyway."""
    found = static_file.get_response(request.method, request.META)
    body = found.file.read() if found.file else b""
    response = HttpResponse(body, status=int(found.status))
    del response["Content-Type"]
    for name, value in found.headers:
        response[name] = value
    return response
