"""The feed's text is what RFC 5545 asks for: CRLF, lines of at most 75 octets, escaped texts."""

import re
from datetime import UTC, datetime

from scheduler.maintenance.ics import CalendarEvent, calendar_text, escaped, folded

START = datetime(2027, 1, 5, 2, 0, tzinfo=UTC)


def event(**changes: object) -> CalendarEvent:
    facts: dict[str, object] = {
        "uid": "window-7-20270105T020000Z@muster",
        "starts_at": START,
        "ends_at": START.replace(hour=4),
        "summary": "New driver; leaf-02, leaf-03",
        "description": "first line\nsecond \\ line",
        "location": "demo",
        "changed_at": START,
    }
    return CalendarEvent(**(facts | changes))  # type: ignore[arg-type]


def unfolded(text: str) -> list[str]:
    assert text.endswith("\r\n")
    assert not re.search(r"(?<!\r)\n|\r(?!\n)", text)
    return text.removesuffix("\r\n").replace("\r\n ", "").split("\r\n")


def test_an_event_has_all_that_readers_need() -> None:
    lines = unfolded(calendar_text("Muster demo", [event(sequence=3)]))
    assert lines[0] == "BEGIN:VCALENDAR"
    assert lines[-2:] == ["END:VEVENT", "END:VCALENDAR"]
    assert "DTSTART:20270105T020000Z" in lines
    assert "DTEND:20270105T040000Z" in lines
    assert "SUMMARY:New driver\\; leaf-02\\, leaf-03" in lines
    assert "DESCRIPTION:first line\\nsecond \\\\ line" in lines
    assert "SEQUENCE:3" in lines
    assert "STATUS:CONFIRMED" in lines
    assert "STATUS:CANCELLED" in unfolded(calendar_text("x", [event(cancelled=True)]))


def test_lines_are_folded_by_octets_and_never_inside_a_character() -> None:
    title = "维护窗口 " * 40
    text = calendar_text("Muster", [event(summary=title)])
    assert all(len(line.encode()) <= 75 for line in text.split("\r\n"))
    assert f"SUMMARY:{title}" in unfolded(text)


def test_a_line_that_just_fits_is_not_folded() -> None:
    assert folded("x" * 75) == "x" * 75
    assert folded("x" * 76) == "x" * 75 + "\r\n x"


def test_what_people_type_cannot_add_lines() -> None:
    nasty = "a\r\nEND:VEVENT\r\nBEGIN:VEVENT\x00\x1b"
    assert escaped(nasty) == "a\\nEND:VEVENT\\nBEGIN:VEVENT"
    assert unfolded(calendar_text(nasty, [event(summary=nasty)])).count("BEGIN:VEVENT") == 1
