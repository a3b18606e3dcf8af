"""Shapes of the scheduler's REST doors, for the OpenAPI document and for reading small bodies."""

from typing import Any

from rest_framework import serializers

from queues.api.shapes import EstimateShape, PlacementShape, QuotasAnswer, ReasonShape


class Shape(serializers.Serializer[Any]):
    """A plain object."""


class QuotaStateShape(Shape):
    """A tenant's state of one flavor, in GPUs."""

    flavor = serializers.CharField()
    nominal = serializers.IntegerField()
    used = serializers.IntegerField()
    borrowed = serializers.IntegerField()
    available = serializers.IntegerField()


class QuotaChangeShape(Shape):
    """Before and after the job."""

    before = QuotaStateShape(allow_null=True)
    after = QuotaStateShape(allow_null=True)


class SimulationAnswer(Shape):
    """What would become of a job. `pods` is the manifest of each role's first pod."""

    verdict = serializers.ChoiceField(choices=["starts_now", "queued", "never"])
    reason = ReasonShape(allow_null=True)
    reasons = ReasonShape(many=True)
    estimated_start = EstimateShape(allow_null=True)
    position = serializers.IntegerField(allow_null=True)
    placement = PlacementShape(many=True)
    quota = QuotaChangeShape()
    pods = serializers.ListField(child=serializers.DictField())


class CheckShape(Shape):
    """One check of the planner; `ok` is null where it was not reached."""

    check = serializers.CharField()
    ok = serializers.BooleanField(allow_null=True)
    numbers = serializers.DictField()


class AheadShape(Shape):
    """A job on, or before this one for, what it needs: its id, or `hidden` for other tenants'."""

    job = serializers.CharField(required=False)
    hidden = serializers.BooleanField(required=False)
    gpus = serializers.IntegerField()
    state = serializers.ChoiceField(choices=["running", "waiting"])
    expected_end = serializers.DateTimeField(allow_null=True)


class CounterfactualShape(Shape):
    """A change of the job that the planner has tried."""

    change = serializers.DictField()
    verdict = serializers.ChoiceField(choices=["starts_now", "queued", "never"])
    estimated_start = EstimateShape(allow_null=True)


class ToldShape(Shape):
    """The dominant reason from `since` on."""

    since = serializers.DateTimeField()
    code = serializers.CharField()


class LogAnswer(Shape):
    """A part of a log. `text` begins at byte `cursor`; go on from `next` until `ended`."""

    attempt = serializers.IntegerField()
    role = serializers.CharField()
    replica = serializers.IntegerField()
    cursor = serializers.IntegerField()
    next = serializers.IntegerField()
    ended = serializers.BooleanField()
    restarted = serializers.BooleanField(
        help_text="The cursor was beyond the end of what is kept: `text` begins at byte 0."
    )
    text = serializers.CharField(allow_blank=True)


class NodeGpusShape(Shape):
    """GPUs of a node: used + free + out = capacity."""

    capacity = serializers.IntegerField()
    allocatable = serializers.IntegerField()
    used = serializers.IntegerField()
    free = serializers.IntegerField()
    out = serializers.IntegerField()


class CordonShape(Shape):
    """One party that wants a node to take no new pods; each lifts only its own."""

    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=["operator", "window", "health"]
    )
    reason = serializers.CharField()
    by = serializers.CharField()
    since = serializers.DateTimeField()
    taint = serializers.BooleanField()


class DrainShape(Shape):
    """What empties a node, and how far it is."""

    reason = serializers.CharField()
    running_jobs = serializers.ChoiceField(choices=["finish", "checkpoint", "evict"])
    latest_at = serializers.DateTimeField(allow_null=True)
    by = serializers.CharField()
    since = serializers.DateTimeField()
    expected_empty_at = serializers.DateTimeField(allow_null=True)
    empty_at = serializers.DateTimeField(allow_null=True)


class NodeAnswer(Shape):
    """A node. `jobs` are those on it that the caller may see."""

    name = serializers.CharField()
    cluster = serializers.CharField()
    state = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    cause = serializers.CharField(allow_null=True)
    by = serializers.CharField(allow_null=True)
    gpus = NodeGpusShape()
    flavor = serializers.CharField(allow_null=True)
    domains = serializers.DictField(child=serializers.CharField())
    driver = serializers.CharField(allow_null=True)
    cuda = serializers.CharField(allow_null=True)
    jobs = serializers.ListField(child=serializers.CharField())
    cordons = CordonShape(many=True)
    drain = DrainShape(allow_null=True)


class CountsShape(NodeGpusShape):
    """A domain's GPUs and nodes."""

    allocatable = None  # type: ignore[assignment]
    nodes = serializers.IntegerField()
    nodes_out = serializers.IntegerField()


class TopologyAnswer(Shape):
    """A cluster as a tree. A domain has `domains` of the next level, or `nodes` at the lowest."""

    cluster = serializers.CharField()
    levels = serializers.ListField(child=serializers.CharField())
    counts = CountsShape()
    domains = serializers.ListField(child=serializers.DictField())


class ReasonRequired(Shape):
    """Why; kept with who and when."""

    reason = serializers.CharField(max_length=1000)


class UnclaimedAnswer(Shape):
    """A pod that bears Muster's labels, but whose job or attempt has no row."""

    cluster = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    uid = serializers.CharField()
    node = serializers.CharField()
    tenant = serializers.CharField(allow_null=True)
    job = serializers.CharField(allow_null=True)
    attempt = serializers.CharField(allow_null=True)
    gpus = serializers.IntegerField()
    terminating = serializers.BooleanField()
    seen_at = serializers.DateTimeField()


class JobOrHidden(Shape):
    """A job by id, or the number of those that the caller may not see."""

    job = serializers.CharField(required=False)
    hidden = serializers.IntegerField(required=False)


class QuotaPreviewAnswer(QuotasAnswer):
    """The quotas as they would be, and what they would change. `fits`: nobody is over or evicted."""

    plan_id = serializers.CharField()
    fits = serializers.BooleanField()
    starts = JobOrHidden(many=True)
    waits_longer = JobOrHidden(many=True)
    evicted = JobOrHidden(many=True)
    never = JobOrHidden(many=True)
    warnings = serializers.ListField(child=serializers.CharField())
