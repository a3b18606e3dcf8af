"""Keyset pages for HTML lists: the same cursors as the API's, at most 100 rows, no totals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.common.pagination import SeekPagination

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Page:
    """What `pieces/_pages.html` shows. previous: the first page, where this is a later one."""

    said: str
    previous: str
    next: str


class _Ordered(APIView):
    """Carries the order to the paginator."""

    def __init__(self, order: Sequence[str]) -> None:
        super().__init__()
        self.seek_order = tuple(order)


def seek_page(
    request: HttpRequest, rows: QuerySet[M], order: Sequence[str]
) -> tuple[list[M], Page]:
    """The page that `?cursor=` asks for. Raises InvalidError for a cursor of another list.

    order: as `SeekPagination` wants it, ending in a unique column, without nulls.
    """
    paginator = SeekPagination()
    found: list[Any] = paginator.paginate_queryset(rows, Request(request), _Ordered(order))
    following = paginator.get_paginated_response([]).data["next"] or ""
    return found, Page(said="", previous=_first(request), next=_relative(following))


def _first(request: HttpRequest) -> str:
    """This list from its start; empty on the first page."""
    if "cursor" not in request.GET:
        return ""
    query = request.GET.copy()
    query.pop("cursor")
    return f"{request.path}?{query.urlencode()}"


def _relative(url: str) -> str:
    _scheme, _mark, rest = url.partition("://")
    return rest[rest.index("/") :] if rest else url
