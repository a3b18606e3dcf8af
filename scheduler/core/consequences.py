"""What must hold of the plans that follow one: named like `invariants`, for tests that can afford to plan again.

`enacted` is the snapshot once a plan is in rows; `check_consequences` plans it again. Called by tests
of every layer beside `invariants.check_plan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scheduler.core.inputs.jobs import Ask, RunningJob
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.outputs import Plan, Start
from scheduler.core.planner import DEFAULT_OPTIONS, plan


def as_running(start: Start, ask: Ask, placed_at: float) -> RunningJob:
    """The running job that a start becomes: it runs a second after it was placed."""
    return RunningJob(start.job, 1, ask, start.flavor, start.seats, placed_at, placed_at + 1.0)


def enacted(given: Snapshot, made: Plan) -> Snapshot:
    """The snapshot once the plan is in rows: starts run, victims are told to stop, holds are kept."""
    asks = {waiting.id: waiting.ask for waiting in given.waiting}
    preemptors = {eviction.job: eviction.preemptor for eviction in made.evictions}
    starting, withdrawn = {start.job for start in made.starts}, set(made.withdrawn)
    running = []
    for job in given.running:
        if job.id in preemptors:
            running.append(
                replace(
                    job,
                    stopping=True,
                    stops_by=given.now + job.ask.grace_seconds,
                    evicted_for=preemptors[job.id],
                    eviction_signalled=True,
                )
            )
        else:
            running.append(replace(job, evicted_for=None) if job.id in withdrawn else job)
    running += [as_running(start, asks[start.job], given.now) for start in made.starts]
    waiting = tuple(waiting for waiting in given.waiting if waiting.id not in starting)
    return replace(given, running=tuple(running), waiting=waiting, holds=made.holds)


def check_consequences(
    given: Snapshot, made: Plan, options: Options = DEFAULT_OPTIONS
) -> list[str]:
    """All violations; empty when the plans that follow are sound. `made` is the plan of `given`
    under `options`, which should not probe."""
    return [
        *_same_again(given, made, options),
        *_repeats(given, made, options),
        *_preempted_for_nothing(given, made, options),
    ]


def _same_again(given: Snapshot, made: Plan, options: Options) -> Iterator[str]:
    """same snapshot, same plan."""
    if plan(given, options) != made:
        yield "same_snapshot_same_plan: planned again, the plan is another"


def _repeats(given: Snapshot, made: Plan, options: Options) -> Iterator[str]:
    """no plan repeats without progress: what is enacted is not decided again at the same moment."""
    again = plan(enacted(given, made), options)
    decided = {start.job for start in made.starts} | {eviction.job for eviction in made.evictions}
    repeated = {start.job for start in again.starts} | {e.job for e in again.evictions}
    for job_id in sorted(decided & repeated):
        yield f"no_plan_repeats: {job_id} is decided about once more"
    if decided and again.identity == made.identity:
        yield "no_plan_repeats: the next plan has the same identity"


def _preempted_for_nothing(given: Snapshot, made: Plan, options: Options) -> Iterator[str]:
    """an eviction plan ends in the preemptor's start: it does when the victims are gone and nothing
    else has changed."""
    preemptors = {eviction.preemptor for eviction in made.evictions}
    if not preemptors:
        return
    victims = {eviction.job for eviction in made.evictions}
    after = enacted(given, made)
    left = tuple(job for job in after.running if job.id not in victims)
    starting = {start.job for start in plan(replace(after, running=left), options).starts}
    for job_id in sorted(preemptors - starting):
        yield f"eviction_ends_in_start: {job_id} does not start where its victims have gone"
