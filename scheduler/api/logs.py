"""A replica's log over REST: a part of it as JSON, or, with `?follow=1`, the rest of it as text while it grows."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import UnavailableError
from controlplane.common.pagination import query_error, read_flag
from queues.api.doors import Door
from queues.api.shapes import ProblemShape
from queues.selectors.jobs import job_of
from scheduler.api import shapes
from scheduler.services.logs import LogSource, find_source, follow, read_page

# Each holds a connection to Kubernetes and one to the reader.
MOST_FOLLOWERS = 200
_followers: set[object] = set()


class JobLog(Door):
    """The log of one replica."""

    required_scopes = {"GET": "jobs:read"}
    serializer_class = shapes.LogAnswer

    @extend_schema(
        operation_id="jobs_log",
        parameters=[
            OpenApiParameter("role", str, description="The first role unless named."),
            OpenApiParameter(
                "replica", int, description="The one that failed first, else the first one."
            ),
            OpenApiParameter("attempt", int, description="The last one unless named."),
            OpenApiParameter("cursor", int, description="Byte to begin at; 0 unless sent."),
            OpenApiParameter(
                "follow", bool, description="Answer with text, as it grows, until the end."
            ),
        ],
        responses={200: shapes.LogAnswer, 404: ProblemShape, 503: ProblemShape},
    )
    def get(self, request: Request, job_id: str) -> Response:
        """From the log store for pods that have ended, from Kubernetes while they run."""
        sent = request.query_params
        source = find_source(
            job_of(self.actor(), job_id),
            role=sent.get("role", ""),
            replica=_whole(request, "replica"),
            attempt=_whole(request, "attempt"),
        )
        cursor = _whole(request, "cursor") or 0
        if read_flag(sent, "follow"):
            return _following(source, cursor)
        page = read_page(source, cursor)
        return Response(
            {
                "attempt": source.key.attempt,
                "role": source.key.role,
                "replica": source.key.replica,
                "cursor": page.cursor,
                "next": page.next,
                "ended": page.ended,
                "restarted": page.restarted,
                "text": page.text,
            }
        )


def _whole(request: Request, name: str) -> int | None:
    """A query parameter that is a whole number; None where it is not sent. Raises InvalidError."""
    sent = request.query_params.get(name)
    if not sent:
        return None
    if not sent.isascii() or not sent.isdecimal() or len(sent) > 15:
        raise query_error(name, "invalid", _("must be a whole number"))
    return int(sent)


def _following(source: LogSource, cursor: int) -> Response:
    """A response that says what is to be streamed; `streamed` does it."""
    if len(_followers) >= MOST_FOLLOWERS:
        raise UnavailableError(_("Too many logs are being followed at the moment."))
    response = Response()
    response.follows = (source, cursor)  # type: ignore[attr-defined]
    return response


def streamed(view: Callable[..., HttpResponseBase]) -> Callable[..., Any]:
    """The async view around `JobLog`: it looks in a thread, and streams without holding one."""

    @csrf_exempt
    async def answering(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = await sync_to_async(view, thread_sensitive=True)(request, *args, **kwargs)
        wanted: tuple[LogSource, int] | None = getattr(response, "follows", None)
        if wanted is None:
            return response
        text = StreamingHttpResponse(_counted(*wanted), content_type="text/plain; charset=utf-8")
        text["Cache-Control"] = "no-store"
        text["X-Accel-Buffering"] = "no"
        return text

    # drf-spectacular finds the view's class by these; Django's own as_view sets them too.
    for name in ("cls", "view_class", "initkwargs", "actions"):
        if hasattr(view, name):
            setattr(answering, name, getattr(view, name))
    return answering


async def _counted(source: LogSource, cursor: int) -> AsyncIterator[bytes]:
    mark = object()
    _followers.add(mark)
    try:
        async for piece in follow(source, cursor):
            yield piece
    finally:
        _followers.discard(mark)


job_log = streamed(JobLog.as_view())
