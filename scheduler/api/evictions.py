"""Evictions over REST: who was stopped, for whom, by which rule, at what cost, and what was tried instead."""

from django.db.models import Q, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.pagination import read_choice, read_flag
from queues.api.doors import Door
from queues.selectors.jobs import jobs_visible_to
from scheduler.api.plan_shapes import EvictionAnswer
from scheduler.models import Eviction, EvictionRule
from scheduler.selectors.evictions import eviction_answers, evictions_visible_to
from tenants.access import Actor
from tenants.selectors import tenants_visible_to


class Evictions(Door):
    """The evictions of, and for, jobs that the caller may see."""

    required_scopes = {"GET": "jobs:read"}
    serializer_class = EvictionAnswer
    queryset = Eviction.objects.none()
    seek_order = ("-pk",)

    @extend_schema(
        operation_id="evictions_list",
        parameters=[
            OpenApiParameter("cluster", str, description="Only on this cluster."),
            OpenApiParameter("tenant", str, description="Only of, or for, jobs of this tenant."),
            OpenApiParameter("job", str, description="Only of, or for, this job."),
            OpenApiParameter("rule", str, enum=EvictionRule.values),
            OpenApiParameter("open", bool, description="Only those that have not come to an end."),
        ],
        responses=EvictionAnswer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Newest first. What one side may not see of the other is left out."""
        actor = self.actor()
        return self.page(_wanted(actor, request), lambda rows: eviction_answers(actor, rows))


def _wanted(actor: Actor, request: Request) -> QuerySet[Eviction]:
    """Narrowed by what the caller may see: a filter must not tell what the answer hides."""
    rows, sent = evictions_visible_to(actor), request.query_params
    if cluster := sent.get("cluster"):
        rows = rows.filter(cluster__name=cluster)
    if rule := read_choice(sent, "rule", EvictionRule.values):
        rows = rows.filter(rule=rule)
    if tenant := sent.get("tenant"):
        seen = tenants_visible_to(actor).filter(slug=tenant)
        rows = rows.filter(Q(attempt__job__tenant__in=seen) | Q(preemptor__tenant__in=seen))
    if job := sent.get("job"):
        jobs = jobs_visible_to(actor).filter(pk=job)
        rows = rows.filter(Q(attempt__job__in=jobs) | Q(preemptor__in=jobs))
    if read_flag(sent, "open"):
        rows = rows.filter(Eviction.OPEN)
    return rows
