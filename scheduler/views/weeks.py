"""A week of the calendar, drawn: seven days of 24 hours, side by side; on a phone the chosen day alone.

Called by `scheduler.views.calendar`. Times are those of the reader's zone, on the wall: where the clocks change an hour
is drawn once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from django.utils import timezone

from controlplane.common.looks import Look

HOUR = 22
"""Pixels."""
LEAST = 18
"""A shorter one could not be hit, or read."""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something from one moment to another. name: its title; where: which nodes, in words; tag: "", or what is odd."""

    starts_at: datetime
    ends_at: datetime
    pk: int
    name: str
    where: str
    look: Look
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A happening's part of a day. y and height in pixels, x and width in percent."""

    what: Happening
    x: str
    y: int
    width: str
    height: int
    begins: bool
    """False where it went on from the day before."""
    ends: bool
    """False where it goes on to the next day."""


@dataclass(frozen=True, slots=True)
class DayColumn:
    """A day. now: where the present is, in pixels, on the day that is today."""

    date: date
    today: bool
    chosen: bool
    boxes: Sequence[Box]
    now: int | None


def week_of(day: date) -> list[date]:
    """The week that a day lies in, from Monday."""
    monday = day - timedelta(days=day.weekday())
    return [monday + timedelta(days=number) for number in range(7)]


def columns_of(chosen: date, happenings: Iterable[Happening], now: datetime) -> list[DayColumn]:
    """The seven days, each with what happens on it."""
    known = list(happenings)
    local = timezone.localtime(now)
    return [
        DayColumn(
            date=day,
            today=day == local.date(),
            chosen=day == chosen,
            boxes=_boxes(day, known),
            now=_pixels(local) if day == local.date() else None,
        )
        for day in week_of(chosen)
    ]


def bounds_of(days: Sequence[date]) -> tuple[datetime, datetime]:
    """From the first midnight to the last, in the reader's zone."""
    zone = timezone.get_current_timezone()
    start = datetime.combine(days[0], time.min, zone)
    return start, datetime.combine(days[-1] + timedelta(days=1), time.min, zone)


def _boxes(day: date, happenings: Iterable[Happening]) -> list[Box]:
    """Those of a day, side by side where they are on together."""
    parts = []
    for each in happenings:
        starts, ends = timezone.localtime(each.starts_at), timezone.localtime(each.ends_at)
        goes_on = starts.date() < day and (
            day < ends.date() or (day == ends.date() and _pixels(ends))
        )
        if starts.date() == day or goes_on:
            top = _pixels(starts) if starts.date() == day else 0
            bottom = _pixels(ends) if ends.date() == day else 24 * HOUR
            top = min(top, 24 * HOUR - LEAST)
            parts.append((top, max(bottom, top + LEAST), each))
    parts.sort(key=lambda part: (part[0], -part[1], part[2].pk))
    lanes = _lanes([(top, bottom) for top, bottom, _each in parts])
    return [
        _box(day, each, (top, bottom), lane)
        for (top, bottom, each), lane in zip(parts, lanes, strict=True)
    ]


def _box(day: date, what: Happening, span: tuple[int, int], lane: tuple[int, int]) -> Box:
    number, of = lane
    return Box(
        what,
        x=f"{100 * number / of:.2f}%",
        y=span[0],
        width=f"{100 / of:.2f}%",
        height=span[1] - span[0],
        begins=timezone.localtime(what.starts_at).date() == day,
        ends=timezone.localtime(what.ends_at - timedelta(microseconds=1)).date() == day,
    )


def _lanes(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(lane, how many lanes) of each of `spans`, sorted by start; a group that hangs together shares its width."""
    found: list[tuple[int, int]] = []
    group: list[int] = []
    ends: list[int] = []

    def close() -> None:
        found.extend((lane, len(ends)) for lane in group)
        group.clear()
        ends.clear()

    for top, bottom in spans:
        if ends and top >= max(ends):
            close()
        free = next((lane for lane, end in enumerate(ends) if end <= top), len(ends))
        if free == len(ends):
            ends.append(bottom)
        else:
            ends[free] = bottom
        group.append(free)
    close()
    return found


def _pixels(at: datetime) -> int:
    return round((at.hour + at.minute / 60) * HOUR)
