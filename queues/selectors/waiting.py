"""Why waiting jobs wait, for a whole page of jobs in a fixed number of queries, as one reader may see it.

The rule of classes (DESIGN section 3, rule 6): a class's verdict speaks for its first waiting job; later ones
read it with their own jobs ahead. A begin time, a dependency and a back-off are a job's own.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from queues import reasons
from queues.lifecycle import Outcome, Phase
from queues.models import Job, JobDependency, Verdict
from queues.selectors.jobs import jobs_visible_to, queue_positions
from tenants.access import Actor

Numbers = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """One reason of a job, with the numbers that the reader may see."""

    code: str
    numbers: Numbers

    @property
    def sentence(self) -> str:
        """The reason in words."""
        return reasons.sentence(self.code, self.numbers)

    @property
    def hint(self) -> str:
        """What can be done about it."""
        return reasons.hint(self.code, self.numbers)

    @property
    def answer(self) -> dict[str, Any]:
        """The reason as the API shows it."""
        return reasons.answer(self.code, self.numbers)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why one job waits. `reasons` has the dominant one first; `position` counts from 1 in its queue."""

    position: int | None
    reasons: tuple[Said, ...]

    @property
    def dominant(self) -> Said:
        """The reason that is shown first."""
        return self.reasons[0]


def waiting_of(actor: Actor, jobs: Sequence[Job]) -> dict[str, Waiting]:
    """Of each job that is pending, why it waits. At most four queries, however many jobs.

    The jobs need their `queue` loaded.
    """
    pending = [job for job in jobs if job.phase == Phase.PENDING]
    if not pending:
        return {}
    positions = queue_positions(pending)
    verdicts = _verdicts(pending)
    needed = _open_dependencies(pending)
    raw = {
        job.pk: _raw_reasons(job, verdicts, needed.get(job.pk, ()), positions.get(job.pk))
        for job in pending
    }
    seen = _visible_jobs(actor, (said.numbers for each in raw.values() for said in each))
    tenants = None if actor.sees_all_tenants else {member.slug for member in actor.memberships}
    return {
        job_id: Waiting(
            positions.get(job_id),
            tuple(Said(s.code, reasons.redacted(s.numbers, seen, tenants)) for s in each),
        )
        for job_id, each in raw.items()
    }


def _verdicts(jobs: Iterable[Job]) -> dict[tuple[int, str], list[Said]]:
    keys = {job.class_key for job in jobs if job.class_key}
    if not keys:
        return {}
    clusters = {job.queue.cluster_id for job in jobs}
    rows = Verdict.objects.filter(cluster_id__in=clusters, class_key__in=keys)
    return {
        (cluster, key): [Said(each["code"], each.get("numbers", {})) for each in stored]
        for cluster, key, stored in rows.values_list("cluster_id", "class_key", "reasons")
    }


def _open_dependencies(jobs: Iterable[Job]) -> dict[str, list[str]]:
    """Ids of the jobs that still have to end, by the job that waits for them."""
    asking = [job.pk for job in jobs if job.reason_code == reasons.DEPENDENCY]
    if not asking:
        return {}
    unmet = ~Q(on__phase=Phase.FINISHED) | Q(condition="succeeded") & ~Q(
        on__outcome=Outcome.SUCCEEDED
    )
    rows = JobDependency.objects.filter(unmet, job__in=asking).order_by("on_id")
    found: dict[str, list[str]] = defaultdict(list)
    for job_id, on_id in rows.values_list("job_id", "on_id"):
        found[job_id].append(on_id)
    return found


def _raw_reasons(
    job: Job,
    verdicts: Mapping[tuple[int, str], list[Said]],
    needed: Sequence[str],
    position: int | None,
) -> list[Said]:
    """The dominant reason as the job's row has it, then the others that its class has."""
    code = job.reason_code or reasons.NOT_YET_CONSIDERED
    of_class = verdicts.get((job.queue.cluster_id, job.class_key), [])
    own = _own_numbers(job, code, needed)
    if own is not None:
        return [Said(code, own)]
    known = next((said for said in of_class if said.code == code), Said(code, {}))
    numbers = dict(known.numbers)
    if "jobs_ahead" in numbers and position is not None:
        numbers["jobs_ahead"] = position - 1
    return [Said(code, numbers), *(said for said in of_class if said.code != code)]


def _own_numbers(job: Job, code: str, needed: Sequence[str]) -> dict[str, Any] | None:
    """The numbers of a reason that is the job's own; None for a class's reason."""
    if code == reasons.DEPENDENCY:
        return {"open_dependencies": len(needed), "first_dependency": needed[0] if needed else None}
    if code == reasons.BEGIN_TIME:
        return {"begin_at": job.begin_at.timestamp() if job.begin_at else None}
    if code == reasons.REFUSED:
        until = job.backoff_until.timestamp() if job.backoff_until else None
        return {"refused_until": until, "refusal": job.refused_message}
    if code == reasons.BACKOFF:
        return {"backoff_until": job.backoff_until.timestamp() if job.backoff_until else None}
    return None


def _visible_jobs(actor: Actor, numbers: Iterable[Numbers]) -> Collection[str]:
    named = reasons.jobs_named(numbers)
    if not named:
        return set()
    return set(jobs_visible_to(actor).filter(pk__in=named).values_list("pk", flat=True))
