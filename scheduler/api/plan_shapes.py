"""Shapes of evictions, bookings, explanations and what-if answers over REST, for the OpenAPI document."""

from rest_framework import serializers

from queues.api.shapes import EstimateShape, ReasonShape
from scheduler.api.shapes import (
    AheadShape,
    CheckShape,
    CounterfactualShape,
    JobOrHidden,
    Shape,
    ToldShape,
)


class EvictedShape(Shape):
    """A job by id, name and tenant; or only that there is one that the caller may not see."""

    job = serializers.CharField(required=False)
    name = serializers.CharField(required=False)
    tenant = serializers.CharField(required=False)
    hidden = serializers.BooleanField(required=False)


class SparedShape(Shape):
    """A job that was looked at and not stopped, or how many hidden ones, and why."""

    job = serializers.CharField(required=False)
    hidden = serializers.IntegerField(required=False)
    why = serializers.CharField()
    message = serializers.CharField()


class EvictionAnswer(Shape):
    """An order to stop a running attempt so that its job may come back, and what became of it."""

    id = serializers.IntegerField()
    cluster = serializers.CharField()
    job = EvictedShape()
    attempt = serializers.IntegerField(allow_null=True)
    gpus = serializers.IntegerField()
    flavor = serializers.CharField(allow_null=True)
    rule = serializers.CharField()
    state = serializers.ChoiceField(choices=["ordered", "stopping", "ended", "withdrawn"])
    message = serializers.CharField(allow_blank=True)
    ordered_by = serializers.CharField(allow_null=True)
    ordered_at = serializers.DateTimeField()
    signalled_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    withdrawn_at = serializers.DateTimeField(allow_null=True)
    ended_by = serializers.CharField(allow_null=True)
    latest_at = serializers.DateTimeField(allow_null=True)
    wait_for_checkpoint = serializers.BooleanField()
    keeps_replicas = serializers.IntegerField(help_text="Above 0: it comes back in this size.")
    lost_gpu_hours = serializers.FloatField(allow_null=True)
    preemptor = EvictedShape(allow_null=True)
    numbers = serializers.DictField(help_text="Quotas and shares at that moment.")
    refused = SparedShape(many=True)


class BookedNodeShape(Shape):
    """How many GPUs of a node are kept."""

    node = serializers.CharField()
    gpus = serializers.IntegerField()


class BookingAnswer(Shape):
    """The future start that is kept for a blocked job. `until` null: it has no time limit."""

    job = serializers.CharField()
    name = serializers.CharField()
    tenant = serializers.CharField()
    queue = serializers.CharField()
    cluster = serializers.CharField()
    flavor = serializers.CharField()
    gpus = serializers.IntegerField()
    nodes = BookedNodeShape(many=True)
    starts_at = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    made_at = serializers.DateTimeField()


class ExplanationAnswer(Shape):
    """Why a job waits. Of a job that does not, only `history` and `evictions` are told.

    `counterfactuals` are the best three changes that work, tried at `counterfactuals_at`. `booking`: the start that is
    kept for it. `evictions`: those of the job, and those made for it, newest first.
    """

    reason = ReasonShape(allow_null=True)
    reasons = ReasonShape(many=True)
    checks = CheckShape(many=True)
    ahead = AheadShape(many=True)
    estimated_start = EstimateShape(allow_null=True)
    booking = BookingAnswer(allow_null=True)
    counterfactuals = CounterfactualShape(many=True)
    counterfactuals_at = serializers.DateTimeField(allow_null=True)
    evictions = EvictionAnswer(many=True)
    history = ToldShape(many=True)


class AccuracyAnswer(Shape):
    """How the first estimates of the last waits came true: p50 should be near 0.5, p90 near 0.9."""

    starts = serializers.IntegerField()
    before_p50 = serializers.FloatField(allow_null=True)
    before_p90 = serializers.FloatField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)


class ChangesSent(Shape):
    """Changes of one cluster, in order. What each kind wants is said in the description of the API."""

    cluster = serializers.CharField()
    changes = serializers.ListField(child=serializers.DictField(), max_length=20)


class SubmittedShape(Shape):
    """What would become of a job that a change submits; `change` is its place in the list."""

    change = serializers.IntegerField()
    verdict = serializers.ChoiceField(choices=["starts_now", "queued", "never"])
    reason = ReasonShape(allow_null=True)
    starts_at = serializers.DateTimeField(allow_null=True)


class ChangeAnswer(Shape):
    """What changes would change. `evicted` are running jobs that would be stopped, at `lost_gpu_hours` in all."""

    plan_id = serializers.CharField()
    starts = JobOrHidden(many=True)
    waits_longer = JobOrHidden(many=True)
    evicted = JobOrHidden(many=True)
    never = JobOrHidden(many=True)
    lost_gpu_hours = serializers.FloatField()
    warnings = serializers.ListField(child=serializers.CharField())
    submitted = SubmittedShape(many=True)
    applied = serializers.BooleanField()
