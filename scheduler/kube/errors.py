"""What the API server refuses, as one exception per meaning; raised by every verb of this room.

The server tells some refusals apart only in their text (a quota that is exceeded is a plain 403),
so the text is read here, once. Observed answers: tests/fixtures/kube/exchanges.json.
"""

# The names are the API's own words for its refusals, as `except NotFound` reads best.
# ruff: noqa: N818

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MESSAGE_LIMIT = 2000


class KubeError(Exception):
    """A call that the API server refused, or that never reached it.

    `code` is the HTTP status (0 when there was no answer), `reason` the server's short word,
    `message` its sentence, `retry_after_seconds` what it asked for, if anything.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        causes: tuple[str, ...] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        return f"{self.code or 'no answer'} {self.reason}: {self.message}".strip()


class BadRequest(KubeError):
    """400, 405, 406, 415 and other 4xx: we asked for something malformed."""


class Unauthorized(KubeError):
    """401: the credentials are unknown or expired."""


class Forbidden(KubeError):
    """403: a right is missing, or admission (pod security, a webhook, a limit range) said no."""


class QuotaExceeded(Forbidden):
    """403 whose text says that a ResourceQuota is used up."""


class NamespaceTerminating(Forbidden):
    """403 because the namespace is being deleted."""


class NotFound(KubeError):
    """404: no such object (or no such API)."""


class Conflict(KubeError):
    """409: a stale version, a failed precondition, or a state that does not allow the verb."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken, by ours or another's, or by one still being deleted."""


class Expired(KubeError):
    """410: the version or continue token is no longer kept; list again."""


class Invalid(KubeError):
    """422: a value that the schema or validation refuses."""


class TooManyRequests(KubeError):
    """429: the server sheds load, or a disruption budget forbids an eviction."""

    @property
    def is_budget(self) -> bool:
        """True when a PodDisruptionBudget, not load, is the cause: retrying soon is useless."""
        return "DisruptionBudget" in self.causes


class Unavailable(KubeError):
    """5xx, a time-out, a failed connection: the call may or may not have been carried out."""


_BY_CODE: dict[int, type[KubeError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def error_from_status(
    code: int, status: Mapping[str, Any], retry_after_seconds: float | None = None
) -> KubeError:
    """Turn a `Status` object (from a response, or from a watch's ERROR event) into an error."""
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or "")[:MESSAGE_LIMIT]
    details = status.get("details") or {}
    causes = tuple(str(c.get("reason") or "") for c in details.get("causes") or ())
    if retry_after_seconds is None and details.get("retryAfterSeconds"):
        retry_after_seconds = float(details["retryAfterSeconds"])
    return _class_for(code, reason, message, causes)(
        message,
        code=code,
        reason=reason,
        causes=causes,
        retry_after_seconds=retry_after_seconds,
    )


def error_from_response(
    code: int, body: bytes, retry_after_seconds: float | None = None
) -> KubeError:
    """Turn an HTTP answer ≥ 400 into an error; the body may be text (unknown paths)."""
    return error_from_status(code, _status_of(body), retry_after_seconds)


def _status_of(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        return parsed
    return {"message": body[:MESSAGE_LIMIT].decode("utf-8", "replace").strip()}


def _class_for(code: int, reason: str, message: str, causes: tuple[str, ...]) -> type[KubeError]:
    if code == 403 and "exceeded quota" in message:
        return QuotaExceeded
    if code == 403 and ("NamespaceTerminating" in causes or "is being terminated" in message):
        return NamespaceTerminating
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if code >= 500:
        return Unavailable
    return _BY_CODE.get(code, BadRequest)
