"""What the planner last said: verdicts of classes and start estimates. `scheduler` alone writes these."""

from django.db import models

from queues.models.catalogue import Cluster
from queues.models.jobs import Job


class Verdict(models.Model):
    """What was said of a class of waiting jobs that are alike in all that the planner reads (rule 6).

    reasons: [{"code", "numbers"}], the dominant one first; that of the class's first waiting job.
    considered_at is bumped for all rows of a cluster at once (ClusterState), `since` when reasons change.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="verdicts")
    class_key = models.CharField(max_length=40)
    reasons = models.JSONField()
    # {"checks": [{"check", "ok", "numbers"}]} in the planner's own order, for the explanation.
    checks = models.JSONField(default=list)
    first_job = models.CharField(max_length=32)
    since = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "class_key"], name="verdict_once")
        ]

    def __str__(self) -> str:
        return self.class_key


class Estimate(models.Model):
    """When a waiting job is expected to start. Rewritten when it moved by more than a minute and 5 %."""

    job = models.OneToOneField(
        Job, on_delete=models.CASCADE, related_name="estimate", primary_key=True
    )
    p50 = models.DateTimeField()
    p90 = models.DateTimeField(null=True, blank=True)
    made_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.job_id} {self.p50:%H:%M}"


class Forecast(models.Model):
    """The first estimate of one wait, and what came of it: what later estimates learn from, and are judged by.

    planned_at: the start if all jobs run to their limits, from which p50 and p90 were told. attempt: the number of
    the attempt that is waited for. started_at None: it has not started (yet).
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="forecasts")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="forecasts")
    attempt = models.PositiveIntegerField()
    made_at = models.DateTimeField()
    planned_at = models.DateTimeField()
    p50 = models.DateTimeField()
    p90 = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt"], name="forecast_once_per_wait")
        ]
        indexes = [
            models.Index(
                fields=["cluster", "-started_at"],
                condition=models.Q(started_at__isnull=False),
                name="forecast_by_start",
            ),
            models.Index(fields=["made_at"], name="forecast_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.job_id} #{self.attempt} {self.p50:%H:%M}"
