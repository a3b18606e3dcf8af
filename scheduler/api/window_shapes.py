"""Shapes of maintenance windows, drains and their previews, for the OpenAPI document."""

from rest_framework import serializers

from scheduler.api.shapes import NodeAnswer, Shape

KINDS = ["maintenance", "reserved"]
CROSSINGS = ["checkpointable", "never"]
RUNNING_JOBS = ["finish", "checkpoint", "evict"]
STATES = ["planned", "noticed", "draining", "open", "checking", "over", "cancelled"]


class DomainShape(Shape):
    """A domain of a level."""

    level = serializers.CharField()
    name = serializers.CharField()


class NodeSelectorShape(Shape):
    """Nodes by name or domain (all, without either); of these those with all labels and of the flavor."""

    names = serializers.ListField(child=serializers.CharField(), required=False)
    domains = DomainShape(many=True, required=False)
    labels = serializers.DictField(child=serializers.CharField(), required=False)
    flavor = serializers.CharField(allow_null=True, required=False)


class AdmitsSent(Shape):
    """Whom a reservation lets in; nobody: its nodes are spares. Queues as `tenant.queue`."""

    tenants = serializers.ListField(child=serializers.CharField(), required=False)
    queues = serializers.ListField(child=serializers.CharField(), required=False)
    jobs = serializers.ListField(child=serializers.CharField(), required=False)


class AdmitsAnswer(AdmitsSent):
    """Those that the reader may see, and how many more."""

    hidden = serializers.IntegerField()


class WindowChanges(Shape):
    """Fields of a window. What is not sent stays; null clears."""

    title = serializers.CharField(max_length=200, required=False)
    kind = serializers.ChoiceField(choices=KINDS, required=False)
    starts_at = serializers.DateTimeField(required=False)
    ends_at = serializers.DateTimeField(required=False)
    time_zone = serializers.CharField(required=False, help_text="IANA name; UTC unless sent.")
    rrule = serializers.CharField(
        required=False, allow_null=True, help_text="RFC 5545, such as FREQ=WEEKLY;BYDAY=TU."
    )
    nodes = NodeSelectorShape(required=False)
    crossing = serializers.ChoiceField(choices=CROSSINGS, required=False)
    running_jobs = serializers.ChoiceField(choices=RUNNING_JOBS, required=False)
    latest_at = serializers.DateTimeField(
        required=False,
        allow_null=True,
        help_text="When jobs leave anyway; in later occurrences at the same distance from the start.",
    )
    notice_minutes = serializers.IntegerField(min_value=0, max_value=20160, required=False)
    admits = AdmitsSent(required=False)


class WindowSent(WindowChanges):
    """A window to be made."""

    title = serializers.CharField(max_length=200)
    cluster = serializers.CharField()
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    nodes = NodeSelectorShape()


class OccurrenceChanges(Shape):
    """One time of a series. A start alone keeps the length, an end alone the start; null is as not sent."""

    skipped = serializers.BooleanField(required=False)
    starts_at = serializers.DateTimeField(required=False, allow_null=True)
    ends_at = serializers.DateTimeField(required=False, allow_null=True)
    reason = serializers.CharField(max_length=1000, required=False)


class ExceptionAnswer(Shape):
    """A time that differs from the rule's: moved, or (`starts_at` null) skipped."""

    occurrence = serializers.DateTimeField(help_text="When the rule has it.")
    starts_at = serializers.DateTimeField(allow_null=True)
    ends_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()
    by = serializers.CharField()
    since = serializers.DateTimeField()


class OccurrenceAnswer(Shape):
    """One time that a window happens. `checks`: what keeps nodes from coming back."""

    occurrence = serializers.DateTimeField(help_text="When the rule has it: its name in addresses.")
    moved = serializers.BooleanField()
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    state = serializers.ChoiceField(choices=STATES)
    latest_at = serializers.DateTimeField(allow_null=True)
    expected_empty_at = serializers.DateTimeField(allow_null=True)
    noticed_at = serializers.DateTimeField(allow_null=True)
    draining_at = serializers.DateTimeField(allow_null=True)
    empty_at = serializers.DateTimeField(allow_null=True)
    opened_at = serializers.DateTimeField(allow_null=True)
    checking_at = serializers.DateTimeField(allow_null=True)
    over_at = serializers.DateTimeField(allow_null=True)
    nodes = serializers.ListField(child=serializers.CharField())
    checks = serializers.DictField(child=serializers.DictField())


