"""Doors to the planner's answers: simulate, explain, quota preview. They block while it thinks, at most 2 s."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.parsers import json_object
from queues.api.doors import Door
from queues.api.shapes import JobSent, ProblemShape, QuotasSent
from queues.ids import new_job_ids
from queues.lifecycle import Phase
from queues.models import Flavor, Job, Preset, Queue
from queues.selectors.answers import time_text
from queues.selectors.jobs import job_of
from queues.selectors.quotas import quota_answer
from queues.selectors.waiting import Said
from queues.services.quotas import QuotaDraft, draft_quotas
from queues.services.rows import job_row, role_rows
from queues.services.validation import validate_job
from queues.specs import JobSpec
from scheduler.api import shapes
from scheduler.api.plan_shapes import ExplanationAnswer
from scheduler.kube.manifests import pod_name
from scheduler.reconcile.describe import Gang, Seat, attempt_name, example_manifests
from scheduler.selectors.bookings import booking_answer, booking_of
from scheduler.selectors.evictions import evictions_of
from scheduler.selectors.history import reason_history
from scheduler.services.whatif import (
    QUOTA_GROUPS,
    Explanation,
    Likely,
    QuotaPreview,
    QuotaState,
    Simulation,
    clusters_touched,
    explain,
    plan_id_of,
    preview_quotas,
    simulate,
)
from tenants.access import Actor
from tenants.selectors import tenant_of

Json = dict[str, Any]


class Simulate(Door):
    """A job that is not stored."""

    required_scopes = {"write": "jobs:read"}
    rate_limit = "simulate"
    serializer_class = shapes.SimulationAnswer

    @extend_schema(
        operation_id="jobs_simulate",
        request=JobSent,
        responses={200: shapes.SimulationAnswer, 422: ProblemShape, 503: ProblemShape},
    )
    def post(self, request: Request) -> Response:
        """What would become of the job, by the planner that would place it. Nothing is stored."""
        actor, now = self.actor(), timezone.now()
        spec = validate_job(actor, json_object(request), now)
        return Response(simulation_answer(actor, spec, simulate(actor, spec, now), now))


def simulation_answer(actor: Actor, spec: JobSpec, found: Simulation, now: datetime) -> Json:
    """The contract's answer."""
    job = _unsaved(actor, spec, now)
    name = attempt_name(job, 1)
    return {
        "verdict": found.verdict,
        **reasons_answer(found.reasons),
        "estimated_start": estimate_answer(found.likely),
        "position": found.position,
        "placement": [
            {
                "role": seat.role,
                "replica": seat.replica,
                "rank": seat.rank,
                "pod": pod_name(name, seat.role, seat.replica, 1),
                "node": seat.node,
                "gpus": seat.gpus,
                "domains": dict(seat.domains),
            }
            for seat in found.seats
        ],
        "quota": {"before": _quota(found.quota_before), "after": _quota(found.quota_after)},
        "pods": example_manifests(_gang(job, spec, found)),
    }


def _unsaved(actor: Actor, spec: JobSpec, now: datetime) -> Job:
    """The row that the job would become, with what its pods are described by."""
    job = job_row(spec, next(new_job_ids(now, 1)), actor.user.pk, now)
    job.queue = Queue.objects.select_related("tenant", "cluster").get(pk=spec.queue_id)
    job.tenant, job.user = job.queue.tenant, actor.user
    job.preset = Preset.objects.get(pk=spec.preset_id) if spec.preset_id else None
    return job


def _gang(job: Job, spec: JobSpec, found: Simulation) -> Gang:
    """The gang where it would sit; without a place, in the order of its roles."""
    seats = [Seat(s.role, s.replica, s.rank, s.node) for s in found.seats] or [
        Seat(role, replica, rank, "")
        for rank, (role, replica) in enumerate(
            (role.name, replica) for role in spec.roles for replica in range(role.replicas)
        )
    ]
    flavors = Flavor.objects.filter(
        cluster=job.queue.cluster, name=found.flavor or next(iter(spec.flavors), "")
    )
    resource = flavors.values_list("resource_name", flat=True).first() or ""
    return Gang(job, role_rows(spec, job.pk), 1, resource, seats, settings.PUBLIC_URL)


def _quota(state: QuotaState | None) -> Json | None:
    if state is None:
        return None
    return {
        "flavor": state.flavor,
        "nominal": state.nominal,
        "used": state.used,
        "borrowed": state.borrowed,
        "available": state.available,
    }


