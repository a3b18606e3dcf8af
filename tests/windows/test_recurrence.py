"""Recurrences keep the wall clock over both changes of it, and wrong rules are named."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from scheduler.maintenance.recurrence import (
    Recurrence,
    RecurrenceError,
    Span,
    check_rule,
    zone_of,
)

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


def span(year: int, month: int, day: int, hour: int, minute: int = 0, *, zone: ZoneInfo) -> Span:
    start = datetime(year, month, day, hour, minute, tzinfo=zone).astimezone(UTC)
    return Span(start, start + timedelta(hours=2))


def starts(found: Recurrence, count: int) -> list[str]:
    since = found.first.starts_at
    spans = list(found.spans(since, since + timedelta(days=366)))[:count]
    return [f"{each.starts_at:%m-%d %H:%M}" for each in spans]


def test_wall_clock_time_stays_when_summer_time_begins() -> None:
    found = Recurrence(span(2027, 3, 23, 4, zone=BERLIN), BERLIN, "FREQ=WEEKLY;BYDAY=TU")
    assert starts(found, 3) == ["03-23 03:00", "03-30 02:00", "04-06 02:00"]


def test_wall_clock_time_stays_when_summer_time_ends() -> None:
    found = Recurrence(span(2027, 10, 26, 4, zone=BERLIN), BERLIN, "FREQ=WEEKLY;BYDAY=TU")
    assert starts(found, 3) == ["10-26 02:00", "11-02 03:00", "11-09 03:00"]


def test_a_time_that_the_clocks_skip_happens_by_the_old_offset() -> None:
    # 2:30 does not exist in New York on 14 March 2027: it is 3:30 in summer time, 7:30 UTC.
    found = Recurrence(span(2027, 3, 13, 2, 30, zone=NEW_YORK), NEW_YORK, "FREQ=DAILY")
    assert starts(found, 3) == ["03-13 07:30", "03-14 07:30", "03-15 06:30"]


def test_a_time_that_the_clocks_repeat_happens_once_the_first_time() -> None:
    found = Recurrence(span(2027, 11, 6, 1, 30, zone=NEW_YORK), NEW_YORK, "FREQ=DAILY")
    assert starts(found, 3) == ["11-06 05:30", "11-07 05:30", "11-08 06:30"]


def test_an_occurrence_over_the_change_is_as_long_as_all_others() -> None:
    found = Recurrence(span(2027, 3, 27, 1, zone=BERLIN), BERLIN, "FREQ=DAILY")
    since = found.first.starts_at
    lengths = {s.ends_at - s.starts_at for s in found.spans(since, since + timedelta(days=4))}
    assert lengths == {timedelta(hours=2)}


def test_spans_are_those_that_overlap_the_asked_time() -> None:
    found = Recurrence(span(2027, 1, 1, 12, zone=ZoneInfo("UTC")), ZoneInfo("UTC"), "FREQ=DAILY")
    middle = datetime(2027, 1, 10, 13, tzinfo=UTC)
    days = [s.starts_at.day for s in found.spans(middle, middle + timedelta(days=2))]
    assert days == [10, 11, 12]
    at_the_end = datetime(2027, 1, 10, 14, tzinfo=UTC)
    assert next(found.spans(at_the_end, at_the_end + timedelta(days=2))).starts_at.day == 11


def test_once_means_once() -> None:
    found = Recurrence(span(2027, 1, 1, 12, zone=BERLIN), BERLIN)
    since = found.first.starts_at
    assert list(found.spans(since, since + timedelta(days=900))) == [found.first]
    assert list(found.spans(found.first.ends_at, since + timedelta(days=900))) == []


@pytest.mark.parametrize(
    ("rule", "last"),
    [
        ("FREQ=DAILY;COUNT=3", "01-03 11:00"),
        ("FREQ=DAILY;UNTIL=20270105T110000Z", "01-05 11:00"),
        ("FREQ=DAILY;UNTIL=20270105T105959Z", "01-04 11:00"),
        ("FREQ=WEEKLY;INTERVAL=2;COUNT=2", "01-15 11:00"),
        ("FREQ=MONTHLY;BYDAY=1FR;COUNT=3", "03-05 11:00"),
    ],
)
def test_rules_end_when_they_say(rule: str, last: str) -> None:
    first = span(2027, 1, 1, 12, zone=BERLIN)
    found = Recurrence(first, BERLIN, check_rule(rule, first, BERLIN))
    assert starts(found, 366)[-1] == last


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("every tuesday", "rrule_malformed"),
        ("", "rrule_malformed"),
        ("FREQ=WEEKLY;FREQ=DAILY", "rrule_malformed"),
        ("FREQ=WEEKLY;BYDAY=XX", "rrule_malformed"),
        ("FREQ=WEEKLY;INTERVAL=0", "rrule_malformed"),
        ("FREQ=WEEKLY;INTERVAL=-1", "rrule_malformed"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20270105T110000Z", "rrule_malformed"),
        ("FREQ=DAILY;UNTIL=tomorrowZ", "rrule_malformed"),
        ("FREQ=HOURLY", "rrule_frequency"),
        ("FREQ=SECONDLY", "rrule_frequency"),
        ("BYDAY=TU", "rrule_frequency"),
        ("FREQ=DAILY;BYHOUR=3", "rrule_part"),
        ("FREQ=DAILY;EXDATE=20270101", "rrule_part"),
        ("FREQ=DAILY\nEXDATE:20270101T000000", "rrule_too_long"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "rrule_empty"),
        ("FREQ=WEEKLY;BYDAY=TU", "rrule_start"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", "rrule_start"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_named(rule: str, code: str) -> None:
    with pytest.raises(RecurrenceError) as refused:
        check_rule(rule, span(2027, 1, 1, 12, zone=BERLIN), BERLIN)
    assert refused.value.code == code


def test_occurrences_must_not_overlap() -> None:
    start = datetime(2027, 1, 1, 12, tzinfo=UTC)
    long = Span(start, start + timedelta(hours=25))
    with pytest.raises(RecurrenceError) as refused:
        check_rule("FREQ=DAILY", long, zone_of("UTC"))
    assert refused.value.code == "rrule_overlap"
    # 23 h fit into every day but the one that the clocks shorten by an hour: back to back is no overlap.
    berlin = Span(start, start + timedelta(hours=23))
    assert check_rule("rrule:freq=daily", berlin, BERLIN) == "FREQ=DAILY"


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../etc/passwd", "Europe", "+02:00", "\x00"])
def test_an_unknown_zone_is_named(name: str) -> None:
    with pytest.raises(RecurrenceError) as refused:
        zone_of(name)
    assert refused.value.code == "unknown_zone"


def test_one_time_can_be_skipped_or_moved_and_still_counts() -> None:
    first = Span(datetime(2027, 1, 5, 2, tzinfo=UTC), datetime(2027, 1, 5, 4, tzinfo=UTC))
    second, third = (first.starts_at + timedelta(days=7 * n) for n in (1, 2))
    moved = Span(third + timedelta(days=10), third + timedelta(days=10, hours=1), third)
    rule = "FREQ=WEEKLY;COUNT=4"
    series = Recurrence(first, ZoneInfo("UTC"), rule, {second: None, third: moved})
    spans = list(series.spans(first.starts_at, first.starts_at + timedelta(days=90)))
    fourth = first.starts_at + timedelta(days=21)
    assert [span.starts_at for span in spans] == [first.starts_at, fourth, moved.starts_at]
    assert [span.by_rule for span in spans] == [first.starts_at, fourth, third]
    late = list(series.spans(fourth + timedelta(hours=3), first.starts_at + timedelta(days=90)))
    assert late == [moved]
    assert series.by_rule(second) == Span(second, second + timedelta(hours=2))
    assert series.by_rule(second + timedelta(hours=1)) is None
