"""What goes around every request: its id and timing, a well-formed address, and static files."""

import logging
import re
import secrets
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _
from whitenoise.middleware import WhiteNoiseMiddleware

from controlplane.common.errors import FieldError
from controlplane.common.metrics import bounded_method, request_seconds, requests_total
from controlplane.common.problems import is_api, problem, problem_answer
from controlplane.common.timing import Meter, current_meter

logger = logging.getLogger(__name__)
_SENT_ID = re.compile(r"^[A-Za-z0-9._-]{8,64}$")


class AroundMiddleware:
    """Middleware that does something before and after a request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        state = self.before(request)
        if isinstance(state, HttpResponseBase):
            return state
        return self.after(request, self.get_response(request), state)

    def before(self, request: HttpRequest) -> Any:
        """Called first; a response ends the matter, anything else is handed to `after`."""

    def after(
        self, request: HttpRequest, response: HttpResponseBase, state: Any
    ) -> HttpResponseBase:
        """Called with the response."""
        return response


class RequestMiddleware(AroundMiddleware):
    """`X-Request-Id`, `Server-Timing` and the request counters. Goes first."""

    def before(self, request: HttpRequest) -> Meter:
        """Name the request (a sensible id that was sent is kept) and start its meter."""
        sent = request.headers.get("X-Request-Id", "")
        name = sent if _SENT_ID.match(sent) else secrets.token_hex(8)
        request.request_id = name  # type: ignore[attr-defined]
        meter = Meter(name)
        current_meter.set(meter)
        return meter

    def after(
        self, request: HttpRequest, response: HttpResponseBase, state: Meter
    ) -> HttpResponseBase:
        """Say what was measured, and count; hand on what the answer would wait for (`longpoll.py`)."""
        wait = getattr(response, "waits_for", None)
        offered: list[object] | None = getattr(request, "scope", {}).get("muster.waits")
        if wait is not None and offered is not None:
            offered.append(wait)
        response["X-Request-Id"] = request.request_id  # type: ignore[attr-defined]
        response["Server-Timing"] = state.header()
        match = request.resolver_match
        route = match.route if match else "none"
        method = bounded_method(request.method)
        requests_total.labels(method, route, str(response.status_code)).inc()
        request_seconds.labels(method, route).observe(state.total_seconds)
        return response


class WellFormedMiddleware(AroundMiddleware):
    """Refuses addresses that lead nowhere good, and says why."""

    def before(self, request: HttpRequest) -> HttpResponseBase | None:
        """400 for U+0000, which no database takes; 404 where an acting call lacks the last slash.

        Django would redirect the latter, and clients turn a redirected POST into a GET.
        """
        if "\x00" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return self._nul(request)
        acts = request.method not in ("GET", "HEAD", "OPTIONS")
        if acts and is_api(request) and not request.path.endswith("/"):
            document = problem(
                404,
                _("There is nothing at this address."),
                hint=_("Addresses end in a slash: {address}").format(address=f"{request.path}/"),
            )
            return problem_answer(request, document)
        return None

    def _nul(self, request: HttpRequest) -> HttpResponseBase:
        message = _("contains the character U+0000")
        document = problem(
            400,
            _("The address {what}.").format(what=message),
            errors=(FieldError("", "invalid_character", message),),
        )
        return problem_answer(request, document)


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise, with each file in one piece: the event loop would have to gather a stream from disk."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        """The file, or that it has not changed."""
        found = static_file.get_response(request.method, request.META)
        body = found.file.read() if found.file else b""
        if found.file:
            found.file.close()
        response = HttpResponse(body, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        return response
