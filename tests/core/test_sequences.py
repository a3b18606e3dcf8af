"""Sequences of events: plans are enacted, nodes fail and return, jobs end; every step keeps every invariant."""

import random
from dataclasses import replace

from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from scheduler.core.calendar.ends import planned_end
from scheduler.core.inputs.cluster import OutCause
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.snapshot import Options
from scheduler.core.invariants import check_plan
from scheduler.core.memo import Memo
from scheduler.core.planner import plan
from tests.core.strategies import EXAMPLES, as_running, random_snapshot

seeds = st.integers(min_value=0, max_value=2**32)
STEPS = 6


def enacted(given, made):
    """The snapshot once the plan is in rows: starts run, victims are told to stop, holds are kept."""
    asks = {waiting.id: waiting.ask for waiting in given.waiting}
    starting = {start.job for start in made.starts}
    orders = {eviction.job: eviction for eviction in made.evictions}
    withdrawn = set(made.withdrawn)
    running = []
    for job in given.running:
        if job.id in orders:
            stops_by = given.now + job.ask.grace_seconds
            job = replace(
                job,
                stopping=True,
                stops_by=stops_by,
                evicted_for=orders[job.id].preemptor,
                eviction_signalled=True,
            )
        elif job.id in withdrawn:
            job = replace(job, evicted_for=None)
        running.append(job)
    running += [as_running(start, asks[start.job], given.now) for start in made.starts]
    waiting = tuple(waiting for waiting in given.waiting if waiting.id not in starting)
    return replace(given, running=tuple(running), waiting=waiting, holds=made.holds)


def moved_on(given, rng):
    """Some time later: jobs that are due end (victims come back), a node fails or returns."""
    now = given.now + rng.choice([1.0, 45.0, 400.0, 3_000.0])
    over = [
        job for job in given.running if planned_end(job, given.now) <= now or rng.random() < 0.05
    ]
    back = tuple(
        WaitingJob(job.id, job.ask, given.now - 5_000, preemptions=job.preemptions + 1)
        for job in over
        if job.evicted_for is not None
    )
    gone = {job.id for job in over}
    nodes = tuple(
        replace(node, outs=rng.choice([(), (OutCause.NOT_READY,), (OutCause.SUSPECT,)]))
        if rng.random() < 0.1
        else node
        for node in given.nodes
    )
    running = tuple(job for job in given.running if job.id not in gone)
    return replace(given, now=now, nodes=nodes, running=running, waiting=(*given.waiting, *back))


@examples(seeds)
@settings(max_examples=EXAMPLES // 2, deadline=None)
def test_sequences_of_events_keep_every_invariant_warm_and_cold(seed):
    rng, memo = random.Random(seed), Memo()
    given = random_snapshot(seed)
    for _ in range(STEPS):
        made = plan(given, memo=memo)
        assert check_plan(given, made) == []
        assert made == plan(given)
        given = moved_on(enacted(given, made), rng)


@examples(seeds)
@settings(max_examples=EXAMPLES // 2, deadline=None)
def test_no_plan_repeats_without_progress(seed):
    """Enacted and planned again at the same moment, a plan's starts and evictions are not made again."""
    given = random_snapshot(seed)
    made = plan(given)
    again = plan(enacted(given, made))
    decided = {start.job for start in made.starts} | {eviction.job for eviction in made.evictions}
    assert not decided & {start.job for start in again.starts}
    assert not decided & {eviction.job for eviction in again.evictions}
    if decided:
        assert again.identity != made.identity


@examples(seeds)
@settings(max_examples=EXAMPLES // 2, deadline=None)
def test_dominant_reason_is_the_first_check_that_fails_behind_the_jobs_ahead(seed):
    """Without bookings: put what started ahead of a class's first job in its place, and ask for that job alone."""
    given = random_snapshot(seed)
    queues = tuple(replace(queue, booking_depth=0, backfill=True) for queue in given.queues)
    given = replace(given, queues=queues)
    still = Options(preempt=False)
    made = plan(given, still)
    place = {job: number for number, job in enumerate(made.order)}
    jobs = {waiting.id: waiting for waiting in given.waiting}
    for verdict in made.verdicts.values():
        ahead = tuple(
            as_running(start, jobs[start.job].ask, given.now)
            for start in made.starts
            if place[start.job] < place[verdict.job]
        )
        alone = replace(given, running=(*given.running, *ahead), waiting=(jobs[verdict.job],))
        told = plan(alone, still).verdicts[verdict.class_key]
        assert told.reasons == verdict.reasons