class Explain(Door):
    """Why one job waits."""

    required_scopes = {"GET": "jobs:read"}
    serializer_class = ExplanationAnswer

    @extend_schema(
        operation_id="jobs_explain",
        responses={200: ExplanationAnswer, 503: ProblemShape},
    )
    def get(self, request: Request, job_id: str) -> Response:
        """The planner's checks, the jobs ahead, the booking, and what would make it start, each change tried."""
        actor = self.actor()
        job = job_of(actor, job_id)
        history = [
            {"since": time_text(told.since), "code": told.code} for told in reason_history(job)
        ]
        found = explain(actor, job) if job.phase == Phase.PENDING else NOTHING_TO_EXPLAIN
        booking = booking_of(job) if job.phase == Phase.PENDING else None
        return Response(
            explanation_answer(found)
            | {
                "booking": booking_answer(booking) if booking else None,
                "evictions": evictions_of(actor, job),
                "history": history,
            }
        )


NOTHING_TO_EXPLAIN = Explanation((), (), (), None, ())


def explanation_answer(found: Explanation) -> Json:
    """The contract's answer, without what rows tell."""
    return {
        **reasons_answer(found.reasons),
        "checks": [
            {"check": check.name, "ok": check.ok, "numbers": dict(check.numbers)}
            for check in found.checks
        ],
        "ahead": [
            {
                **({"job": ahead.job} if ahead.job else {"hidden": True}),
                "gpus": ahead.gpus,
                "state": ahead.state,
                "expected_end": time_text(ahead.expected_end),
            }
            for ahead in found.ahead
        ],
        "estimated_start": estimate_answer(found.likely),
        "counterfactuals": [
            {
                "change": dict(tried.change),
                "verdict": tried.verdict,
                "estimated_start": estimate_answer(tried.likely),
            }
            for tried in found.counterfactuals
        ],
        "counterfactuals_at": time_text(found.tried_at),
    }


def reasons_answer(said: Sequence[Said]) -> Json:
    """`reason`, the dominant one, and all `reasons`."""
    answers = [each.answer for each in said]
    return {"reason": answers[0] if answers else None, "reasons": answers}


def estimate_answer(likely: Likely | None) -> Json | None:
    """The range of a planned start."""
    if likely is None:
        return None
    return {"p50": time_text(likely.p50), "p90": time_text(likely.p90)}


class QuotaPreviewDoor(Door):
    """Quotas as they would be."""

    required_scopes = {"write": "quotas:read"}
    rate_limit = "simulate"
    serializer_class = shapes.QuotaPreviewAnswer

    @extend_schema(
        operation_id="quotas_preview",
        request=QuotasSent,
        responses={
            200: shapes.QuotaPreviewAnswer,
            403: ProblemShape,
            422: ProblemShape,
            503: ProblemShape,
        },
    )
    def post(self, request: Request, tenant: str) -> Response:
        """What a PUT of this body would change, by the planner. Nothing is stored."""
        actor = self.actor()
        found = tenant_of(actor, tenant)
        draft = draft_quotas(actor, found, json_object(request))
        clusters = clusters_touched(draft.before, draft.after)
        previews = [preview_quotas(actor, found, cluster, draft.after) for cluster in clusters]
        answer = _with_draft(quota_answer(found), draft)
        return Response(answer | preview_answer(previews))


def preview_answer(previews: Sequence[QuotaPreview]) -> Json:
    """What a change does, over all clusters that it touches."""
    over = [each for preview in previews for each in preview.over]
    warnings = [
        _("{name} would use {gpus} GPUs of {flavor} more than it may.").format(
            name=name or _("Another tenant"), gpus=gpus, flavor=flavor
        )
        for name, flavor, gpus in over
    ]
    evicted = any(preview.evicted or preview.hidden["evicted"] for preview in previews)
    return {
        "plan_id": plan_id_of(preview.plan_id for preview in previews),
        "fits": not over and not evicted,
        **{group: _jobs(previews, group) for group in QUOTA_GROUPS},
        "warnings": warnings,
    }


def _jobs(previews: Sequence[QuotaPreview], group: str) -> list[Json]:
    named: list[Json] = [{"job": job} for each in previews for job in getattr(each, group)]
    hidden = sum(each.hidden[group] for each in previews)
    return [*named, {"hidden": hidden}] if hidden else named


def _with_draft(answer: Json, draft: QuotaDraft) -> Json:
    """The quotas' answer with the drafted amounts in place of the stored ones."""
    by_place = {
        (flavor.cluster.name, flavor.name): quota
        for flavor in Flavor.objects.filter(pk__in=draft.after.flavors).select_related("cluster")
        for quota in (draft.after.flavors[flavor.pk],)
    }
    flavors = []
    for row in answer["flavors"]:
        quota = by_place.get((row["cluster"], row["flavor"].rpartition("/")[2]))
        if quota is not None:
            row = row | {
                "nominal": quota.nominal,
                "borrowing_limit": quota.borrowing_limit,
                "lending_limit": quota.lending_limit,
                "weight": float(quota.weight),
                "headroom": quota.headroom,
            }
        flavors.append(row)
    return answer | {"flavors": flavors}
