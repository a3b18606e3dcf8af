"""One order of all waiting jobs, for positions and estimates, from the turns of a pass.

A pass does not ask for the turn of a job whose answer is known; this puts such jobs back among the
others. Called by the cycle at the end of a pass.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.order.line import age_key

Taken = tuple[WaitingJob, bool]
"""A job as its queue gave it up, and whether it was passed over without a turn."""


def merged_order(taken: Sequence[Taken]) -> list[str]:
    """Ids of the jobs in order: those that had turns in the order of their turns, those passed over
    among them by priority and age, each queue's jobs in the order in which it gave them up."""
    queues: dict[tuple[str, str], deque[str]] = defaultdict(deque)
    for job, _ in taken:
        queues[job.ask.tenant, job.ask.queue].append(job.id)
    if len(queues) <= 1:
        return [job.id for job, _ in taken]
    turned = [job for job, is_passed in taken if not is_passed]
    passed = sorted((job for job, is_passed in taken if is_passed), key=age_key)
    places = (*_by_age(turned, passed),)
    return [queues[job.ask.tenant, job.ask.queue].popleft() for job in places]


def _by_age(turned: list[WaitingJob], passed: list[WaitingJob]) -> list[WaitingJob]:
    """Both lists in one: before each job that had its turn, those passed over that are older."""
    merged: list[WaitingJob] = []
    place, keys = 0, [age_key(job) for job in passed]
    for job in turned:
        key = age_key(job)
        while place < len(passed) and keys[place] < key:
            merged.append(passed[place])
            place += 1
        merged.append(job)
    merged.extend(passed[place:])
    return merged
