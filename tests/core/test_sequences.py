"""Sequences of events: plans are enacted, nodes fail and return, jobs end; every step keeps every invariant."""

import random
from dataclasses import replace

from hypothesis import example, settings
from hypothesis import given as examples
from hypothesis import strategies as st

from scheduler.core.calendar.ends import planned_end
from scheduler.core.consequences import as_running, check_consequences, enacted
from scheduler.core.inputs.cluster import OutCause
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.snapshot import Options
from scheduler.core.invariants import check_plan
from scheduler.core.memo import Memo
from scheduler.core.planner import plan
from tests.core.strategies import EXAMPLES, random_snapshot

seeds = st.integers(min_value=0, max_value=2**32)
STEPS = 6


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
@example(351_509)
@settings(max_examples=EXAMPLES // 2, deadline=None)
def test_plans_that_follow_are_sound(seed):
    """The same again for the same snapshot; nothing decided twice; evictions end in the preemptor's start.

    351509: a borrower started ahead of a job that had quota of its own on its second flavor, and was reclaimed at once.
    """
    given = random_snapshot(seed)
    assert check_consequences(given, plan(given)) == []


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
