"""Jobs over REST: submit, list, wait for, act on, change."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar

from django.utils import timezone
from django.utils.translation import gettext as _
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    extend_schema,
    extend_schema_view,
)
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import FieldError, InvalidError
from controlplane.common.idempotency import idempotent
from controlplane.common.log import latest_seq
from controlplane.common.longpoll import wait_seconds, waits
from controlplane.common.pagination import query_error
from controlplane.common.parsers import json_object
from controlplane.common.preconditions import wanted_version
from controlplane.common.problems import error_problem
from queues.api import shapes
from queues.api.doors import (
    IDEMPOTENCY_KEY,
    IF_MATCH,
    LONGEST_REASON,
    ON_INFEASIBLE,
    Door,
    only_field,
    versioned,
)
from queues.filters import JobFilter
from queues.lifecycle import Phase
from queues.models import Job
from queues.selectors.answers import (
    attempt_answers,
    job_answers,
    job_with_parts,
    jobs_with_parts,
    with_answer_parts,
)
from queues.selectors.jobs import job_of, jobs_visible_to
from queues.services import jobs as acts
from queues.services.validation import validate_job
from tenants.access import Actor
from tenants.api.shapes import EventAnswer
from tenants.selectors import events_visible_to

SCOPES = {"read": "jobs:read", "write": "jobs:write"}
UNTIL = ("running", "finished")
EXAMPLE = OpenApiExample(
    "An 8 × 8-GPU job in one leaf",
    value={
        "name": "pretrain-7b",
        "tenant": "research",
        "queue": "train",
        "image": "registry.example/train:1",
        "command": ["torchrun"],
        "args": ["train.py"],
        "replicas": 8,
        "gpus_per_replica": 8,
        "topology": {"level": "leaf", "mode": "required"},
        "max_runtime_seconds": 86400,
        "external_id": "ci-4711",
    },
    request_only=True,
)


def answered(actor: Actor, job_id: str) -> dict[str, Any]:
    """A job's answer, read anew."""
    return job_answers(actor, [job_with_parts(actor, job_id)])[0]


def read_on_infeasible(request: Request) -> str:
    """`?on_infeasible=`. Raises InvalidError."""
    sent = request.query_params.get("on_infeasible", "wait")
    if sent not in acts.ON_INFEASIBLE:
        raise query_error("on_infeasible", "unknown_choice", _("must be wait, reject or finish"))
    return sent


