"""One pass: jobs in order, each started, blocked or gated; a verdict per class.

Equal shapes are tried once: inside a pass nothing is freed, so what was refused stays refused.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from scheduler.core.cycle.attempts import Blocked, Obstacle, Placed, attempt, refusals
from scheduler.core.cycle.backfill import Backfill
from scheduler.core.cycle.evictions import Evictions
from scheduler.core.cycle.gates import cluster_gate, own_gate, queue_gate
from scheduler.core.cycle.probes import counterfactuals
from scheduler.core.cycle.starts import start_of
from scheduler.core.cycle.world import World
from scheduler.core.explain.waits import booking_reason, with_frees_at
from scheduler.core.inputs.jobs import Ask, WaitingJob
from scheduler.core.inputs.quotas import Queue
from scheduler.core.inputs.snapshot import Effort
from scheduler.core.memo import Place
from scheduler.core.order.line import FairLine, Line, PlainLine, age_key
from scheduler.core.order.merge import merged_order
from scheduler.core.order.turns import Turns
from scheduler.core.order.usage import UserUsage
from scheduler.core.outputs import Counterfactual, Finish, FinishCause, Start, Stats, Verdict
from scheduler.core.reasons import FOR_EVER, Numbers, Reason, ReasonCode

_BOOKABLE = (Obstacle.ROOM, Obstacle.BOOKING)
_EVICTABLE = (Obstacle.ROOM, Obstacle.QUOTA)


@dataclass(slots=True)
class Outcome:
    """What a pass has decided so far."""

    starts: list[Start] = field(default_factory=list)
    blocked: dict[str, tuple[WaitingJob, tuple[Reason, ...]]] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    own_reasons: dict[str, Reason] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    counterfactuals: dict[str, tuple[Counterfactual, ...]] = field(default_factory=dict)
    tried: int = 0
    skipped: int = 0

    def verdicts(self) -> dict[str, Verdict]:
        """One verdict per class that has a waiting job."""
        sizes = Counter(self.classes.values())
        return {
            key: Verdict(key, job.id, reasons[0], reasons, sizes[key])
            for key, (job, reasons) in self.blocked.items()
        }

    def stats(self) -> Stats:
        """Counts for metrics."""
        return Stats(len(self.order), self.tried, self.skipped, len(self.blocked))


@dataclass(frozen=True, slots=True)
class _Refused:
    """A class that was refused: the shortest limit that was, whether a booking might be made, and
    why it can never start, if so."""

    limit: float
    may_book: bool
    never: Reason | None


class Pass:
    """One run over the waiting jobs of a world.

    Jobs are first considered in order. Once a queue has a booking, its other jobs become backfill
    candidates, which are considered after that, the shortest first where the queue says so.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.outcome = Outcome()
        self.backfill = Backfill(world)
        self.evictions = Evictions(world)
        self._usage = UserUsage(world.snapshot)
        self._explains = world.options.effort is Effort.EXPLAIN
        self._gate = cluster_gate(world.snapshot, world.options)
        self._now, self._probed = world.now, world.options.probe
        self._deferred: list[WaitingJob] = []
        self._turned: list[WaitingJob] = []
        self._is_second_round = False
        self._refused: dict[str, _Refused] = {}
        self._seen: dict[int, tuple[Ask, str, Queue]] = {}
        self._closed: dict[int, str] = {}
        self._answered: dict[int, str] = {}
        """Classes by ask (its id): of those whose jobs are all refused, and of those whose jobs are
        refused unless they want a booking."""
        self._least = world.memo.least_gpus
        self._unlike: set[str] = set()
        """Jobs that are not like their class."""
        self._strict: dict[str, list[WaitingJob]] = {}

    def run(self) -> Outcome:
        """Consider every waiting job once."""
        waiting = self.world.memo.lines(self.world.snapshot)
        self._unlike = waiting.special | self._probed | self.evictions.held
        lines = {place: self._line(place, jobs) for place, jobs in waiting.by_place.items()}
        self._take_turns(lines, self._in_order)
        self._is_second_round = True
        deferred: dict[Place, list[WaitingJob]] = defaultdict(list)
        for job in self._deferred:
            deferred[job.ask.tenant, job.ask.queue].append(job)
        if deferred:
            self._take_turns(
                {
                    place: PlainLine(_shortest_first(_sorted(jobs, waiting.by_place[place])))
                    for place, jobs in deferred.items()
                },
                self._consider,
            )
        taken = {place: line.taken() for place, line in lines.items()}
        self.outcome.order = merged_order(waiting.aged, self._turned, taken)
        return self.outcome

    def _take_turns(
        self, lines: Mapping[tuple[str, str], Line], consider: Callable[[WaitingJob], None]
    ) -> None:
        snapshot, accounts = self.world.snapshot, self.world.accounts
        turns = Turns(snapshot, lines, accounts, age_key, self._head_of)
        while (following := turns.next()) is not None:
            consider(following)

    def _line(self, place: tuple[str, str], jobs: list[WaitingJob]) -> Line:
        queue = self.world.queue_of(jobs[0])
        if not queue.user_fairness or all(job.ask.user == jobs[0].ask.user for job in jobs):
            return PlainLine(jobs)
        after = queue.booking_after_seconds
        due_before = -math.inf if after is None else self._now - after
        usage, tenant = self._usage, place[0]
        return FairLine(jobs, partial(usage.of, tenant), partial(usage.is_busy, tenant), due_before)

    def _head_of(self, line: Line) -> WaitingJob | None:
        """The next job of the line that needs a turn; those before it are taken out, with their
        answers noted."""
        while True:
            self._pass_known(line)
            head = line.peek()
            if head is None or not self._needs_no_turn(head):
                return head
            line.pop()

    def _pass_known(self, line: Line) -> None:
        """Take out, many at a time, jobs whose asks are answered and that want no booking."""
        head = line.peek()
        if head is None:
            return
        queue = self.world.queue_of(head)
        if queue.name in self._strict:
            return
        may_defer = not self._is_second_round and queue.name in self.backfill.deferring
        booked_before = self.backfill.books_before(queue)
        closed, answered, classes = self._closed, self._answered, self.outcome.classes
        hopeless, unlike = self._hopeless_from(queue), self._unlike
        passed, deferred = 0, len(self._deferred)
        with closing(line.ahead()) as ahead:
            for job in ahead:
                if job.id in unlike:
                    break
                ask = id(job.ask)
                key = closed.get(ask)
                if key is None:
                    if job.submitted_at <= booked_before:
                        break
                    key = answered.get(ask)
                if key is not None:
                    classes[job.id] = key
                elif hopeless is not None and self._least(job.ask) >= hopeless:
                    pass
                elif may_defer:
                    self._deferred.append(job)
                else:
                    break
                passed += 1
        self.outcome.skipped += passed - (len(self._deferred) - deferred)

    def _needs_no_turn(self, job: WaitingJob) -> bool:
        """Take note of a job whose answer is the same whenever its turn comes: one of a class that
        was refused and that nothing can help in this pass, or a backfill candidate for later."""
        ask = job.ask
        seen = self._seen.get(id(ask))
        if seen is None:
            seen = self._seen[id(ask)] = (ask, self.world.key_of(job), self.world.queue_of(job))
        _, key, queue = seen
        refused = None if job.survivors else self._refused.get(key)
        may_defer = not self._is_second_round and queue.name in self.backfill.deferring
        if refused is None and not may_defer:
            return False
        if own_gate(job, self._now) is not None or queue.name in self._strict:
            return False
        if refused is not None and self._is_known(refused, queue, job):
            if self.evictions.is_held_for(job):
                return False
            self.outcome.skipped += 1
            self.outcome.classes[job.id] = key
            if refused.never is not None:
                self.outcome.finishes.append(Finish(job.id, FinishCause.INFEASIBLE, refused.never))
            elif job.id not in self._unlike:
                (self._answered if refused.may_book else self._closed)[id(ask)] = key
            return True
        if may_defer and self.backfill.defers(queue, job):
            self._deferred.append(job)
            return True
        return False

    def _hopeless_from(self, queue: Queue) -> int | None:
        """From how many GPUs on a job of the queue that wants no booking needs more than are free on
        any flavor, so that its turn would bring nothing. Cheap, and enough where nobody asks for
        reasons; None where it does not hold."""
        if self._explains or self.evictions.may_search or self._gate or not queue.backfill:
            return None
        return 1 + max((field.most_gpus for field in self.world.fields.values()), default=0)

    def _in_order(self, job: WaitingJob) -> None:
        """Consider the job, or leave it for later as a backfill candidate."""
        self._turned.append(job)
        own = own_gate(job, self.world.now)
        if own is not None:
            self.outcome.own_reasons[job.id] = own
            return
        if self.backfill.defers(self.world.queue_of(job), job):
            self._deferred.append(job)
            return
        self._consider(job)

    def _consider(self, job: WaitingJob) -> None:
        """Start the job or note why not."""
        key, queue = self.world.key_of(job), self.world.queue_of(job)
        gate = self._gate or queue_gate(queue) or self._behind(queue, job) or self._spent()
        if gate is not None:
            self._block(job, key, (gate,))
            return
        if self.evictions.is_held_for(job):
            self._take_held(job)
            return
        refused = self._refused.get(key)
        if refused is not None and self._is_known(refused, queue, job):
            self.outcome.skipped += 1
            self._wait(job, key)
            return
        self.outcome.tried += 1
        found = attempt(self.world, job)
        if isinstance(found, Placed):
            self._start(job, found)
            return
        self._refuse(job, key, queue, found)

    def _take_held(self, job: WaitingJob) -> None:
        """Start the job on what was freed for it, or go on keeping it."""
        self.evictions.release(job.id)
        found = attempt(self.world, job)
        if isinstance(found, Placed):
            self.evictions.started(job.id)
            self._start(job, found)
            return
        self.evictions.keep(job.id)
        self.outcome.own_reasons[job.id] = self.evictions.waiting_reason(job)

    def _is_known(self, refused: _Refused, queue: Queue, job: WaitingJob) -> bool:
        """Whether this job of a class that was refused can fare no better and gets no booking."""
        if job.id in self._probed:
            return False
        if not refused.may_book:
            return True
        return job.ask.limit >= refused.limit and not self.backfill.wants_booking(queue, job)

    def _behind(self, queue: Queue, job: WaitingJob) -> Reason | None:
        ahead = self._strict.get(queue.name)
        if ahead is None:
            return None
        numbers: Numbers = {
            "jobs_ahead": len(ahead),
            "first_job": ahead[0].id,
            "first_priority": ahead[0].ask.priority,
        }
        ahead.append(job)
        return Reason(ReasonCode.HIGHER_PRIORITY_AHEAD, numbers)

    def _spent(self) -> Reason | None:
        most = self.world.options.max_starts
        if most is not None and len(self.outcome.starts) >= most:
            return Reason(ReasonCode.NOT_YET_CONSIDERED, {})
        return None

    def _start(self, job: WaitingJob, placed: Placed) -> None:
        start = start_of(self.world, job, placed)
        self.world.fields[placed.flavor].take(*placed.placement.usage())
        self.world.accounts.promise(job.ask, placed.flavor, start.gpus)
        self.backfill.started(job, placed)
        self._usage.started(job.ask.tenant, job.ask.user, start.gpus)
        self.outcome.starts.append(start)

    def _refuse(self, job: WaitingJob, key: str, queue: Queue, found: Blocked) -> None:
        if found.obstacle in _EVICTABLE and self.evictions.evict_for(job):
            self.outcome.own_reasons[job.id] = self.evictions.waiting_reason(job)
            return
        known = self.outcome.blocked.get(key)
        reasons = self._reasons(job, found) if known is None else known[1]
        may_book = found.obstacle in _BOOKABLE
        if may_book and self.backfill.wants_booking(queue, job):
            booked = self.backfill.book(queue, job)
            may_book = booked is not None
            if booked is not None and self._explains:
                reasons = with_frees_at(reasons, booked, self.backfill.bookings_of(job.id))
        limit = self._refused[key].limit if key in self._refused else math.inf
        never = reasons[0] if reasons[0].code in FOR_EVER else None
        self._refused[key] = _Refused(min(limit, job.ask.limit), may_book, never)
        if not queue.backfill and found.obstacle is not Obstacle.STATIC:
            self._strict.setdefault(queue.name, [job])
        self._block(job, key, reasons)
        if self._probes(job):
            self.outcome.counterfactuals[job.id] = counterfactuals(
                self.world, self.backfill, job, reasons
            )

    def _probes(self, job: WaitingJob) -> bool:
        options = self.world.options
        return job.id in options.probe or len(self.outcome.counterfactuals) < options.probe_first

    def _reasons(self, job: WaitingJob, found: Blocked) -> tuple[Reason, ...]:
        if not self._explains:
            return (Reason(ReasonCode.NOT_YET_CONSIDERED, {}),)
        reasons = refusals(self.world, job)
        if found.booked is not None:
            ask = job.ask
            extra = self.world.options.start_allowance_seconds + ask.grace_seconds
            delayed = booking_reason(self.world.now, extra, ask.least_gpus, found.booked)
            reasons = (delayed, *reasons)
        return reasons

    def _block(self, job: WaitingJob, key: str, reasons: tuple[Reason, ...]) -> None:
        self.outcome.blocked.setdefault(key, (job, reasons))
        self._wait(job, key)

    def _wait(self, job: WaitingJob, key: str) -> None:
        self.outcome.classes[job.id] = key
        reason = self.outcome.blocked[key][1][0]
        if reason.code in FOR_EVER:
            self.outcome.finishes.append(Finish(job.id, FinishCause.INFEASIBLE, reason))


def _sorted(jobs: list[WaitingJob], line: list[WaitingJob]) -> list[WaitingJob]:
    """The jobs, some of those of the line, in its order."""
    wanted = {job.id for job in jobs}
    return [job for job in line if job.id in wanted]


def _shortest_first(jobs: list[WaitingJob]) -> list[WaitingJob]:
    """By priority, then by the shortest limit; those with equal ones stay in order."""
    ranks: dict[int, tuple[int, float]] = {}
    by_rank: dict[tuple[int, float], list[WaitingJob]] = defaultdict(list)
    for job in jobs:
        ask = job.ask
        rank = ranks.get(id(ask))
        if rank is None:
            rank = ranks[id(ask)] = (-ask.priority, ask.limit)
        by_rank[rank].append(job)
    return [job for rank in sorted(by_rank) for job in by_rank[rank]]
