"""Lists in pages by cursor: `{"results": […], "next": URL or null}`, at most 200 rows each.

A cursor holds the last row's sort values, so a page costs the same anywhere in the list, and rows that are added
or removed meanwhile neither repeat nor hide others. A view names its `seek_order`, unique in its last field.
"""

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.core.validators import ProhibitNullCharactersValidator
from django.db.models import Field, Model, Q, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.utils.translation import gettext as _
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import FieldError, InvalidError

if TYPE_CHECKING:
    # REST framework imports this module while it loads its views.
    from rest_framework.views import APIView

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
DEFAULT_ORDER = ("-pk",)
_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"", "0", "false", "no", "off"})


class SeekPagination(BasePagination):
    """Keyset pages. Fields in `view.seek_order` are columns that are never null, of the model or of a row
    that it refers to (`node__name`)."""

    def __init__(self) -> None:
        self._next: str | None = None

    def paginate_queryset(
        self,
        queryset: QuerySet[Any] | Sequence[Any],
        request: Request,
        view: "APIView | None" = None,
    ) -> list[Any]:
        """The page that `?cursor=&limit=` asks for. Raises InvalidError for either being wrong."""
        order: Sequence[str] = getattr(view, "seek_order", DEFAULT_ORDER)
        limit = read_limit(request.query_params.get("limit"))
        cursor = request.query_params.get("cursor")
        if not isinstance(queryset, QuerySet):
            raise TypeError("only a queryset can be sought by its columns")
        ordered = queryset.order_by(*order)
        if cursor:
            ordered = ordered.filter(_after(queryset.model, order, _decode(cursor, len(order))))
        rows = list(ordered[: limit + 1])
        self._next = None
        if len(rows) > limit:
            rows.pop()
            self._next = _url(request, _encode(rows[-1], order))
        return rows

    def get_paginated_response(self, data: Any) -> Response:
        """The page as CONTRACT has it, with the next page's address also as a Link header."""
        headers = {"Link": f'<{self._next}>; rel="next"'} if self._next else {}
        return Response({"results": data, "next": self._next}, headers=headers)

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The page in OpenAPI."""
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {
                "results": schema,
                "next": {"type": "string", "format": "uri", "nullable": True},
            },
        }

    def get_schema_operation_parameters(self, view: "APIView") -> list[dict[str, Any]]:
        """Its two query parameters in OpenAPI."""
        return [
            {
                "name": "limit",
                "in": "query",
                "required": False,
                "description": "Rows on a page; more than 200 count as 200.",
                "schema": {"type": "integer", "minimum": 1, "default": DEFAULT_LIMIT},
            },
            {
                "name": "cursor",
                "in": "query",
                "required": False,
                "description": "Where the page begins; taken from `next`.",
                "schema": {"type": "string"},
            },
        ]


def query_error(name: str, code: str, message: str) -> InvalidError:
    """What is wrong with a query parameter; its pointer begins with "?"."""
    return InvalidError(f"?{name}: {message}", errors=(FieldError(f"?{name}", code, message),))


def read_flag(query: Mapping[str, str], name: str) -> bool:
    """A query parameter that is on or off, off unless sent. Raises InvalidError for other words."""
    sent = query.get(name, "").lower()
    if sent in _ON:
        return True
    if sent in _OFF:
        return False
    raise query_error(name, "invalid", _("must be true or false"))


def read_choice(query: Mapping[str, str], name: str, choices: Collection[str]) -> str:
    """A query parameter that is one of `choices`, "" unless sent. Raises InvalidError for others."""
    sent = query.get(name, "")
    if sent and sent not in choices:
        message = _("must be one of {options}").format(options=", ".join(choices))
        raise query_error(name, "not_a_choice", message)
    return sent


def read_limit(sent: str | None) -> int:
    """How many rows are asked for, at most MAX_LIMIT. Raises InvalidError for less than 1."""
    if sent is None or sent == "":
        return DEFAULT_LIMIT
    if not sent.isascii() or not sent.isdecimal() or len(sent) > 9 or int(sent) < 1:
        raise query_error("limit", "invalid", _("must be a whole number from 1 to 200"))
    return min(int(sent), MAX_LIMIT)


def cut_page(
    request: Request, keys: Sequence[tuple[str, ...]], width: int, pinned: Mapping[str, str]
) -> tuple[slice, str | None]:
    """Which of some groups are on the page asked for, and the address of the next one.

    keys: sorted, `width` names each. pinned: parameters that the next page is asked with, so that it fits this one.
    Raises InvalidError for a wrong cursor or limit.
    """
    limit, cursor = (
        read_limit(request.query_params.get("limit")),
        request.query_params.get("cursor"),
    )
    first = 0
    if cursor:
        after = tuple(_decode(cursor, width))
        if not all(isinstance(name, str) for name in after):
            raise query_error("cursor", "invalid", _("is not a cursor of this list"))
        first = bisect_right(keys, after)
    last = first + limit
    if last >= len(keys):
        return slice(first, None), None
    packed = json.dumps(keys[last - 1], separators=(",", ":"))
    return slice(first, last), _url(request, _text(packed), pinned)


def _encode(row: Model, order: Sequence[str]) -> str:
    values = [_value(row, field.lstrip("-")) for field in order]
    packed = json.dumps(values, cls=DjangoJSONEncoder, separators=(",", ":"))
    return _text(packed)


def _text(packed: str) -> str:
    return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")


def _value(row: Model, name: str) -> Any:
    """A column's value; microseconds, which DjangoJSONEncoder would cut to milliseconds, are kept."""
    *relations, column = name.split(LOOKUP_SEP)
    for relation in relations:
        row = getattr(row, relation)
    value = row.serializable_value(column)
    return value.isoformat() if hasattr(value, "isoformat") else value


def _decode(cursor: str, length: int) -> list[Any]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        values = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, UnicodeError, RecursionError):
        values = None
    plain = isinstance(values, list) and all(isinstance(v, (str, int, float)) for v in values)
    if not plain or len(values) != length:
        raise query_error("cursor", "invalid", _("is not a cursor of this list"))
    return list(values)


def _after(model: type[Model], order: Sequence[str], values: Sequence[Any]) -> Q:
    """Rows that come after `values`: (a > x) or (a = x and (b > y or …))."""
    found: Q | None = None
    for field, sent in reversed(list(zip(order, values, strict=True))):
        name = field.lstrip("-")
        value = _typed(model, name, sent)
        beyond = Q(**{f"{name}__{'lt' if field.startswith('-') else 'gt'}": value})
        found = beyond if found is None else beyond | (Q(**{name: value}) & found)
    return found or Q()


def _typed(model: type[Model], name: str, sent: Any) -> Any:
    field = _column(model, name)
    try:
        value = field.to_python(sent)
        field.run_validators(value)
        ProhibitNullCharactersValidator()(value)
    except (ValidationError, ValueError, TypeError, OverflowError):
        raise query_error("cursor", "invalid", _("is not a cursor of this list")) from None
    return value


def _column(model: type[Model], name: str) -> "Field[Any, Any]":
    *relations, last = name.split(LOOKUP_SEP)
    for relation in relations:
        found = model._meta.get_field(relation).related_model
        assert isinstance(found, type)
        model = found
    return model._meta.pk if last == "pk" else model._meta.get_field(last)  # type: ignore[return-value]


def _url(request: Request, cursor: str, pinned: Mapping[str, str] | None = None) -> str:
    query = request.query_params.copy()
    for name, value in (pinned or {}).items():
        query[name] = value
    query["cursor"] = cursor
    return request.build_absolute_uri(f"{request.path}?{query.urlencode()}")