class OverlapShape(Shape):
    """Another window on some of the same nodes, and the first time that both hold."""

    window = serializers.IntegerField()
    title = serializers.CharField()
    kind = serializers.ChoiceField(choices=KINDS)
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    nodes = serializers.IntegerField()


class WindowAnswer(Shape):
    """A maintenance window or reservation, what goes on and the next five times."""

    id = serializers.IntegerField()
    version = serializers.IntegerField()
    title = serializers.CharField()
    cluster = serializers.CharField()
    kind = serializers.ChoiceField(choices=KINDS)
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    time_zone = serializers.CharField()
    rrule = serializers.CharField(allow_null=True)
    nodes = NodeSelectorShape()
    crossing = serializers.ChoiceField(choices=CROSSINGS)
    running_jobs = serializers.ChoiceField(choices=RUNNING_JOBS)
    latest_at = serializers.DateTimeField(allow_null=True)
    notice_minutes = serializers.IntegerField()
    admits = AdmitsAnswer()
    exceptions = ExceptionAnswer(many=True)
    by = serializers.CharField()
    created_at = serializers.DateTimeField()
    changed_by = serializers.CharField()
    changed_at = serializers.DateTimeField()
    cancelled_by = serializers.CharField(allow_null=True)
    cancelled_at = serializers.DateTimeField(allow_null=True)
    node_count = serializers.IntegerField()
    occurrences = OccurrenceAnswer(many=True)
    overlaps = OverlapShape(many=True)


class LeavingJob(Shape):
    """A job that would leave."""

    job = serializers.CharField()
    name = serializers.CharField()
    tenant = serializers.CharField()
    gpus = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())
    way = serializers.ChoiceField(choices=["ends", "checkpoint", "evicted", "stays"])
    leaves_at = serializers.DateTimeField(allow_null=True)
    lost_gpu_seconds = serializers.IntegerField()


class OutlookAnswer(Shape):
    """What would become of the jobs on these nodes. Send `plan_id` with the order, so that this is what happens."""

    plan_id = serializers.CharField()
    nodes = serializers.ListField(child=serializers.CharField())
    jobs = LeavingJob(many=True)
    hidden_jobs = serializers.IntegerField()
    lost_gpu_seconds = serializers.IntegerField()
    empty_at = serializers.DateTimeField(allow_null=True)
    overlaps = OverlapShape(many=True)


class DrainSent(Shape):
    """How a node is to be emptied."""

    reason = serializers.CharField(max_length=1000)
    running_jobs = serializers.ChoiceField(choices=RUNNING_JOBS, required=False)
    latest_at = serializers.DateTimeField(required=False, allow_null=True)
    plan_id = serializers.CharField(required=False)


class DrainManySent(DrainSent):
    """How nodes are to be emptied."""

    nodes = NodeSelectorShape()


class DrainsAnswer(Shape):
    """The nodes of a drain, each with its `drain`."""

    nodes = NodeAnswer(many=True)


class CalendarAddress(Shape):
    """The caller's own feed: whoever has the address can read it, until the password changes."""

    url = serializers.CharField()


class ProposeSent(Shape):
    """Work that needs a time: so many nodes of these, so long, within so many days."""

    cluster = serializers.CharField()
    nodes = NodeSelectorShape()
    count = serializers.IntegerField(required=False, help_text="How many of them; all unless sent.")
    duration_minutes = serializers.IntegerField()
    within_days = serializers.IntegerField(required=False)
    not_before = serializers.DateTimeField(required=False, allow_null=True)
    running_jobs = serializers.ChoiceField(choices=RUNNING_JOBS, required=False)


class Proposal(Shape):
    """A time, and its price. idle: machine time between the last pod's end and the start."""

    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    nodes = serializers.ListField(child=serializers.CharField())
    jobs_stopped = serializers.IntegerField()
    lost_gpu_seconds = serializers.IntegerField()
    idle_gpu_seconds = serializers.IntegerField()
    delayed_starts = serializers.IntegerField()
    delayed_seconds = serializers.IntegerField()


class ProposalsAnswer(Shape):
    """The best times, the best first."""

    proposals = Proposal(many=True)
