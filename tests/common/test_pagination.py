"""Seek pages: whole, without repeats, whatever changes meanwhile; bad cursors and limits are refused."""

import base64
import json
from datetime import timedelta

import pytest
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from controlplane.common.errors import InvalidError
from controlplane.common.pagination import SeekPagination, _encode, read_flag
from tenants.models import AuditEntry
from tests.world import NOW


class View(APIView):
    def __init__(self, *order):
        self.seek_order = order


def page(query, *order):
    """Rows and address of the next page."""
    paginator = SeekPagination()
    request = Request(APIRequestFactory().get(f"/api/v1/audit/{query}"))
    rows = paginator.paginate_queryset(AuditEntry.objects.all(), request, View(*order))
    address = paginator.get_paginated_response(rows).data["next"]
    return rows, address and "?" + address.partition("?")[2]


def walk(query, *order):
    """All rows, page by page."""
    found = []
    while query is not None:
        rows, query = page(query, *order)
        found += rows
        assert len(found) < 1000
    return found


@pytest.fixture
def entries(db):
    """Sixty entries; many share a time, so that the order needs its last column. One carries microseconds."""
    return AuditEntry.objects.bulk_create(
        AuditEntry(
            at=NOW + timedelta(minutes=n // 7, microseconds=123_456 * (n % 2)),
            actor=f"u{n % 5}",
            action="a",
            object_kind="k",
            object_name=str(n),
        )
        for n in range(60)
    )


@pytest.mark.parametrize("order", [("-id",), ("at", "id"), ("-at", "id"), ("actor", "-at", "-id")])
@pytest.mark.parametrize("limit", [1, 7, 59, 60, 61])
def test_pages_together_are_the_whole_list_in_order(entries, order, limit):
    expected = list(AuditEntry.objects.order_by(*order))
    assert walk(f"?limit={limit}", *order) == expected


def test_rows_added_and_removed_meanwhile_neither_repeat_nor_hide_others(entries):
    first, following = page("?limit=20", "-id")
    AuditEntry.objects.filter(pk__in=[first[-1].pk, first[0].pk]).delete()
    AuditEntry.objects.create(at=NOW, actor="x", action="a", object_kind="k", object_name="new")
    rest = walk(following, "-id")
    assert [e.object_name for e in rest] == [str(n) for n in range(39, -1, -1)]


def test_filters_stay_in_the_address_of_the_next_page(entries):
    _rows, following = page("?limit=5&actor=u1&search=%26x", "-id")
    assert "actor=u1" in following
    assert "search=%26x" in following


@pytest.mark.parametrize("sent", ["0", "-1", "x", "1.5", "²", "9" * 40])
def test_bad_limit_is_refused(entries, sent):
    with pytest.raises(InvalidError) as refused:
        page(f"?limit={sent}", "-id")
    assert refused.value.errors[0].pointer == "?limit"


def test_more_than_200_counts_as_200(db):
    AuditEntry.objects.bulk_create(
        AuditEntry(at=NOW, actor="u", action="a", object_kind="k", object_name="n")
        for _ in range(205)
    )
    rows, following = page("?limit=1000", "-id")
    assert len(rows) == 200
    assert following is not None


@pytest.mark.parametrize(
    "sent", ["x", "e30", "W10", "WzEsMl0", "Wy4uLl0", "W251bGxd", "%F0%9F%9A%80"]
)
def test_bad_cursor_is_refused(entries, sent):
    with pytest.raises(InvalidError) as refused:
        page(f"?cursor={sent}", "-id")
    assert refused.value.errors[0].pointer == "?cursor"


def test_nul_in_a_cursor_is_refused(entries):
    cursor = _cursor(["a\0", 3])
    with pytest.raises(InvalidError):
        page(f"?cursor={cursor}", "actor", "-id")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [("1", True), ("True", True), ("yes", True), ("", False), ("0", False), ("False", False)],
)
def test_a_flag_is_read_whatever_way_it_is_written(sent, expected):
    assert read_flag({"preview": sent}, "preview") is expected


def test_a_flag_that_is_neither_yes_nor_no_is_refused():
    with pytest.raises(InvalidError) as refused:
        read_flag({"preview": "nope"}, "preview")
    assert refused.value.errors[0].pointer == "?preview"


def _cursor(values):
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def test_cursor_with_values_of_other_types_is_refused(entries):
    cursor = _encode(entries[0], ("actor", "-id"))
    with pytest.raises(InvalidError):
        page(f"?cursor={cursor}", "at", "-id")


def test_page_costs_one_query(entries, django_assert_num_queries):
    _rows, following = page("?limit=20", "-at", "-id")
    with django_assert_num_queries(1):
        page(following, "-at", "-id")
