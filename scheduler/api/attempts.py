"""`attempts/me/`: what a running job says of itself and is told, with its own token (MUSTER_TOKEN)."""

import math
import time
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.generics import GenericAPIView
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from controlplane.common.idempotency import idempotent
from controlplane.common.live import Heard
from controlplane.common.log import latest_seq
from controlplane.common.longpoll import wait_seconds, waits
from controlplane.common.parsers import json_object
from queues.api.doors import IDEMPOTENCY_KEY
from queues.api.shapes import ProblemShape
from queues.models import Attempt
from queues.services.attempts import TOKEN_PREFIX, hash_of
from scheduler.api.shapes import Shape
from scheduler.selectors.notices import notice_of
from scheduler.services.attempt_signs import note_checkpoint, note_heartbeat
from scheduler.services.node_reports import report_from_attempt
from tenants.authentication import bearer
from tenants.throttling import buckets

Json = dict[str, Any]


class NoticeShape(Shape):
    """That the job is to be stopped."""

    kind = serializers.ChoiceField(choices=["preemption", "maintenance", "resize", "time_limit"])
    deadline = serializers.DateTimeField()


class NoticeAnswer(Shape):
    """The notice, null while there is none."""

    notice = NoticeShape(allow_null=True)


class HeartbeatSent(Shape):
    """A replica lives."""

    replica = serializers.IntegerField(min_value=0)
    role = serializers.CharField(required=False, help_text="The first role unless named.")
    step = serializers.IntegerField(required=False, allow_null=True, min_value=0)


class CheckpointSent(Shape):
    """The job has saved."""

    step = serializers.IntegerField(min_value=0)
    at = serializers.DateTimeField(required=False, allow_null=True, help_text="Now unless sent.")
    uri = serializers.CharField(required=False, max_length=1024)


class CheckpointAnswer(NoticeAnswer):
    """What is kept of it."""

    step = serializers.IntegerField()
    at = serializers.DateTimeField()


class AttemptReportSent(Shape):
    """A node report; the node is the replica's."""

    kind = serializers.ChoiceField(choices=["xid", "ecc", "nvlink", "thermal", "hang", "other"])
    replica = serializers.CharField()
    code = serializers.IntegerField(required=False, allow_null=True)
    gpu = serializers.IntegerField(required=False, allow_null=True)
    uuid = serializers.CharField(required=False, allow_null=True)
    message = serializers.CharField(required=False)
    evidence = serializers.CharField(required=False)


class AttemptReportAnswer(Shape):
    """What was made of it."""

    node = serializers.CharField()
    verdict = serializers.CharField()


class AttemptAuthentication(BaseAuthentication):
    """`Authorization: Bearer mat_…`: the attempt that the token was made for, as long as it runs."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Attempt] | None:
        """Nobody, and the attempt; None where no bearer token was sent."""
        sent = bearer(request.headers.get("Authorization", ""))
        if sent is None:
            return None
        found = None
        if sent.startswith(TOKEN_PREFIX) and len(sent) <= 100:
            rows = Attempt.objects.select_related("job__tenant", "job__queue__cluster", "cluster")
            found = rows.filter(token_hash=hash_of(sent), ended_at__isnull=True).first()
        if found is None:
            raise AuthenticationFailed(
                _("The token is unknown, or its attempt has ended."), code="bad_token"
            )
        return AnonymousUser(), found

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return 'Bearer realm="muster"'


class AttemptScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The attempt's token in the OpenAPI document."""

    target_class = AttemptAuthentication
    name = "attemptToken"

    def get_security_definition(self, auto_schema: Any) -> Json:
        """A bearer token."""
        return {"type": "http", "scheme": "bearer", "description": "MUSTER_TOKEN of the pods."}


