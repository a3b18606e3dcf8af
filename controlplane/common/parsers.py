"""JSON as it comes in: within the limit, well formed, and nothing that a database would choke on."""

import json
import re
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.utils.translation import gettext as _
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from controlplane.common.errors import ApplicationError, FieldError, InvalidError
from controlplane.common.problems import escape_pointer

# Either a string, which is skipped, or one of the words that Python reads and JSON does not have.
_NOT_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN)')
# U+0000 and lone surrogates are valid in JSON; PostgreSQL and UTF-8 take neither.
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_BAD_CHARACTER = re.compile("[\x00\ud800-\udfff]")


class MalformedJSONError(ApplicationError):
    """The body is not JSON; says where."""

    status = 400
    default_code = "malformed_json"


class TooLargeError(ApplicationError):
    """The body is over the limit, which it names."""

    status = 413
    default_code = "too_large"


class LimitedJSONParser(BaseParser):
    """application/json up to `settings.MAX_BODY_BYTES`; UTF-8; no NaN; no key twice in an object."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The body as Python values. Raises MalformedJSONError, TooLargeError or InvalidError."""
        request = (parser_context or {}).get("request")
        sent = request.META.get("CONTENT_LENGTH") if request is not None else None
        return read_json(_read(stream, int(sent or 0)))


def _read(stream: IO[bytes], announced_bytes: int) -> bytes:
    limit = settings.MAX_BODY_BYTES
    body = b"" if announced_bytes > limit else stream.read(limit + 1)
    if announced_bytes > limit or len(body) > limit:
        raise TooLargeError(
            _("The body is larger than the limit of {limit} bytes.").format(limit=limit),
            hint=_("Split a batch into several calls."),
            extra={"limit_bytes": limit},
        )
    return body


def read_json(body: bytes) -> Any:
    """Parse a body strictly. Raises MalformedJSONError or InvalidError."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        column = error.start - body.rfind(b"\n", 0, error.start)
        raise _malformed(_("not UTF-8"), line, column, error.start) from None
    try:
        found = json.loads(
            text,
            parse_constant=_refuse_constant,
            object_pairs_hook=_refuse_twice,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        raise _malformed(error.msg, error.lineno, error.colno, error.pos) from None
    except _ConstantError:
        raise _constant_at(text) from None
    except _TwiceError as error:
        raise _repeated_key(error.name) from None
    except RecursionError:
        raise _malformed(_("nested too deeply"), 1, 1, 0) from None
    except ValueError:  # an integer of more digits than Python converts
        raise _malformed(_("a number has too many digits"), 1, 1, 0) from None
    if _SUSPECT.search(text):
        _refuse_bad_characters(found, "")
    return found


class _ConstantError(Exception):
    """NaN or an infinity."""


class _TwiceError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _refuse_constant(_word: str) -> Any:
    raise _ConstantError


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError(digits)
    return number


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _value in pairs:
            if name in seen:
                raise _TwiceError(name)
            seen.add(name)
    return found


def _malformed(what: str, line: int, column: int, position: int) -> MalformedJSONError:
    message = _("line {line}, column {column}: {what}").format(line=line, column=column, what=what)
    return MalformedJSONError(
        _("The body is not valid JSON: {message}").format(message=message),
        errors=(FieldError("", "malformed_json", message),),
        extra={"line": line, "column": column, "position": position},
    )


def _constant_at(text: str) -> MalformedJSONError:
    """The error that names the first NaN or Infinity outside a string."""
    at = next((m for m in _NOT_JSON.finditer(text) if m.group(1)), None)
    position = at.start() if at else 0
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    word = at.group(1) if at else "NaN"
    return _malformed(_("{word} is not a JSON number").format(word=word), line, column, position)


def _repeated_key(name: str) -> MalformedJSONError:
    shown = name[:80]
    message = _("the key “{name}” stands twice in one object").format(name=shown)
    return MalformedJSONError(
        _("The body is ambiguous: {message}").format(message=message),
        errors=(FieldError("", "duplicate_key", message),),
    )


def _refuse_bad_characters(value: Any, pointer: str) -> None:
    """Raise InvalidError at the first string that holds U+0000 or half a surrogate pair."""
    if isinstance(value, dict):
        for name, inner in value.items():
            shown = _BAD_CHARACTER.sub("\ufffd", name)
            here = f"{pointer}/{escape_pointer(shown)}"
            _refuse_bad_characters(name, here)
            _refuse_bad_characters(inner, here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_bad_characters(inner, f"{pointer}/{index}")
    elif isinstance(value, str) and _BAD_CHARACTER.search(value):
        message = _("contains a character that cannot be stored (U+0000 or half a surrogate pair)")
        raise InvalidError(
            f"{pointer}: {message}", errors=(FieldError(pointer, "invalid_character", message),)
        )


def json_object(request: Request) -> dict[str, Any]:
    """The request's body where only an object makes sense. Raises InvalidError for anything else."""
    body = request.data
    if not isinstance(body, dict) or not all(isinstance(name, str) for name in body):
        message = _("must be a JSON object")
        raise InvalidError(message, errors=(FieldError("", "not_an_object", message),))
    return dict(body)
