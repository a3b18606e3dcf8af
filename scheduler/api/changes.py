"""One door for every "what if": submit, quotas, drain, nodes lost or added, windows; and to make it so as previewed."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.idempotency import idempotent
from controlplane.common.parsers import json_object
from queues.api.doors import IDEMPOTENCY_KEY, Door
from queues.api.shapes import ProblemShape
from queues.selectors.answers import time_text
from queues.selectors.waiting import Said
from scheduler.api.plan_shapes import ChangeAnswer, ChangesSent
from scheduler.services.changes import apply_changes, preview_changes, read_changes
from scheduler.services.whatif import moment, said, visible_jobs, visible_tenant_names
from tenants.access import Actor

Json = dict[str, Any]

EXAMPLE = OpenApiExample(
    "Drain a leaf and add four nodes",
    value={
        "cluster": "demo",
        "changes": [
            {
                "kind": "drain",
                "nodes": {"domains": [{"level": "leaf", "name": "leaf-02"}]},
                "running_jobs": "checkpoint",
                "reason": "new switches",
            },
            {"kind": "add", "like": "gpu-00001", "count": 4},
        ],
    },
    request_only=True,
)


class WhatIf(Door):
    """Changes of a cluster that are tried."""

    required_scopes = {"write": "jobs:read"}
    rate_limit = "simulate"
    serializer_class = ChangeAnswer

    @extend_schema(
        operation_id="what_if",
        parameters=[
            IDEMPOTENCY_KEY,
            OpenApiParameter(
                "plan_id",
                str,
                description="Make the changes so, if they still lead to the plan of this id.",
            ),
        ],
        request=ChangesSent,
        responses={
            200: ChangeAnswer,
            403: ProblemShape,
            409: ProblemShape,
            422: ProblemShape,
            503: ProblemShape,
        },
        examples=[EXAMPLE],
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Who would start, wait longer, be stopped. Nothing is stored, unless `plan_id` is given and still holds."""
        actor, now = self.actor(), timezone.now()
        changes = read_changes(actor, json_object(request), now)
        plan_id = request.query_params.get("plan_id", "")
        if not plan_id:
            return Response(change_answer(actor, preview_changes(changes)) | {"applied": False})
        found = apply_changes(
            actor, changes, plan_id, now, shown=lambda new: change_answer(actor, new)
        )
        return Response(change_answer(actor, found) | {"applied": True})


def change_answer(actor: Actor, found: Mapping[str, Any]) -> Json:
    """The planner's answer as one reader may see it: hidden jobs are counted, submitted ones told by their place."""
    submitted = [each["job"] for each in found["submitted"]]
    stopped = [each["job"] for each in found["evicted"]]
    named = {*(each["job"] for each in found["starts"]), *found["waits_longer"], *stopped}
    seen = set(visible_jobs(actor, {*named, *found["never"]}))
    names = visible_tenant_names(actor)
    over = [
        _("{name} would use {gpus} GPUs of {flavor} more than it may.").format(
            name=each["name"] if names is None or each["name"] in names else _("Another tenant"),
            gpus=each["over_gpus"],
            flavor=each["flavor"],
        )
        for each in found["over"]
    ]
    old = [each["job"] for each in found["starts"] if each["job"] not in submitted]
    return {
        "plan_id": found["plan_id"],
        "starts": _jobs(old, seen),
        "waits_longer": _jobs(found["waits_longer"], seen),
        "evicted": _jobs(stopped, seen),
        "never": _jobs([job for job in found["never"] if job not in submitted], seen),
        "lost_gpu_hours": round(sum(e["lost_gpu_seconds"] for e in found["evicted"]) / 3600, 2),
        "warnings": over,
        "submitted": [_submitted(actor, each) for each in found["submitted"]],
    }


def _jobs(jobs: Iterable[str], seen: set[str]) -> list[Json]:
    listed = list(jobs)
    named: list[Json] = [{"job": job} for job in listed if job in seen]
    hidden = len(listed) - len(named)
    return [*named, {"hidden": hidden}] if hidden else named


def _submitted(actor: Actor, each: Mapping[str, Any]) -> Json:
    """What would become of one submitted job; `change` is its place in the list of changes."""
    reason = each["reason"]
    told: Said | None = said(actor, [reason])[0] if reason else None
    return {
        "change": int(each["job"].rpartition("-")[2]),
        "verdict": _verdict(reason),
        "reason": None if told is None else told.answer,
        "starts_at": time_text(moment(each["starts_at"])),
    }


def _verdict(reason: Mapping[str, Any] | None) -> str:
    if reason is None:
        return "starts_now"
    return "never" if reason["for_ever"] else "queued"
