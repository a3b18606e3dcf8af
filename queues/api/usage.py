"""GPU hours over REST: `GET usage/?from=&to=&group_by=tenant,day`."""

from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.pagination import cut_page, query_error
from queues.api import shapes
from queues.api.doors import Door
from queues.selectors.answers import time_text
from queues.selectors.usage import GROUPS, usage_visible_to

# As long as attempts are kept.
LONGEST = timedelta(days=400)
UNLESS_SAID = timedelta(days=30)


class Usage(Door):
    """What was used."""

    required_scopes = {"read": "jobs:read"}
    serializer_class = shapes.UsageAnswer

    @extend_schema(
        operation_id="usage_retrieve",
        parameters=[
            OpenApiParameter(
                "from", str, description="Time or date (UTC); 30 days before `to` unless said."
            ),
            OpenApiParameter("to", str, description="Time or date (UTC), not included; now."),
            OpenApiParameter(
                "group_by",
                str,
                description=f"One or more of {', '.join(GROUPS)}, with commas; tenant unless said.",
            ),
            OpenApiParameter("limit", int, description="Groups on a page, at most 200."),
            OpenApiParameter("cursor", str, description="Where the page begins, from `next`."),
        ],
        responses={200: shapes.UsageAnswer, 422: shapes.ProblemShape},
    )
    def get(self, request: Request) -> Response:
        """GPU hours by group, of the tenants that the caller sees; what runs counts until now."""
        now = timezone.now()
        since, until = _stretch(request, now)
        groups = _groups(request.query_params.get("group_by", ""))
        found = usage_visible_to(self.actor(), since, until, groups, now)
        told = {"from": str(time_text(since)), "to": str(time_text(until))}
        shown, following = cut_page(request, [each.key for each in found], len(groups), told)
        return Response(
            {
                **told,
                "group_by": groups,
                "results": [each.answer(groups) for each in found[shown]],
                "next": following,
            }
        )


def _stretch(request: Request, now: datetime) -> tuple[datetime, datetime]:
    until = min(_moment(request, "to") or now, now)
    since = _moment(request, "from") or until - UNLESS_SAID
    if since >= until:
        raise query_error("from", "too_late", _("must be before “to”, and in the past"))
    if until - since > LONGEST:
        message = _("must be at most {days} days before “to”").format(days=LONGEST.days)
        raise query_error("from", "too_early", message)
    return since, until


def _moment(request: Request, name: str) -> datetime | None:
    """A query parameter that is a time with its zone, or a date: its first moment in UTC."""
    sent = request.query_params.get(name, "")
    if not sent:
        return None
    try:
        day = parse_date(sent)
        at = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else parse_datetime(sent)
        if at is not None and at.tzinfo is not None:
            return at.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):
        pass
    raise query_error(
        name, "not_a_time", _("must be a time such as 2026-11-29T12:00:00Z, or a date")
    )


def _groups(sent: str) -> list[str]:
    groups = [name.strip() for name in sent.split(",")] if sent else ["tenant"]
    if any(name not in GROUPS for name in groups) or len(set(groups)) < len(groups):
        message = _("must be some of {options}, each once").format(options=", ".join(GROUPS))
        raise query_error("group_by", "not_a_choice", message)
    return groups
