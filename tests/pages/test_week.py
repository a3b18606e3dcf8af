"""The calendar's week, and the page on which one time of a series is moved or skipped."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from controlplane.common.looks import Look
from scheduler.models import MaintenanceWindow
from scheduler.views.weeks import HOUR, LEAST, Happening, columns_of, week_of
from tests.pages.test_plan import WINDOW, YEAR

BERLIN = ZoneInfo("Europe/Berlin")
LOOK = Look("maintenance", "maintenance")


def happening(pk: int, starts_at: str, hours: float) -> Happening:
    starts = datetime.fromisoformat(starts_at).replace(tzinfo=BERLIN)
    return Happening(starts, starts + timedelta(hours=hours), pk, f"w{pk}", "leaf-00", LOOK)


def drawn(*happenings: Happening) -> dict[str, list[tuple[int, str, int, str, int, bool]]]:
    """The boxes of each day of the week of 29 March 2027."""
    now = datetime(2027, 3, 30, 10, 30, tzinfo=UTC)
    with timezone.override(BERLIN):
        columns = columns_of(date(2027, 3, 31), happenings, now)
    assert [(c.today, c.chosen) for c in columns[:3]] == [
        (False,) * 2,
        (True, False),
        (False, True),
    ]
    assert columns[1].now == round(12.5 * HOUR)
    return {
        f"{c.date:%a}": [(b.what.pk, b.x, b.y, b.width, b.height, b.begins) for b in c.boxes]
        for c in columns
    }


def test_a_week_begins_on_monday() -> None:
    assert week_of(date(2027, 4, 4))[0] == date(2027, 3, 29)
    assert len(week_of(date(2027, 3, 29))) == 7


def test_boxes_lie_at_their_hours_and_go_on_over_midnight() -> None:
    days = drawn(happening(1, "2027-03-30T22:00", 4), happening(2, "2027-03-30T08:00", 0.1))
    assert days["Tue"] == [
        (2, "0.00%", 8 * HOUR, "100.00%", LEAST, True),
        (1, "0.00%", 22 * HOUR, "100.00%", 2 * HOUR, True),
    ]
    assert days["Wed"] == [(1, "0.00%", 0, "100.00%", 2 * HOUR, False)]
    assert days["Thu"] == []
    until_midnight = drawn(happening(1, "2027-03-30T22:00", 2))
    assert until_midnight["Wed"] == []


def test_what_is_on_together_lies_side_by_side_and_nothing_else_does() -> None:
    days = drawn(
        happening(1, "2027-03-30T08:00", 4),
        happening(2, "2027-03-30T09:00", 1),
        happening(3, "2027-03-30T10:30", 1),
        happening(4, "2027-03-30T13:00", 1),
    )
    assert [(pk, x, width) for pk, x, _y, width, _h, _b in days["Tue"]] == [
        (1, "0.00%", "50.00%"),
        (2, "50.00%", "50.00%"),
        (3, "50.00%", "50.00%"),
        (4, "0.00%", "100.00%"),
    ]


@pytest.fixture
def weekly(scene, sign_in):
    sign_in("ines").post("/calendar/new/", WINDOW)
    return MaintenanceWindow.objects.get()


def at(row: MaintenanceWindow, weeks: int) -> str:
    return f"{row.starts_at + timedelta(weeks=weeks):%Y%m%dT%H%M%SZ}"


def test_the_week_shows_what_is_on_and_links_to_it(scene, sign_in, weekly):
    page = sign_in("vera").get(f"/calendar/?day={YEAR}-03-05")
    text = page.content.decode()
    assert page.status_code == 200
    assert text.count(f'href="/calendar/{weekly.pk}/" class="st-maintenance"') == 1
    assert 'aria-current="page">Week<' in text
    assert "style=" not in text
    for asked in ("2026-99-99", "soon", "1001-01-01"):
        assert sign_in("vera").get(f"/calendar/?day={asked}").context["weeks"]


def test_one_time_is_skipped_moved_and_put_back_on_its_page(scene, sign_in, weekly):
    client = sign_in("ines")
    address = f"/calendar/{weekly.pk}/times/{at(weekly, 1)}/"
    assert sign_in("vera").get(address).status_code == 403
    assert f'value="{YEAR}-03-12T20:00"' in client.get(address).content.decode()
    fields = {"starts_at": f"{YEAR}-03-12T20:00", "lasts": "2h", "reason": "fair", "version": "1"}
    assert client.post(address, fields | {"do": "skip"}).status_code == 302
    text = client.get(f"/calendar/{weekly.pk}/").content.decode()
    assert "skipped" in text
    assert "fair" in text
    moved = fields | {"starts_at": f"{YEAR}-03-13T21:00", "lasts": "3h", "version": "2"}
    assert client.post(address, moved).status_code == 302
    weekly.refresh_from_db()
    assert next(iter(weekly.exceptions.values()))["starts_at"] == f"{YEAR}-03-13T20:00:00Z"
    assert "moved" in client.get(f"/calendar/{weekly.pk}/").content.decode()
    assert "moved" in client.get(f"/calendar/?day={YEAR}-03-13").content.decode()
    stale = client.post(address, moved | {"starts_at": f"{YEAR}-03-14T21:00"})
    assert "changed after you read it" in stale.content.decode()
    assert client.post(address, fields | {"do": "restore", "version": "3"}).status_code == 302
    weekly.refresh_from_db()
    assert weekly.exceptions == {}
    for wrong in ("soon", "20310101T000000Z", "2031-01-01"):
        assert client.get(f"/calendar/{weekly.pk}/times/{wrong}/").status_code == 404


def test_a_time_that_the_clocks_skip_is_refused_at_its_field(scene, sign_in, weekly):
    spring = max(date(YEAR, 3, day) for day in range(25, 32) if date(YEAR, 3, day).weekday() == 6)
    gap = f"{spring:%Y-%m-%d}T02:30"
    for name in ("starts_at", "latest_at"):
        answer = sign_in("ines").post("/calendar/new/", WINDOW | {name: gap})
        assert answer.context["form"].errors[name] == [
            "the clocks skip this time on that day; say 03:30"
        ]
    address = f"/calendar/{weekly.pk}/times/{at(weekly, 1)}/"
    answer = sign_in("ines").post(address, {"starts_at": gap, "lasts": "2h", "version": "1"})
    assert "say 03:30" in answer.content.decode()
