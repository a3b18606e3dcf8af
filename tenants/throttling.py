"""Rate limits of the REST doors: a token bucket per caller and kind of call, in this process's memory.

Memory, not Redis: a limit must not depend on a server that may be away, and the web runs in few processes.
Limits are `settings.RATE_LIMITS`: {"read": (per_minute, burst), "submit": …, "simulate": …}.
"""

import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from tenants.authentication import actor_of
from tenants.models import User

if TYPE_CHECKING:
    # REST framework imports this module while it loads its views.
    from rest_framework.views import APIView

CALLERS_KEPT = 10_000


@dataclass(slots=True)
class Bucket:
    """What a caller has left of one limit, as of `at` (seconds on a monotonic clock)."""

    left: float
    at: float

    def take(self, now: float, per_second: float, burst: float) -> float:
        """Take one call. Returns 0, or the seconds until one is left again."""
        self.left = min(burst, self.left + (now - self.at) * per_second)
        self.at = now
        if self.left >= 1:
            self.left -= 1
            return 0.0
        return (1 - self.left) / per_second


class Buckets:
    """Buckets of the callers seen last; the longest unseen are forgotten, which only frees them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    def take(self, caller: str, kind: str, now: float) -> float:
        """Take one call of `kind`. Returns 0, or the seconds to wait."""
        per_minute, burst = settings.RATE_LIMITS[kind]
        with self._lock:
            key = (caller, kind)
            bucket = self._buckets.setdefault(key, Bucket(burst, now))
            self._buckets.move_to_end(key)
            if len(self._buckets) > CALLERS_KEPT:
                self._buckets.popitem(last=False)
            return bucket.take(now, per_minute / 60, burst)

    def clear(self) -> None:
        """Forget everyone."""
        with self._lock:
            self._buckets.clear()


buckets = Buckets()


class TokenRateThrottle(BaseThrottle):
    """Limits each token, or each user of a browser, by kind: a view may name its `rate_limit`."""

    def __init__(self) -> None:
        self._wait_seconds = 0.0

    def allow_request(self, request: Request, view: "APIView") -> bool:
        """Whether this call is within the limit."""
        if getattr(request._request, "scope", {}).get("muster.looks", 0) > 1:
            return True  # a long poll looks again: still the same call
        self._wait_seconds = buckets.take(
            caller_of(request), kind_of(request, view), time.monotonic()
        )
        return self._wait_seconds == 0

    def wait(self) -> float:
        """Whole seconds until the next call is allowed: the `Retry-After` of a 429."""
        return float(max(1, math.ceil(self._wait_seconds)))


def caller_of(request: Request) -> str:
    """Who is counted: the token, the user, or the address of those who are neither."""
    if isinstance(request.user, User):
        return actor_of(request).owner
    return f"address:{request.META.get('REMOTE_ADDR', '')}"


def kind_of(request: Request, view: "APIView") -> str:
    """Which limit a call counts against."""
    named: str | None = getattr(view, "rate_limit", None)
    return named or ("read" if request.method in SAFE_METHODS else "submit")
