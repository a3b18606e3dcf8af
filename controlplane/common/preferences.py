"""What a browser prefers: its time zone and its theme, both plain cookies.

`PreferencesMiddleware` goes after the locale middleware; `preferences` is a template context
processor. Both cookies are written by `static/js/shell.js`.
"""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from controlplane.common.middleware import AroundMiddleware

THEMES = ("auto", "light", "dark")


class PreferencesMiddleware(AroundMiddleware):
    """Renders times in the zone named by the cookie `tz`; the project's own when it is unknown."""

    def before(self, request: HttpRequest) -> None:
        """Choose the zone for this request."""
        zone = zone_named(request.COOKIES.get("tz", ""))
        if zone is not None:
            timezone.activate(zone)

    def after(
        self, request: HttpRequest, response: HttpResponseBase, state: object
    ) -> HttpResponseBase:
        """Forget it: the next request of this thread is another's."""
        timezone.deactivate()
        return response


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
