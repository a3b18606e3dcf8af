"""Amounts as people read them: counts, spans of time, moments, memory. Called by tags and looks."""

from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _

MINUTE, HOUR, DAY = 60, 3600, 86400
NONE = "–"


def count(value: float | None) -> str:
    """A number with narrow spaces between thousands, one decimal only where it has any."""
    if value is None:
        return NONE
    text = f"{value:,.1f}" if value % 1 else f"{int(value):,}"
    return text.replace(",", "\u202f")


def duration(value: float | timedelta | None) -> str:
    """Seconds as two units at most: `45 s`, `12 min`, `2 h 05`, `3 d 4 h`, `1 d`."""
    if value is None:
        return NONE
    seconds = max(0, int(value.total_seconds() if isinstance(value, timedelta) else value))
    if seconds < MINUTE:
        return _("{n} s").format(n=seconds)
    if seconds < HOUR:
        return _("{n} min").format(n=seconds // MINUTE)
    if seconds < DAY:
        return _("{h} h {m}").format(h=seconds // HOUR, m=f"{seconds % HOUR // MINUTE:02d}")
    if seconds % DAY < HOUR:
        return _("{d} d").format(d=seconds // DAY)
    return _("{d} d {h} h").format(d=seconds // DAY, h=seconds % DAY // HOUR)


def moment(at: datetime) -> str:
    """The time of day in the reader's zone, with the date when it is not today."""
    local = timezone.localtime(at)
    return f"{local:%H:%M}" if local.date() == timezone.localdate() else f"{local:%m-%d %H:%M}"


def exact(at: datetime) -> str:
    """Date, time and zone in full: what a title shows."""
    local = timezone.localtime(at)
    return f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}"


def memory(mebibytes: int | None) -> str:
    """Mebibytes in the unit that reads best."""
    if mebibytes is None:
        return NONE
    return f"{count(mebibytes // 1024)} GiB" if mebibytes >= 1024 else f"{count(mebibytes)} MiB"


def cores(millis: int | None) -> str:
    """Thousandths of a core as cores."""
    return NONE if millis is None else count(millis / 1000)
