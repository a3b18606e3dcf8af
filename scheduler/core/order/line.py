"""One queue's waiting jobs in the order in which they are considered.

Priority, then age, then id. With user fairness, inside one priority: what has waited long, then the
first job of everybody who has nothing running, then by the user's decayed usage. That moves as jobs
start in the pass, so the next job is chosen when it is asked for.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from enum import IntEnum
from itertools import islice

from scheduler.core.inputs.jobs import WaitingJob

Aged = tuple[tuple[int, float, str], WaitingJob, tuple[str, str]]
"""A waiting job behind its `age_key`, with its tenant and queue."""

UsageOf = Callable[[str], float]
IsBusy = Callable[[str], bool]
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


class _Rank(IntEnum):
    """Why a user's next job stands where it does, inside one priority."""

    DUE = 0
    NEWCOMER = 1
    FIRST = 2
    BY_USAGE = 3


NEWCOMER_GPU_SECONDS = 3_600.0
"""A user who has used less than this of late is a newcomer: one GPU hour."""


_Entry = tuple[int, _Rank, float, float, str, str]
"""A user's next job in the heap: priority (high first), rank, usage, submission, id, user."""


class FairLine:
    """Jobs of many users. Inside one priority, in this order:

    1. jobs submitted until `due_before`, the oldest first: so fairness starves nobody;
    2. of each user who has nothing running the first job: those of newcomers, then the others, the
       oldest first. So nobody waits behind all that a colleague has sent, not even when that
       colleague's jobs have just ended together; and one is passed by one job of each user only;
    3. all others: the user with the least usage first, then age.

    `usage_of` gives a user's usage now, `is_busy` whether anything of the user runs. While the line is
    used, usage may only grow and who is busy stays busy.
    """

    def __init__(
        self,
        jobs: Iterable[WaitingJob],
        usage_of: UsageOf,
        is_busy: IsBusy,
        due_before: float = -math.inf,
    ) -> None:
        """`jobs` are in order of `age_key`."""
        self._usage_of = usage_of
        self._is_busy = is_busy
        self._due_before = due_before
        self._had_turn: set[str] = set()
        self._by_user: dict[tuple[int, str], deque[WaitingJob]] = defaultdict(deque)
        for job in jobs:
            self._by_user[-job.ask.priority, job.ask.user].append(job)
        self._taken: list[str] = []
        self._heap = [self._entry(key) for key in self._by_user]
        heapq.heapify(self._heap)

    def _entry(self, key: tuple[int, str]) -> _Entry:
        head = self._by_user[key][0]
        rank = self._rank(head)
        usage = self._usage_of(key[1]) if rank is _Rank.BY_USAGE else 0.0
        return (key[0], rank, usage, head.submitted_at, head.id, key[1])

    def _rank(self, job: WaitingJob) -> _Rank:
        if job.submitted_at <= self._due_before:
            return _Rank.DUE
        user = job.ask.user
        if user in self._had_turn or self._is_busy(user):
            return _Rank.BY_USAGE
        is_newcomer = self._usage_of(user) < NEWCOMER_GPU_SECONDS
        return _Rank.NEWCOMER if is_newcomer else _Rank.FIRST

    def _take(self, jobs: deque[WaitingJob]) -> WaitingJob:
        job = jobs.popleft()
        self._taken.append(job.id)
        if is_plain(job):
            # One that may have to wait for a time or another job leaves the turn to the next.
            self._had_turn.add(job.ask.user)
        return job

    def _refresh(self) -> None:
        """Usage only grows: an entry that grew sinks until the top is true."""
        while self._heap:
            top = self._heap[0]
            now = self._entry((top[0], top[5]))
            if now == top:
                return
            heapq.heapreplace(self._heap, now)

    def peek(self) -> WaitingJob | None:
        """The next job, left in line."""
        self._refresh()
        if not self._heap:
            return None
        top = self._heap[0]
        return self._by_user[top[0], top[5]][0]

    def pop(self) -> WaitingJob:
        """Take the next job."""
        self._refresh()
        top = self._heap[0]
        job = self._take(self._by_user[top[0], top[5]])
        self._sink()
        return job

    def _sink(self) -> None:
        """The first user's next job has changed: put the user where it belongs now."""
        key = (self._heap[0][0], self._heap[0][5])
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
        priority, rank, usage, _, _, user = self._heap[0]
        others = min(self._heap[1:3], default=None)
        jobs = self._by_user[priority, user]
        while jobs:
            job = jobs[0]
            mine = (priority, rank, usage, job.submitted_at, job.id, user)
            if others is not None and others < mine:
                return
            yield job
            self._take(jobs)
            if rank is not _Rank.BY_USAGE:
                # The next may be of another rank.
                return

    def taken(self) -> list[str]:
        """Ids of the jobs taken so far, in order."""
        return self._taken


Line = PlainLine | FairLine
