"""Requests that wait for an event without holding a thread: `?wait=30`.

A REST framework view answers at once, and says in its response what it would wait for. `long_poll` wraps it in
an async view: while there is time left it waits on the live hub and lets the view look again.

    events = long_poll(Events.as_view())

    class Events(APIView):
        def get(self, request):
            ...
            return waits(Response(page), after_seq, lambda heard: heard.tenant == tenant)
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from rest_framework.response import Response

from controlplane.common.live import Heard, hub
from controlplane.common.pagination import query_error

MOST_SECONDS = 60
# Where the hub cannot tell what was missed, the view looks again at this pace.
PACE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Wait:
    """What a response waits for: the first event after `after_seq` that `predicate` accepts.

    after_seq must have been read before the rows that the response shows. The predicate runs in the feed's
    thread and must not touch the database.
    """

    after_seq: int
    predicate: Callable[[Heard], bool]


def waits(response: Response, after_seq: int, predicate: Callable[[Heard], bool]) -> Response:
    """Mark a response as one to wait with."""
    response.waits_for = Wait(after_seq, predicate)  # type: ignore[attr-defined]
    return response


def wait_seconds(sent: str | None) -> float:
    """`?wait=` in whole seconds, 0 where it is not sent, at most 60. Raises InvalidError."""
    if not sent:
        return 0.0
    if not sent.isascii() or not sent.isdecimal() or len(sent) > 6:
        raise query_error("wait", "invalid", _("must be a whole number of seconds, at most 60"))
    return float(min(int(sent), MOST_SECONDS))


def long_poll(
    view: Callable[..., HttpResponseBase],
) -> Callable[..., Any]:
    """The async view around a REST framework view. Other methods than GET pass through."""

    @csrf_exempt
    async def waiting(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        loop = asyncio.get_running_loop()
        look = sync_to_async(view, thread_sensitive=True)
        began = loop.time()
        while True:
            response = await look(request, *args, **kwargs)
            wait: Wait | None = getattr(response, "waits_for", None)
            if wait is None:
                return response
            left = began + wait_seconds(request.GET.get("wait")) - loop.time()
            if left <= 0:
                return response
            before = loop.time()
            found = await hub.wait_for(wait.after_seq, wait.predicate, left)
            if found is None and loop.time() - before < PACE_SECONDS:
                await asyncio.sleep(min(left, PACE_SECONDS))

    # drf-spectacular finds the view's class by these; Django's own as_view sets them too.
    for name in ("cls", "view_class", "initkwargs", "actions"):
        if hasattr(view, name):
            setattr(waiting, name, getattr(view, name))
    return waiting
