"""When a window happens: once, or by an iCalendar rule (RFC 5545) whose wall-clock time stays the same in its zone.

A start that the clocks skip (spring) happens when it would have by the old offset; one that they repeat (autumn)
happens the first time, as RFC 5545 section 3.3.5 says. An occurrence is as long as the first one, in real seconds.
One of them may be skipped or moved (EXDATE and RECURRENCE-ID there): it still counts for COUNT.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.rrule import rrule, rrulestr
from django.utils.translation import gettext as _

LONGEST_RULE = 300
FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
# The time of day comes from the start alone.
PARTS = frozenset(
    {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO"}
    | {"BYMONTH", "BYSETPOS"}
)
MOST_INTERVAL = 366
# A rule that names no day within so long names none: the 30th of February.
LOOK_AHEAD = timedelta(days=5 * 366)
# Nobody asks for an occurrence that is further off.
LONGEST_SERIES = timedelta(days=50 * 366)
# Occurrences that are looked at for overlaps.
LOOK_AT = 400


class RecurrenceError(ValueError):
    """A rule or zone that cannot be followed. `code` is stable, the text says what would be right."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Span:
    """[starts_at, ends_at) in UTC. moved_from: when it would begin by the rule, where it was moved."""

    starts_at: datetime
    ends_at: datetime
    moved_from: datetime | None = None

    @property
    def by_rule(self) -> datetime:
        """When it begins by the rule: what it is known by, wherever it was moved."""
        return self.moved_from or self.starts_at


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The first occurrence, and by which rule it comes again; an empty rule: never.

    exceptions: by its start by the rule, where an occurrence was moved to; None where it is skipped.
    """

    first: Span
    zone: ZoneInfo
    rule: str = ""
    exceptions: Mapping[datetime, Span | None] = field(default_factory=dict)

    def spans(self, after: datetime, before: datetime) -> Iterator[Span]:
        """Occurrences that end after `after` and start before `before`, in order."""
        by_rule = (span for span in self._spans(after) if span.starts_at not in self.exceptions)
        moved = sorted(filter(None, self.exceptions.values()), key=_start)
        both = merge(by_rule, moved, key=_start)
        for span in takewhile(lambda span: span.starts_at < before, both):
            if span.ends_at > after:
                yield span

    def by_rule(self, at: datetime) -> Span | None:
        """The occurrence that begins at `at` by the rule, exceptions or not; None where none does."""
        if not self.first.starts_at <= at <= self.first.starts_at + LONGEST_SERIES:
            return None
        moment = timedelta(seconds=1)
        plain = Recurrence(self.first, self.zone, self.rule)
        return next((s for s in plain.spans(at, at + moment) if s.starts_at == at), None)

    def _spans(self, after: datetime) -> Iterator[Span]:
        if not self.rule:
            yield self.first
            return
        length = self.first.ends_at - self.first.starts_at
        first = _wall(self.first.starts_at, self.zone)
        since = _wall(max(after - length, self.first.starts_at), self.zone) - timedelta(days=1)
        for wall in _parsed(self.rule, first, self.zone).xafter(since, inc=True):
            starts_at = wall.replace(tzinfo=self.zone).astimezone(UTC)
            yield Span(starts_at, starts_at + length)


def _start(span: Span) -> datetime:
    return span.starts_at


def zone_of(name: str) -> ZoneInfo:
    """The IANA zone. Raises RecurrenceError `unknown_zone`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = _("must be the IANA name of a time zone, such as Europe/Berlin or UTC")
        raise RecurrenceError("unknown_zone", message) from None


def check_rule(rule: str, first: Span, zone: ZoneInfo) -> str:
    """The rule, upper case and without its name in front. Raises RecurrenceError where it cannot be followed."""
    text = rule.strip().upper().removeprefix("RRULE:")
    if len(text) > LONGEST_RULE or "\n" in text or "\r" in text:
        raise RecurrenceError("rrule_too_long", _("must be one rule on one line"))
    parts = _parts(text)
    _check_parts(parts)
    start = _wall(first.starts_at, zone)
    _check_first(text, start, zone)
    _check_overlaps(Recurrence(first, zone, text))
    return text


def _parts(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value or name in found:
            message = _("must be parts such as FREQ=WEEKLY;BYDAY=TU, each named once")
            raise RecurrenceError("rrule_malformed", message)
        found[name] = value
    return found


def _check_parts(parts: dict[str, str]) -> None:
    unknown = sorted(set(parts) - PARTS)
    if unknown:
        message = _("{part} cannot be used here; the time of day comes from starts_at")
        raise RecurrenceError("rrule_part", message.format(part=unknown[0]))
    if parts.get("FREQ") not in FREQUENCIES:
        message = _("FREQ must be one of {choices}").format(choices=", ".join(FREQUENCIES))
        raise RecurrenceError("rrule_frequency", message)
    if "COUNT" in parts and "UNTIL" in parts:
        raise RecurrenceError("rrule_malformed", _("has COUNT or UNTIL, not both"))
    for name in ("INTERVAL", "COUNT"):
        value = parts.get(name, "1")
        if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:9]) <= MOST_INTERVAL:
            message = _("{part} must be a number from 1 to {most}")
            raise RecurrenceError("rrule_malformed", message.format(part=name, most=MOST_INTERVAL))


def _check_first(text: str, start: datetime, zone: ZoneInfo) -> None:
    """The first occurrence follows the rule too. COUNT is left out, since it cannot go with a bound."""
    bare = ";".join(p for p in text.split(";") if not p.startswith(("COUNT=", "UNTIL=")))
    _parsed(text, start, zone)
    bounded = _parsed(bare, start, zone).replace(until=start + LOOK_AHEAD)
    following = next(iter(bounded), None)
    if following is None:
        raise RecurrenceError("rrule_empty", _("names no day within five years"))
    if following != start:
        message = _("starts_at does not follow the rule: the first day that does is {day}")
        raise RecurrenceError("rrule_start", message.format(day=following.date().isoformat()))


def _check_overlaps(recurrence: Recurrence) -> None:
    since = recurrence.first.starts_at
    spans = recurrence.spans(since, since + LOOK_AHEAD)
    for number, (one, other) in enumerate(pairwise(spans)):
        if other.starts_at < one.ends_at:
            message = _("an occurrence would begin before the one ahead of it has ended")
            raise RecurrenceError("rrule_overlap", message)
        if number >= LOOK_AT:
            return


def _parsed(text: str, start: datetime, zone: ZoneInfo) -> rrule:
    """The rule on wall-clock times without a zone: dateutil would count in offsets, which summer time changes."""
    try:
        found = rrulestr(_until_on_the_wall(text, zone), dtstart=start)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError):
        message = _("is no recurrence rule of RFC 5545")
        raise RecurrenceError("rrule_malformed", message) from None
    if not isinstance(found, rrule):
        raise RecurrenceError("rrule_malformed", _("must be one rule on one line"))
    return found


def _until_on_the_wall(text: str, zone: ZoneInfo) -> str:
    """UNTIL in UTC (as RFC 5545 wants it beside a zone) as the zone's wall clock shows it."""
    parts = _parts(text)
    until = parts.get("UNTIL", "")
    if until.endswith("Z"):
        try:
            moment = datetime.strptime(until, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            message = _("UNTIL must be a time such as 20271231T235959Z")
            raise RecurrenceError("rrule_malformed", message) from None
        parts["UNTIL"] = f"{_wall(moment, zone):%Y%m%dT%H%M%S}"
    return ";".join(f"{name}={value}" for name, value in parts.items())


def _wall(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)
