"""One queue's waiting jobs in the order in which they are considered.

Priority, then (where the queue says so) the user's decayed usage, then age, then id. Usage moves
as jobs start in the pass, so with user fairness the next job is chosen when it is asked for.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice

from scheduler.core.inputs.jobs import WaitingJob

Aged = tuple[tuple[int, float, str], WaitingJob, tuple[str, str]]
"""A waiting job behind its `age_key`, with its tenant and queue."""

UsageOf = Callable[[str], float]
LineKey = Callable[[WaitingJob], tuple[float | int | str, ...]]


def age_key(job: WaitingJob) -> tuple[int, float, str]:
    """Priority (high first), then age, then id."""
    return (-job.ask.priority, job.submitted_at, job.id)


def is_plain(job: WaitingJob) -> bool:
    """Whether nothing but its ask and age matters: no times, dependencies or survivors of its own."""
    return (
        job.begin_at is job.backoff_until is job.refused_until is None
        and not job.depends_on
        and not job.survivors
    )


class PlainLine:
    """Jobs in a fixed order; `place` is that of the next."""

    def __init__(self, jobs: Sequence[WaitingJob]) -> None:
        self.jobs = jobs
        self.place = 0

    def peek(self) -> WaitingJob | None:
        """The next job, left in line."""
        return self.jobs[self.place] if self.place < len(self.jobs) else None

    def pop(self) -> WaitingJob:
        """Take the next job."""
        self.place += 1
        return self.jobs[self.place - 1]

    def ahead(self) -> Generator[WaitingJob, None, None]:
        """The jobs from here on. Each one is taken when the next is asked for: stop at one, close the
        generator, and it stays in line."""
        for job in islice(self.jobs, self.place, None):
            yield job
            self.place += 1

    def taken(self) -> list[str]:
        """Ids of the jobs taken so far, in order."""
        return [job.id for job in self.jobs[: self.place]]


_DUE = -1.0
"""Stands for the usage of a user whose next job is due."""


class FairLine:
    """Jobs of many users: inside one priority the user with the least usage goes first.

    So that fairness starves nobody, jobs submitted until `due_before` go before all that are not,
    the oldest first. `usage_of` gives a user's usage now; it may only grow while the line is used.
    """

    def __init__(
        self, jobs: Iterable[WaitingJob], usage_of: UsageOf, due_before: float = -math.inf
    ) -> None:
        """`jobs` are in order of `age_key`."""
        self._usage_of = usage_of
        self._due_before = due_before
        self._by_user: dict[tuple[int, str], deque[WaitingJob]] = defaultdict(deque)
        for job in jobs:
            self._by_user[-job.ask.priority, job.ask.user].append(job)
        self._taken: list[str] = []
        self._heap = [self._entry(key) for key in self._by_user]
        heapq.heapify(self._heap)

    def _entry(self, key: tuple[int, str]) -> tuple[int, float, float, str, str]:
        head = self._by_user[key][0]
        is_due = head.submitted_at <= self._due_before
        usage = _DUE if is_due else self._usage_of(key[1])
        return (key[0], usage, head.submitted_at, head.id, key[1])

    def _refresh(self) -> None:
        """Usage only grows: an entry that grew sinks until the top is true."""
        while self._heap:
            top = self._heap[0]
            now = self._entry((top[0], top[4]))
            if now == top:
                return
            heapq.heapreplace(self._heap, now)

    def peek(self) -> WaitingJob | None:
        """The next job, left in line."""
        self._refresh()
        if not self._heap:
            return None
        top = self._heap[0]
        return self._by_user[top[0], top[4]][0]

    def pop(self) -> WaitingJob:
        """Take the next job."""
        self._refresh()
        top = self._heap[0]
        job = self._by_user[top[0], top[4]].popleft()
        self._taken.append(job.id)
        self._sink()
        return job

    def _sink(self) -> None:
        """The first user's next job has changed: put the user where it belongs now."""
        key = (self._heap[0][0], self._heap[0][4])
        if self._by_user[key]:
            heapq.heapreplace(self._heap, self._entry(key))
        else:
            heapq.heappop(self._heap)

    def ahead(self) -> Generator[WaitingJob, None, None]:
        """As in `PlainLine`. No usage may change meanwhile."""
        while self._heap:
            self._refresh()
            try:
                yield from self._ahead_of_others()
            finally:
                self._sink()

    def _ahead_of_others(self) -> Generator[WaitingJob, None, None]:
        """The first user's jobs that come before anybody else's."""
        priority, usage, _, _, user = self._heap[0]
        others = min(self._heap[1:3], default=None)
        jobs = self._by_user[priority, user]
        while jobs:
            job = jobs[0]
            if others is not None and others < (priority, usage, job.submitted_at, job.id, user):
                return
            yield job
            jobs.popleft()
            self._taken.append(job.id)
            if usage == _DUE:
                # The next may not be due any more.
                return

    def taken(self) -> list[str]:
        """Ids of the jobs taken so far, in order."""
        return self._taken


Line = PlainLine | FairLine