class IsAttempt(BasePermission):
    """Only a running attempt."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """True, or NotAuthenticated."""
        if not isinstance(request.auth, Attempt):
            raise NotAuthenticated
        return True


class AttemptThrottle(BaseThrottle):
    """One bucket for all replicas of an attempt, so that one job cannot keep others out."""

    def __init__(self) -> None:
        self._wait_seconds = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether this call is within the limit."""
        if getattr(request._request, "scope", {}).get("muster.looks", 0) > 1:
            return True  # a long poll looks again: still the same call
        if isinstance(request.auth, Attempt):
            caller = f"attempt:{request.auth.pk}"
            self._wait_seconds = buckets.take(caller, "attempt", time.monotonic())
        return self._wait_seconds == 0

    def wait(self) -> float:
        """Whole seconds until the next call is allowed."""
        return float(max(1, math.ceil(self._wait_seconds)))


class AttemptDoor(GenericAPIView[Any]):
    """A view that a running attempt calls."""

    authentication_classes = (AttemptAuthentication,)
    permission_classes = (IsAttempt,)
    throttle_classes = (AttemptThrottle,)
    filter_backends = ()

    def attempt(self) -> Attempt:
        """Who calls."""
        found = self.request.auth
        assert isinstance(found, Attempt)  # IsAttempt let it in
        return found

    def notice(self) -> Json:
        """What the attempt is to be told now."""
        found = notice_of(self.attempt(), timezone.now())
        return {"notice": found.answer if found else None}


class Heartbeat(AttemptDoor):
    """A replica lives."""

    serializer_class = NoticeAnswer

    @extend_schema(
        operation_id="attempt_heartbeat",
        parameters=[IDEMPOTENCY_KEY],
        request=HeartbeatSent,
        responses={200: NoticeAnswer, 401: ProblemShape, 422: ProblemShape},
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Answered with the notice, so that a replica that beats need not poll."""
        note_heartbeat(self.attempt(), json_object(request), timezone.now())
        return Response(self.notice())


class Checkpoint(AttemptDoor):
    """The job has saved."""

    serializer_class = CheckpointAnswer

    @extend_schema(
        operation_id="attempt_checkpoint",
        parameters=[IDEMPOTENCY_KEY],
        request=CheckpointSent,
        responses={
            200: CheckpointAnswer,
            401: ProblemShape,
            409: ProblemShape,
            422: ProblemShape,
        },
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """An eviction that waits for it follows at once. One replica reports for all."""
        kept = note_checkpoint(self.attempt(), json_object(request), timezone.now())
        return Response(
            {
                "step": kept.last_checkpoint_step,
                "at": kept.last_checkpoint_at,
                **self.notice(),
            }
        )


class NoticeDoor(AttemptDoor):
    """What the job is to be told."""

    serializer_class = NoticeAnswer

    @extend_schema(
        operation_id="attempt_notice",
        parameters=[OpenApiParameter("wait", int, description="Wait for a notice, at most 60 s.")],
        responses={200: NoticeAnswer, 401: ProblemShape},
    )
    def get(self, request: Request) -> Response:
        """At once when there is one, or when the time is over."""
        wait_seconds(request.query_params.get("wait"))
        seq = latest_seq()
        answer = Response(self.notice())
        if answer.data["notice"] is not None:
            return answer
        job = self.attempt().job_id
        return waits(answer, seq, lambda heard: _concerns(heard, job))


def _concerns(heard: Heard, job: str) -> bool:
    return heard.job == job and heard.kind.startswith(("eviction.", "attempt.", "job."))


class NodeReportDoor(AttemptDoor):
    """A job says that one of its nodes is bad."""

    serializer_class = AttemptReportAnswer

    @extend_schema(
        operation_id="attempt_report",
        parameters=[IDEMPOTENCY_KEY],
        request=AttemptReportSent,
        responses={
            201: AttemptReportAnswer,
            401: ProblemShape,
            422: ProblemShape,
            429: ProblemShape,
        },
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """At most two an hour. The node becomes suspect within the budget; beyond it a person is asked."""
        found = report_from_attempt(self.attempt(), json_object(request), timezone.now())
        return Response({"node": found.node, "verdict": found.verdict}, status=201)
