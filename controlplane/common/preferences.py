"""What a browser prefers: its time zone and its theme, both plain cookies.

`PreferencesMiddleware` goes after the locale middleware; `preferences` is a template context
processor. Both cookies are written by `static/js/shell.js`.
"""

from collections.abc import Callable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

THEMES = ("auto", "light", "dark")


class PreferencesMiddleware:
    """Renders times in the zone named by the cookie `tz`; the project's own when it is unknown."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        zone = zone_named(request.COOKIES.get("tz", ""))
        if zone is None:
            return self.get_response(request)
        with timezone.override(zone):
            return self.get_response(request)


def zone_named(name: str) -> ZoneInfo | None:
    """The zone, or None for a name that is empty, malformed or unknown."""
    try:
        return ZoneInfo(name) if name and len(name) < 64 else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def preferences(request: HttpRequest) -> dict[str, str]:
    """`theme` and the name of the zone in which this page shows times."""
    theme = request.COOKIES.get("theme", "auto")
    return {
        "theme": theme if theme in THEMES else "auto",
        "zone_name": timezone.get_current_timezone_name(),
    }