class Jobs(Door):
    """The jobs that the caller sees."""

    required_scopes = SCOPES
    serializer_class = shapes.JobAnswer
    queryset = Job.objects.none()
    filter_backends = (DjangoFilterBackend,)
    filterset_class = JobFilter
    seek_order = ("-pk",)

    @extend_schema(operation_id="jobs_list", responses=shapes.JobAnswer(many=True))
    def get(self, request: Request) -> Response:
        """Newest first."""
        actor = self.actor()
        rows = self.filter_queryset(with_answer_parts(jobs_visible_to(actor)))
        return self.page(rows, lambda jobs: job_answers(actor, jobs))

    @extend_schema(
        operation_id="jobs_submit",
        parameters=[IDEMPOTENCY_KEY, ON_INFEASIBLE],
        request=shapes.JobSent,
        responses={
            201: shapes.JobAnswer,
            409: shapes.ProblemShape,
            422: shapes.ProblemShape,
        },
        examples=[EXAMPLE],
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Submit a job. All that is wrong with it comes back at once, each with a JSON Pointer."""
        actor, now = self.actor(), timezone.now()
        on_infeasible = read_on_infeasible(request)
        spec = validate_job(actor, json_object(request), now)
        job = acts.submit_job(actor, spec, now, on_infeasible=on_infeasible)
        address = request.build_absolute_uri(f"{job.pk}/")
        return versioned(answered(actor, job.pk), status=201, Location=address)


class Batch(Door):
    """Many jobs in one call."""

    required_scopes = {"write": "jobs:write"}
    serializer_class = shapes.BatchAnswer

    @extend_schema(
        operation_id="jobs_submit_batch",
        parameters=[IDEMPOTENCY_KEY, ON_INFEASIBLE],
        request=shapes.BatchSent,
        responses={200: shapes.BatchAnswer, 422: shapes.ProblemShape},
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Submit up to 500 jobs. Each is accepted or refused by itself; results keep the order."""
        actor, now = self.actor(), timezone.now()
        on_infeasible = read_on_infeasible(request)
        results = acts.submit_batch(actor, _batch(request), now, on_infeasible=on_infeasible)
        ids = [result.job.pk for result in results if result.job is not None]
        jobs = jobs_with_parts(actor, ids)
        answers = dict(zip(ids, job_answers(actor, jobs), strict=True))
        return Response({"results": [_result(result, answers) for result in results]})


def _batch(request: Request) -> list[Any]:
    """The list under `jobs`. Raises InvalidError."""
    body = json_object(request)
    unknown = next((key for key in body if key != "jobs"), None)
    if unknown is not None:
        raise _body_error(f"/{unknown}", "unknown_field", _("is not a field here"))
    jobs = body.get("jobs")
    if jobs is None:
        raise _body_error("/jobs", "required", _("is required"))
    if not isinstance(jobs, list):
        raise _body_error("/jobs", "not_an_array", _("must be an array of jobs"))
    return jobs


def _body_error(pointer: str, code: str, message: str) -> InvalidError:
    return InvalidError(f"{pointer}: {message}", errors=(FieldError(pointer, code, message),))


def _result(result: acts.BatchResult, answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if result.job is not None:
        return {"status": 201, "job": answers[result.job.pk]}
    assert result.problem is not None
    document = error_problem(result.problem)
    return {"status": document["status"], "problem": document}


class OneJob(Door):
    """One job."""

    required_scopes = SCOPES
    serializer_class = shapes.JobAnswer

    @extend_schema(
        operation_id="jobs_retrieve",
        parameters=[
            OpenApiParameter("wait", int, description="Seconds to wait, at most 60."),
            OpenApiParameter(
                "until",
                str,
                enum=list(UNTIL),
                default="finished",
                description="What to wait for. Answers at once when it can no longer happen.",
            ),
        ],
        responses=shapes.JobAnswer,
    )
    def get(self, request: Request, job_id: str) -> Response:
        """The job as it is, or as it is when what is waited for happens, or at the time-out."""
        until = request.query_params.get("until", "finished")
        if until not in UNTIL:
            raise query_error("until", "unknown_choice", _("must be running or finished"))
        seconds = wait_seconds(request.query_params.get("wait"))
        after = latest_seq()
        answer = answered(self.actor(), job_id)
        response = versioned(answer)
        if not seconds or _has_happened(answer["phase"], until):
            return response
        return waits(response, after, lambda heard: heard.job == job_id)

    @extend_schema(
        operation_id="jobs_change",
        parameters=[IF_MATCH],
        request=shapes.JobChanges,
        responses={
            200: shapes.JobAnswer,
            412: shapes.ProblemShape,
            422: shapes.ProblemShape,
            428: shapes.ProblemShape,
        },
    )
    def patch(self, request: Request, job_id: str) -> Response:
        """Change priority, queue or run-time limit."""
        actor = self.actor()
        job = job_of(actor, job_id)
        version = wanted_version(request)
        acts.change_job(actor, job, json_object(request), version, timezone.now())
        return versioned(answered(actor, job_id))


def _has_happened(phase: str, until: str) -> bool:
    """Also when it can no longer happen: a finished job will not run."""
    return phase == Phase.FINISHED or (until == "running" and phase == Phase.RUNNING)


ACTS: Mapping[str, Callable[[Actor, str, str, datetime], Job]] = {
    "cancel": acts.cancel_job,
    "hold": acts.hold_job,
    "release": acts.release_job,
    "requeue": acts.requeue_job,
}


class Act(Door):
    """One act on one job; subclasses say which."""

    required_scopes = {"write": "jobs:write"}
    serializer_class = shapes.JobAnswer
    what: ClassVar = ""

    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        request=shapes.ReasonSent,
        responses={200: shapes.JobAnswer, 409: shapes.ProblemShape},
    )
    @idempotent()
    def post(self, request: Request, job_id: str) -> Response:
        """The answer is the job after it. `reason` is kept with the event."""
        actor = self.actor()
        reason = only_field(request, "reason", LONGEST_REASON)
        ACTS[self.what](actor, job_id, reason, timezone.now())
        return versioned(answered(actor, job_id))


@extend_schema_view(post=extend_schema(operation_id="jobs_cancel"))
class Cancel(Act):
    """End a job: at once where it waits, with grace where it runs."""

    what = "cancel"


@extend_schema_view(post=extend_schema(operation_id="jobs_hold"))
class Hold(Act):
    """Keep a waiting job from starting."""

    what = "hold"


@extend_schema_view(post=extend_schema(operation_id="jobs_release"))
class Release(Act):
    """Let a held job wait again."""

    what = "release"


@extend_schema_view(post=extend_schema(operation_id="jobs_requeue"))
class Requeue(Act):
    """Stop an active job with grace and let it wait for another attempt."""

    what = "requeue"


class Attempts(Door):
    """The lives of a job."""

    required_scopes = SCOPES
    serializer_class = shapes.AttemptsAnswer

    @extend_schema(operation_id="jobs_attempts", responses=shapes.AttemptsAnswer)
    def get(self, request: Request, job_id: str) -> Response:
        """First first, with where each replica was."""
        job = job_of(self.actor(), job_id)
        return Response({"results": attempt_answers(job), "next": None})


class JobEvents(Door):
    """What happened to a job."""

    required_scopes = SCOPES
    serializer_class = EventAnswer
    seek_order = ("seq",)

    @extend_schema(operation_id="jobs_events", responses=EventAnswer(many=True))
    def get(self, request: Request, job_id: str) -> Response:
        """In the order in which it happened."""
        actor = self.actor()
        job = job_of(actor, job_id)
        rows = events_visible_to(actor).filter(job=job.pk)
        return self.page(rows, lambda events: list(EventAnswer(events, many=True).data))
