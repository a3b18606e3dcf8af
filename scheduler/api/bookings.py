"""Bookings over REST: the future starts that the planner keeps for blocked jobs."""

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from queues.api.doors import Door
from scheduler.api.plan_shapes import BookingAnswer
from scheduler.models import Booking
from scheduler.selectors.bookings import booking_answers, bookings_visible_to
from scheduler.services.nodes import cluster_of


class Bookings(Door):
    """What is kept on one cluster for jobs that the caller may see."""

    required_scopes = {"GET": "jobs:read"}
    serializer_class = BookingAnswer
    queryset = Booking.objects.none()
    seek_order = ("starts_at", "pk")

    @extend_schema(
        operation_id="clusters_bookings",
        parameters=[OpenApiParameter("tenant", str, description="Only of jobs of this tenant.")],
        responses=BookingAnswer(many=True),
    )
    def get(self, request: Request, cluster: str) -> Response:
        """The soonest first. No start moves one later; what it moves by time alone is rewritten."""
        rows = bookings_visible_to(self.actor()).filter(cluster=cluster_of(cluster))
        if tenant := request.query_params.get("tenant"):
            rows = rows.filter(job__tenant__slug=tenant)
        return self.page(rows, booking_answers)
