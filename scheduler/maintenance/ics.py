"""The iCalendar format (RFC 5545), as much as a feed of windows needs: events in UTC, folded and escaped. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

LINE_OCTETS = 75


@dataclass(frozen=True, slots=True)
class CalendarEvent:
    """One occurrence. uid: the same in every reading. sequence rises with every change."""

    uid: str
    starts_at: datetime
    ends_at: datetime
    summary: str
    description: str
    location: str
    changed_at: datetime
    sequence: int = 0
    cancelled: bool = False
    url: str = ""


def calendar_text(name: str, events: Iterable[CalendarEvent]) -> str:
    """The whole file, lines ended by CRLF."""
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//Muster//maintenance windows//EN",
        "CALSCALE:GREGORIAN",
        "METHOD:PUBLISH",
        f"X-WR-CALNAME:{escaped(name)}",
    ]
    for event in events:
        lines += _event(event)
    lines.append("END:VCALENDAR")
    return "".join(f"{folded(line)}\r\n" for line in lines)


def _event(event: CalendarEvent) -> list[str]:
    lines = [
        "BEGIN:VEVENT",
        f"UID:{event.uid}",
        f"DTSTAMP:{_stamp(event.changed_at)}",
        f"DTSTART:{_stamp(event.starts_at)}",
        f"DTEND:{_stamp(event.ends_at)}",
        f"SEQUENCE:{event.sequence}",
        f"SUMMARY:{escaped(event.summary)}",
        f"DESCRIPTION:{escaped(event.description)}",
        f"LOCATION:{escaped(event.location)}",
        f"STATUS:{'CANCELLED' if event.cancelled else 'CONFIRMED'}",
        "TRANSP:TRANSPARENT",
    ]
    if event.url:
        lines.append(f"URL:{event.url}")
    return [*lines, "END:VEVENT"]


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def escaped(text: str) -> str:
    """A TEXT value: backslash, semicolon, comma and line ends are spelt out, other controls left out."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for character in ("\\", ";", ","):
        text = text.replace(character, f"\\{character}")
    text = text.replace("\n", "\\n")
    return "".join(character for character in text if character >= " " and character != "\x7f")


def folded(line: str) -> str:
    """A content line in pieces of at most 75 octets, never inside a character."""
    pieces: list[str] = []
    piece, octets = "", 0
    for character in line:
        size = len(character.encode())
        # The space in front of a continued line counts.
        if octets + size > LINE_OCTETS - (1 if pieces else 0):
            pieces.append(piece)
            piece, octets = "", 0
        piece += character
        octets += size
    return "\r\n ".join([*pieces, piece])
