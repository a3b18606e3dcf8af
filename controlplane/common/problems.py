"""Errors as RFC 9457 problem documents: the one shape in which the REST doors refuse.

`problem_response` is REST framework's exception handler; `problem` builds a document where no view is reached
(unknown URL, body too large, crash). Pages show the same ApplicationErrors as HTML (middleware.py).
"""

import logging
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from django.utils.encoding import force_str
from django.utils.translation import gettext as _
from rest_framework import exceptions
from rest_framework.response import Response

from controlplane.common.errors import ApplicationError, FieldError, UnavailableError

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
# What a status is called where the error brings no code of its own.
CODES: Mapping[int, str] = {
    400: "bad_request",
    401: "not_authenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "body_timeout",
    409: "conflict",
    410: "resync",
    412: "stale",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    428: "precondition_required",
    429: "rate_limited",
    500: "internal_error",
    503: "unavailable",
}


def problem(
    status: int,
    detail: str,
    *,
    code: str = "",
    hint: str = "",
    errors: tuple[FieldError, ...] = (),
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A problem document. `type` is the address of the list that explains the codes."""
    code = code or CODES.get(status, "error")
    return {
        **(extra or {}),
        "type": f"{settings.PUBLIC_URL}/api/v1/problems/#{code}",
        "title": title_of(status),
        "status": status,
        "detail": detail,
        "code": code,
        "hint": hint,
        "errors": [{"pointer": e.pointer, "code": e.code, "message": e.message} for e in errors],
    }


def title_of(status: int) -> str:
    """The status in words, the same for every problem of that status."""
    titles = {
        400: _("The request cannot be read"),
        401: _("Not signed in"),
        403: _("Not allowed"),
        404: _("Not found"),
        405: _("Method not allowed"),
        408: _("The body did not arrive"),
        409: _("Conflict with the current state"),
        410: _("No longer kept"),
        412: _("Changed in the meantime"),
        413: _("Too large"),
        415: _("Unsupported media type"),
        422: _("Invalid"),
        428: _("A version is required"),
        429: _("Too many requests"),
        500: _("Internal error"),
        503: _("Not available at the moment"),
    }
    return titles.get(status) or HTTPStatus(status).phrase


def error_problem(error: ApplicationError) -> dict[str, Any]:
    """The document of an ApplicationError; also one item's answer in a batch."""
    return problem(
        error.status,
        error.detail,
        code=error.code,
        hint=error.hint,
        errors=error.errors,
        extra=error.extra,
    )


def problem_response(exc: Exception, context: Mapping[str, Any]) -> Response | None:
    """REST framework's exception handler. None for a defect of ours: `server_error` answers those."""
    request = context.get("request")
    headers: dict[str, str] = {}
    if isinstance(exc, ApplicationError):
        document = error_problem(exc)
        if isinstance(exc, UnavailableError):
            headers["Retry-After"] = str(exc.retry_after_seconds)
        retry = exc.extra.get("retry_after_seconds")
        if retry is not None:
            headers["Retry-After"] = str(retry)
    elif isinstance(exc, exceptions.APIException):
        document = _framework_problem(exc)
        headers.update(_framework_headers(exc))
    else:
        other = _other_problem(exc)
        if other is None:
            return None
        document = other
        if document["status"] == 503:
            headers["Retry-After"] = "2"
    return _response(document, headers, request)


def _response(document: dict[str, Any], headers: dict[str, str], request: object) -> Response:
    request_id = getattr(getattr(request, "_request", request), "request_id", "")
    if request_id:
        document["request_id"] = request_id
    return Response(document, status=document["status"], headers=headers, content_type=CONTENT_TYPE)


def _framework_problem(exc: exceptions.APIException) -> dict[str, Any]:
    """REST framework's own refusals, in our words where theirs do not help."""
    if isinstance(exc, exceptions.ValidationError):
        errors = tuple(field_errors(exc.detail))
        detail = f"{errors[0].pointer}: {errors[0].message}" if errors else _("Invalid.")
        return problem(422, detail, errors=errors)
    if isinstance(exc, exceptions.Throttled):
        wait = int(getattr(exc, "wait", None) or 1)
        return problem(
            429,
            _("Too many requests: try again in {seconds} s.").format(seconds=wait),
            hint=_("Submit many jobs with jobs/batch/, up to 500 in a call."),
        )
    if isinstance(exc, exceptions.UnsupportedMediaType):
        return problem(
            415,
            force_str(exc.detail),
            hint=_("Send JSON with the header Content-Type: application/json."),
        )
    if isinstance(exc, exceptions.NotAuthenticated):
        return problem(
            401,
            _("Nobody is signed in."),
            hint=_("Send the header Authorization: Bearer TOKEN, or log in."),
        )
    detail = force_str(exc.detail)
    code = str(exc.get_codes())
    known = code if isinstance(exc, exceptions.AuthenticationFailed) else ""
    if isinstance(exc, exceptions.PermissionDenied) and detail.startswith("CSRF"):
        known = "csrf_failed"
    return problem(exc.status_code, detail, code=known)


def _framework_headers(exc: exceptions.APIException) -> dict[str, str]:
    headers = {}
    if getattr(exc, "auth_header", None):
        headers["WWW-Authenticate"] = str(exc.auth_header)  # type: ignore[attr-defined]
    if getattr(exc, "wait", None):
        headers["Retry-After"] = str(int(exc.wait))  # type: ignore[attr-defined]
    return headers


def _other_problem(exc: Exception) -> dict[str, Any] | None:
    """Django's refusals, and a database that is away; None for anything else."""
    if isinstance(exc, Http404):
        return problem(404, _("There is nothing here that you may see."))
    if isinstance(exc, PermissionDenied):
        return problem(403, str(exc) or _("You may not do this."))
    if isinstance(exc, RequestDataTooBig):
        return too_large()
    if isinstance(exc, SuspiciousOperation):
        return problem(400, _("The request is malformed."))
    if isinstance(exc, (OperationalError, InterfaceError)):
        logger.warning("the database did not answer: %s", exc)
        return problem(503, _("The database does not answer at the moment."))
    return None


def too_large() -> dict[str, Any]:
    """The answer to a body over the limit, which it names."""
    limit = settings.MAX_BODY_BYTES
    return problem(
        413,
        _("The body is larger than the limit of {limit} bytes.").format(limit=limit),
        hint=_("Split a batch into several calls."),
        extra={"limit_bytes": limit},
    )


def field_errors(detail: Any, pointer: str = "") -> Iterator[FieldError]:
    """REST framework's nested error detail as a flat list with JSON Pointers."""
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            step = "" if name == "non_field_errors" else f"/{escape_pointer(str(name))}"
            yield from field_errors(inner, pointer + step)
    elif isinstance(detail, list):
        plain = all(isinstance(item, str) for item in detail)
        for index, inner in enumerate(detail):
            yield from field_errors(inner, pointer if plain else f"{pointer}/{index}")
    else:
        yield FieldError(pointer, str(getattr(detail, "code", None) or "invalid"), str(detail))


def escape_pointer(name: str) -> str:
    """One step of a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def is_api(request: HttpRequest) -> bool:
    """Whether errors on this path are problem documents."""
    return request.path.startswith("/api/")


def problem_answer(request: HttpRequest, document: dict[str, Any]) -> JsonResponse:
    """A problem document as a plain Django response."""
    request_id = getattr(request, "request_id", "")
    if request_id:
        document = {**document, "request_id": request_id}
    return JsonResponse(document, status=document["status"], content_type=CONTENT_TYPE)


def crash_problem() -> dict[str, Any]:
    """What a defect of ours looks like from outside: nothing but a number to quote."""
    return problem(
        500,
        _("Something went wrong on our side; it has been logged."),
        hint=_("Quote request_id when you report it."),
    )
