"""What people type in one field, read into values: spans of time, pairs, commands, volumes. Pure."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

_UNITS: Mapping[str, int] = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(min|s|m|h|d|w)\s*", re.IGNORECASE)


def read_span(text: str) -> int | None:
    """`90m`, `24h`, `1d 12h`, or plain seconds → seconds; None for empty text. Raises ValidationError."""
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 12:
        return int(text)
    found = [(float(number), unit) for number, unit in _PART.findall(text)]
    if not found or _PART.sub("", text).strip() or len(text) > 40:
        raise ValidationError(_("Write a time such as 90m, 24h or 1d 12h."))
    return int(sum(number * _UNITS[unit.lower()] for number, unit in found))


def span_text(seconds: int | None) -> str:
    """Seconds as `read_span` reads them, in the largest units that divide them."""
    if seconds is None:
        return ""
    parts, left = [], seconds
    for unit in ("d", "h", "m", "s"):
        size = _UNITS[unit]
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return " ".join(parts) or "0s"


def read_command(text: str) -> list[str]:
    """A command line as a shell would split it, without running one. Raises ValidationError."""
    try:
        return shlex.split(text, comments=False)
    except ValueError as error:
        raise ValidationError(_("A quote is opened and never closed.")) from error


def read_pairs(text: str) -> dict[str, str]:
    """`NAME=value` lines → mapping; empty lines are left out. Raises ValidationError with the line."""
    pairs: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, mark, value = line.partition("=")
        if not mark or not name.strip():
            raise ValidationError(_("Line {n}: write NAME=value.").format(n=number))
        if name.strip() in pairs:
            raise ValidationError(
                _("Line {n}: {name} stands there twice.").format(n=number, name=name.strip())
            )
        pairs[name.strip()] = value.strip()
    return pairs


def pairs_text(pairs: Mapping[str, str]) -> str:
    """A mapping as `read_pairs` reads it."""
    return "\n".join(f"{name}={value}" for name, value in pairs.items())


def read_words(text: str) -> list[str]:
    """Words between commas, spaces or line ends."""
    return [word for word in re.split(r"[\s,]+", text) if word]


def read_volumes(text: str) -> list[dict[str, Any]]:
    """`claim:/path` or `claim:/path:ro` lines → the contract's volumes. Raises ValidationError."""
    volumes: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        parts = line.strip().split(":")
        if len(parts) not in (2, 3) or parts[2:] not in ([], ["ro"], ["rw"]):
            raise ValidationError(
                _("Line {n}: write claim:/path or claim:/path:ro.").format(n=number)
            )
        volumes.append(
            {"claim": parts[0], "mount_path": parts[1], "read_only": parts[2:] == ["ro"]}
        )
    return volumes


def volumes_text(volumes: list[Mapping[str, Any]]) -> str:
    """Volumes as `read_volumes` reads them."""
    return "\n".join(
        f"{v['claim']}:{v['mount_path']}{':ro' if v.get('read_only') else ''}" for v in volumes
    )


def name_from_image(image: str) -> str:
    """A job's name where none was given: the image's last part, as a DNS label."""
    last = image.rsplit("/", 1)[-1].split("@", 1)[0].split(":", 1)[0]
    return re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")[:50].strip("-") or "job"


def words_text(words: Sequence[str]) -> str:
    """A command line as a shell would read it."""
    return " ".join(shlex.quote(word) for word in words)


def unless_usual(value: str | None, usual: str) -> str:
    """A choice, empty where it is the usual one."""
    return "" if value in (None, usual) else str(value)
