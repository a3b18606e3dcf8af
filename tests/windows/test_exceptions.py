"""One time of a series is skipped, moved, put back: over REST, in the feed, to the planner and those who were told."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.common.models import Event
from scheduler.models import MaintenanceWindow, Occurrence
from scheduler.selectors.windows import windows_of
from scheduler.services.occurrences import tick_windows
from scheduler.services.window_exceptions import change_occurrence
from scheduler.services.windows import cancel_window, change_window
from tenants.models import AuditEntry, OutboxMessage, User
from tests.scheduler import rows
from tests.scheduler.people import add_people, client
from tests.scheduler.rows import NOW, World
from tests.windows.builders import HOUR, run_gang
from tests.windows.test_api_windows import WINDOWS, create
from tests.windows.test_ics import unfolded
from tests.windows.test_occurrences import Clock, opened, operator, saving

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
START = NOW + 2 * HOUR


@pytest.fixture
def world() -> World:
    made = rows.make_world(8, nodes_per_leaf=4)
    add_people(made)
    return made


def ask(answer: dict[str, Any], number: int, who: str = "ines", **sent: Any) -> Any:
    """PATCH the nth occurrence of an answer."""
    at = answer["occurrences"][number]["occurrence"]
    address = f"{WINDOWS}{answer['id']}/occurrences/{at}/"
    match = f'"{answer["version"]}"'
    return client(who).patch(address, sent, format="json", HTTP_IF_MATCH=match)


def starts(answer: dict[str, Any]) -> list[datetime]:
    return [datetime.fromisoformat(each["starts_at"]) for each in answer["occurrences"]]


def feed() -> dict[str, list[str]]:
    """The events of the calendar feed by their UID."""
    text = "\n".join(unfolded(client("ravi").get("/api/v1/calendar.ics").content.decode()))
    events = [part.split("END:VEVENT")[0].split("\n") for part in text.split("BEGIN:VEVENT")[1:]]
    return {next(line for line in lines if line.startswith("UID:")): lines for lines in events}


def test_a_skipped_time_is_off_everywhere_and_can_be_put_back(world: World) -> None:
    answer = create(rrule="FREQ=WEEKLY").json()
    before = starts(answer)
    assert ask(answer, 1, who="ravi", skipped=True).status_code == 403
    done = ask(answer, 1, skipped=True, reason="holiday")
    assert done.status_code == 200, done.json()
    skipped = done.json()
    assert skipped["version"] == 2
    assert starts(skipped)[:2] == [before[0], before[2]]
    (exception,) = skipped["exceptions"]
    assert (exception["occurrence"], exception["starts_at"], exception["reason"]) == (
        answer["occurrences"][1]["occurrence"], None, "holiday",
    )  # fmt: skip
    planned = {window.starts_at for window in windows_of(world.cluster, timezone.now())}
    assert before[1].timestamp() not in planned
    assert {before[0].timestamp(), before[2].timestamp()} <= planned
    events = feed()
    assert sum("STATUS:CANCELLED" in lines for lines in events.values()) == 1
    assert f"UID:window-{answer['id']}-{before[1]:%Y%m%dT%H%M%SZ}@muster" in events
    assert not Occurrence.objects.filter(starts_at=before[1]).exists()
    assert AuditEntry.objects.get(action="window.skipped").reason == "holiday"

    stale = ask(answer, 2, skipped=True)
    assert stale.status_code == 412
    number = answer["occurrences"][1]["occurrence"]
    address = f"{WINDOWS}{answer['id']}/occurrences/{number}/"
    ines = client("ines")
    back = ines.patch(address, {"skipped": False}, format="json", HTTP_IF_MATCH='"2"')
    assert starts(back.json()) == before
    assert back.json()["exceptions"] == []
    assert not any("STATUS:CANCELLED" in lines for lines in feed().values())
    assert ines.delete(address, HTTP_IF_MATCH='"3"').json()["exceptions"][0]["starts_at"] is None


def test_a_moved_time_keeps_its_name_and_its_length(world: World) -> None:
    answer = create(rrule="FREQ=WEEKLY").json()
    before = starts(answer)
    new = before[1] + DAY
    moved = ask(answer, 1, starts_at=new.isoformat()).json()
    assert starts(moved)[:3] == [before[0], new, before[2]]
    one = moved["occurrences"][1]
    assert (one["occurrence"], one["moved"]) == (answer["occurrences"][1]["occurrence"], True)
    assert datetime.fromisoformat(one["ends_at"]) - new == 2 * HOUR
    lines = feed()[f"UID:window-{answer['id']}-{before[1]:%Y%m%dT%H%M%SZ}@muster"]
    assert f"DTSTART:{new:%Y%m%dT%H%M%SZ}" in lines
    assert "SEQUENCE:1" in lines
    assert "STATUS:CONFIRMED" in lines
    assert len(feed()) == len({*feed()}) == 53
    # An end alone keeps the start; the rule's own times are no exception any more.
    longer = ask(moved, 1, ends_at=(new + 5 * HOUR).isoformat()).json()
    assert starts(longer)[1] == new
    assert ask(longer, 1, starts_at=before[1].isoformat(), ends_at=(before[1] + 2 * HOUR)
               .isoformat()).json()["exceptions"] == []  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "status", "pointer", "code"),
    [
        ({}, 422, "/skipped", "required"),
        ({"skipped": "yes"}, 422, "/skipped", "not_a_boolean"),
        ({"skipped": True, "starts_at": "2099-01-01T00:00:00Z"}, 422, "/starts_at", "skipped"),
        ({"starts_at": "soon"}, 422, "/starts_at", "not_a_time"),
        ({"starts_at": "2020-01-01T00:00:00Z"}, 422, "/starts_at", "in_the_past"),
        ({"starts_at": "2099-01-01T00:00:00Z"}, 422, "/starts_at", "too_late"),
        ({"ends_at": "2026-01-01T00:00:00Z"}, 422, "/ends_at", "too_early"),
        ({"ends_at": "2099-01-01T00:00:00Z"}, 422, "/ends_at", "too_late"),
        ({"starts_at": None, "colour": "red"}, 422, "/colour", "unknown_field"),
    ],
)
def test_what_cannot_be_is_named_and_changes_nothing(
    world: World, sent: dict[str, Any], status: int, pointer: str, code: str
) -> None:
    answer = create(rrule="FREQ=WEEKLY").json()
    refused = ask(answer, 1, **sent)
    assert refused.status_code == status, refused.json()
    assert (pointer, code) in [(e["pointer"], e["code"]) for e in refused.json()["errors"]]
    assert MaintenanceWindow.objects.get().exceptions == {}


def test_two_times_of_one_window_are_never_on_together(world: World) -> None:
    answer = create(rrule="FREQ=WEEKLY").json()
    other = starts(answer)[2] + HOUR
    refused = ask(answer, 1, starts_at=other.isoformat())
    assert refused.json()["errors"][0]["code"] == "overlap"


def test_only_times_of_a_series_can_be_changed(world: World) -> None:
    once = create().json()
    assert ask(once, 0, skipped=True).json()["code"] == "not_recurring"
    weekly = create(rrule="FREQ=WEEKLY").json()
    ines = client("ines")
    far = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "2200-01-01T00:00:00Z")
    for at in ("2031-01-01T00:00:00Z", "soon", "2031-01-01T00:00:00", "20270112", *far):
        address = f"{WINDOWS}{weekly['id']}/occurrences/{at}/"
        answer = ines.patch(address, {"skipped": True}, format="json", HTTP_IF_MATCH='"1"')
        assert answer.status_code == 404, at
    address = f"{WINDOWS}{weekly['id']}/occurrences/{weekly['occurrences'][0]['occurrence']}/"
    assert ines.patch(address, {"skipped": True}, format="json").status_code == 428


def test_exceptions_go_with_the_rule_that_had_their_times(world: World) -> None:
    answer = create(rrule="FREQ=WEEKLY").json()
    ask(answer, 1, skipped=True)
    ask(answer | {"version": 2}, 2, skipped=True)
    row = change_window(
        operator(), answer["id"], {"rrule": "FREQ=WEEKLY;INTERVAL=2"}, 3, timezone.now()
    )
    assert list(row.exceptions) == [answer["occurrences"][2]["occurrence"]]
    row = change_window(operator(), answer["id"], {"rrule": None}, 4, timezone.now())
    assert row.exceptions == {}


def told(kind: str) -> list[Event]:
    return list(Event.objects.filter(kind=kind).order_by("pk"))


@pytest.fixture
def clock(world: World, settings: Any) -> Clock:
    settings.EMAIL_URL = "smtp://mail.example.org"
    User.objects.filter(username__in=["ravi", "mei"]).update(email="someone@example.org")
    return Clock(world)


def test_a_moved_time_tells_those_whom_it_had_warned_and_warns_them_again(
    world: World, clock: Clock
) -> None:
    window = opened(world, rrule="FREQ=WEEKLY", notice_minutes=60)
    attempt = run_gang(world, [4], **saving())
    clock.until(START - 30 * timedelta(minutes=1))
    assert len(told("job.maintenance_ahead")) == 1
    later = START + 12 * HOUR
    sent = {"starts_at": later.isoformat()}
    change_occurrence(operator(), window.pk, START, sent, 1, clock.now)
    (moved,) = told("job.maintenance_moved")
    assert moved.job == attempt.job_id
    assert datetime.fromisoformat(moved.numbers["new_starts_at"]) == later
    subjects = list(OutboxMessage.objects.order_by("pk").values_list("subject", flat=True))
    assert subjects == [
        f"[Muster] New driver: your jobs stop before {START:%Y-%m-%d %H:%M} UTC",
        f"[Muster] New driver: now {later:%Y-%m-%d %H:%M} UTC",
    ]
    states = dict(Occurrence.objects.values_list("starts_at", "state"))
    assert (states[START], states[later]) == ("cancelled", "planned")
    tick_windows(world.cluster, later - HOUR)
    assert len(told("job.maintenance_ahead")) == 2
    assert OutboxMessage.objects.count() == 3
    # Back to where it was first: it happens.
    tick_windows(world.cluster, later - HOUR)
    assert OutboxMessage.objects.count() == 3


def test_a_skipped_time_that_drains_lets_jobs_run_on_and_says_so(
    world: World, clock: Clock
) -> None:
    window = opened(world, rrule="FREQ=WEEKLY")
    attempt = run_gang(world, [4], now=NOW - timedelta(minutes=1), **saving(3600))
    clock.until(START - timedelta(minutes=59))
    assert Occurrence.objects.get(starts_at=START).state == "draining"
    change_occurrence(operator(), window.pk, START, {"skipped": True}, 1, clock.now)
    assert Occurrence.objects.get(starts_at=START).state == "cancelled"
    assert [event.job for event in told("job.maintenance_off")] == [attempt.job_id]
    clock.until(START + timedelta(minutes=1))
    attempt.refresh_from_db()
    assert attempt.ended_at is None
    change_occurrence(operator(), window.pk, START, {"skipped": False}, 2, clock.now)
    tick_windows(world.cluster, clock.now)
    assert Occurrence.objects.get(starts_at=START).state == "draining"


def test_an_open_time_keeps_its_start_and_may_last_longer(world: World, clock: Clock) -> None:
    window = opened(world, rrule="FREQ=WEEKLY")
    clock.until(START + timedelta(minutes=1))
    for sent in ({"skipped": True}, {"starts_at": (START + HOUR).isoformat()}):
        with pytest.raises(Exception, match="is open"):
            change_occurrence(operator(), window.pk, START, sent, None, clock.now)
    longer = {"ends_at": (START + 5 * HOUR).isoformat()}
    change_occurrence(operator(), window.pk, START, longer, None, clock.now)
    clock.until(START + 3 * HOUR)
    assert Occurrence.objects.get(starts_at=START).state == "open"
    clock.until(START + 5 * HOUR + timedelta(minutes=1))
    assert Occurrence.objects.get(starts_at=START).state == "over"
    with pytest.raises(Exception, match="is over"):
        change_occurrence(operator(), window.pk, START, {"skipped": True}, None, clock.now)


def test_a_cancelled_window_tells_those_whom_it_had_warned(world: World, clock: Clock) -> None:
    window = opened(world, notice_minutes=60)
    run_gang(world, [4], **saving())
    done = run_gang(world, [5], max_runtime_seconds=9000)
    clock.until(START - timedelta(minutes=30))
    assert len(told("job.maintenance_ahead")) == 2
    type(done.job).objects.filter(pk=done.job_id).update(
        phase="finished", outcome="succeeded", finished_at=clock.now
    )
    cancel_window(operator(), window.pk, None, "", clock.now)
    assert len(told("job.maintenance_off")) == 1
    last: Any = OutboxMessage.objects.order_by("pk").last()
    assert last.subject == "[Muster] New driver: called off"


def test_jobs_placed_after_the_announcement_hear_of_it_once_too(world: World, clock: Clock) -> None:
    opened(world, notice_minutes=90)
    run_gang(world, [4], **saving())
    clock.until(START - timedelta(minutes=80))
    late = run_gang(world, [5], now=clock.now, **saving())
    clock.until(START - timedelta(minutes=30))
    assert [event.job for event in told("job.maintenance_ahead")][1:] == [late.job_id]
    assert OutboxMessage.objects.count() == 2
