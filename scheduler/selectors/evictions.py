"""Evictions as people may see them: who left, for whom, by which rule, at what cost, and who was spared.

Called by the doors, the pages and a job's answers. Of two tenants that meet in an eviction each sees its own side;
of the other one only that there is one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Prefetch, Q, QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from queues.models import Job
from queues.selectors.answers import time_text
from queues.selectors.jobs import jobs_visible_to
from scheduler.models import Eviction
from tenants.access import Actor

Json = dict[str, Any]

# Numbers of one side of an eviction, by what their names begin with; `ran_seconds` is the victim's.
PREEMPTOR_NUMBERS = ("preemptor_",)
VICTIM_NUMBERS = ("victim_", "ran_seconds")

SPARED: Mapping[str, str | Promise] = {
    "not_preemptible": gettext_lazy("may not be preempted"),
    "already_stopping": gettext_lazy("is leaving already"),
    "preemption_budget": gettext_lazy("was preempted often enough"),
    "minimum_run_time": gettext_lazy("has not run for its minimum time yet"),
    "no_rule": gettext_lazy("no rule allows it"),
    "not_needed": gettext_lazy("was not needed, or would have cost more"),
}


def evictions_visible_to(actor: Actor) -> QuerySet[Eviction]:
    """Evictions of, and for, jobs that the actor may see; newest first."""
    seen = Q(attempt__job__in=jobs_visible_to(actor)) | Q(preemptor__in=jobs_visible_to(actor))
    everything = actor.sees_all_tenants and actor.token_tenant_id is None
    rows = Eviction.objects.all() if everything else Eviction.objects.filter(seen)
    return with_parts(rows).order_by("-pk")


def with_parts(rows: QuerySet[Eviction]) -> QuerySet[Eviction]:
    """With attempt, job, tenants and cluster."""
    return rows.select_related(
        "cluster", "attempt__job__tenant", "attempt__flavor", "preemptor__tenant"
    ).prefetch_related(Prefetch("attempt__placements"))


def state_of(eviction: Eviction) -> str:
    """ordered (waits for a checkpoint, or for this moment), stopping, ended or withdrawn."""
    if eviction.withdrawn_at is not None:
        return "withdrawn"
    if eviction.ended_at is not None:
        return "ended"
    return "ordered" if eviction.signalled_at is None else "stopping"


def eviction_answers(actor: Actor, evictions: Sequence[Eviction]) -> list[Json]:
    """The evictions as the API shows them to one reader. One query for all."""
    named = {eviction.attempt.job_id for eviction in evictions}
    named |= {eviction.preemptor_id for eviction in evictions if eviction.preemptor_id}
    named |= {str(job) for eviction in evictions for job, _why in eviction.refused}
    seen = set(jobs_visible_to(actor).filter(pk__in=named).values_list("pk", flat=True))
    return [_answer(eviction, seen) for eviction in evictions]


def _answer(eviction: Eviction, seen: set[str]) -> Json:
    attempt = eviction.attempt
    sees_victim = attempt.job_id in seen
    sees_preemptor = eviction.preemptor_id is not None and eviction.preemptor_id in seen
    gpus = sum(placement.gpus for placement in attempt.placements.all())
    lost = attempt.lost_gpu_seconds if eviction.ended_at else eviction.lost_gpu_seconds
    return {
        "id": eviction.pk,
        "cluster": eviction.cluster.name,
        "job": _named(attempt.job_id, attempt.job, seen=sees_victim),
        "attempt": attempt.number if sees_victim else None,
        "gpus": gpus,
        "flavor": attempt.flavor.name if attempt.flavor else None,
        "rule": eviction.rule,
        "state": state_of(eviction),
        "message": sentence(eviction) if sees_victim else "",
        "ordered_by": eviction.ordered_by if sees_victim else None,
        "ordered_at": time_text(eviction.ordered_at),
        "signalled_at": time_text(eviction.signalled_at),
        "ended_at": time_text(eviction.ended_at),
        "withdrawn_at": time_text(eviction.withdrawn_at),
        "ended_by": (attempt.ended_by or None) if sees_victim and eviction.ended_at else None,
        "latest_at": time_text(eviction.latest_at),
        "wait_for_checkpoint": eviction.wait_for_checkpoint,
        "keeps_replicas": eviction.keeps_replicas,
        "lost_gpu_hours": round(lost / 3600, 2) if sees_victim else None,
        "preemptor": _named(eviction.preemptor_id, eviction.preemptor, seen=sees_preemptor),
        "numbers": _numbers(eviction, sees_victim=sees_victim, sees_preemptor=sees_preemptor),
        "refused": list(_refused(eviction.refused, seen)),
    }


def _named(job_id: str | None, job: Job | None, *, seen: bool) -> Json | None:
    if job_id is None or job is None:
        return None
    if not seen:
        return {"hidden": True}
    return {"job": job_id, "name": job.name, "tenant": job.tenant.slug}


def _numbers(eviction: Eviction, *, sees_victim: bool, sees_preemptor: bool) -> Json:
    hidden: tuple[str, ...] = ()
    if not sees_victim:
        hidden += VICTIM_NUMBERS
    if not sees_preemptor:
        hidden += PREEMPTOR_NUMBERS
    return {
        name: value
        for name, value in eviction.numbers.items()
        if not hidden or not name.startswith(hidden)
    }


def _refused(refused: Iterable[Sequence[str]], seen: set[str]) -> Iterable[Json]:
    """Jobs that were looked at and spared; those that the reader may not see only by their number and why."""
    hidden: dict[str, int] = {}
    for job, why in refused:
        if job in seen:
            yield {"job": job, "why": why, "message": str(SPARED.get(why, why))}
        else:
            hidden[why] = hidden.get(why, 0) + 1
    for why, count in hidden.items():
        yield {"hidden": count, "why": why, "message": str(SPARED.get(why, why))}


def sentence(eviction: Eviction) -> str:
    """Why the job leaves, in the reader's language, without naming anybody."""
    rule = str(eviction.rule)
    if eviction.keeps_replicas and rule != "grow":
        return _("It gives up replicas beyond its minimum, and goes on with {count}.").format(
            count=eviction.keeps_replicas
        )
    if rule == "priority":
        return _("A job of the same tenant with a higher priority takes its place.")
    if rule == "reclaim":
        return _("A tenant takes back quota that it had lent.")
    if rule == "fair_share":
        return _("Another tenant has had less than its fair share.")
    if rule == "grow":
        return _("It restarts from its checkpoint with {count} replicas.").format(
            count=eviction.keeps_replicas
        )
    return eviction.message


def evictions_of(actor: Actor, job: Job) -> list[Json]:
    """A job's own evictions and those made for it, newest first. The actor may see the job."""
    concerned = Q(attempt__job=job) | Q(preemptor=job)
    rows = with_parts(Eviction.objects.filter(concerned)).order_by("-pk")[:100]
    return eviction_answers(actor, list(rows))
