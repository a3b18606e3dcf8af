"""What a waiting job was told over time: the reasons in the event log, its own and those told to its whole class."""

from dataclasses import dataclass
from datetime import datetime

from controlplane.common.models import Event
from queues.models import Job

MOST_ENTRIES = 100
# Events of classes are looked through in order; a tenant with more than this has the older ones left out.
MOST_CLASS_EVENTS = 2_000


@dataclass(frozen=True, slots=True)
class Told:
    """The dominant reason from `since` on."""

    since: datetime
    code: str


def reason_history(job: Job) -> list[Told]:
    """The dominant reasons of a job in order, oldest first, repeats left out; at most a hundred, the newest."""
    own = list(
        Event.objects.filter(job=job.pk, kind="job.reason")
        .order_by("seq")
        .values_list("seq", "at", "numbers")
    )
    told = [(seq, at, str(numbers["code"])) for seq, at, numbers in own]
    keys = {numbers.get("class_key") for _seq, _at, numbers in own} | {job.class_key}
    told += _of_classes(job, keys - {None, ""})
    found: list[Told] = []
    for _seq, at, code in sorted(told):
        if not found or found[-1].code != code:
            found.append(Told(at, code))
    return found[-MOST_ENTRIES:]


def _of_classes(job: Job, keys: set[str]) -> list[tuple[int, datetime, str]]:
    if not keys:
        return []
    rows = Event.objects.filter(
        tenant=job.tenant.slug, kind="jobs.reason", at__gte=job.submitted_at
    ).order_by("-seq")
    return [
        (seq, at, str(numbers["code"]))
        for seq, at, numbers in rows.values_list("seq", "at", "numbers")[:MOST_CLASS_EVENTS]
        if numbers.get("class_key") in keys
    ]
