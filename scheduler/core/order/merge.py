"""One order of all waiting jobs, for positions and estimates, from the turns of a pass.

A pass does not ask for the turn of a job whose answer is known; this puts such jobs back among the
others. Called by the cycle at the end of a pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.order.line import Aged, age_key


def merged_order(
    aged: Sequence[Aged],
    turned: Sequence[WaitingJob],
    taken: Mapping[tuple[str, str], Sequence[str]],
) -> list[str]:
    """Ids of the jobs in order: those that had turns in the order of their turns, those passed over
    among them by priority and age, each queue's jobs in the order in which it gave them up.

    `aged` are all jobs by priority and age, `turned` those that had turns, `taken` the ids that each
    (tenant, queue) gave up.
    """
    if len(taken) == 1:
        return list(next(iter(taken.values())))
    had_turns = {job.id for job in turned}
    passed = [entry for entry in aged if entry[1].id not in had_turns]
    places: list[tuple[str, str]] = []
    first = 0
    for job in turned:
        # Those passed over that are older come before it.
        last = bisect_left(passed, (age_key(job),), first)
        places.extend([entry[2] for entry in passed[first:last]])
        places.append((job.ask.tenant, job.ask.queue))
        first = last
    places.extend([entry[2] for entry in passed[first:]])
    following = {place: iter(ids).__next__ for place, ids in taken.items()}
    return [following[place]() for place in places]
