"""The planner's one entry point. The loop, simulations, previews and replays all call `plan`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler.core.cycle.estimates import estimates
from scheduler.core.cycle.gates import cluster_gate
from scheduler.core.cycle.growth import growing, resizes
from scheduler.core.cycle.passes import Outcome, Pass
from scheduler.core.cycle.world import World, build_world
from scheduler.core.identity import plan_identity
from scheduler.core.inputs.snapshot import Effort, Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.outputs import Estimate, Plan, Resize

DEFAULT_OPTIONS = Options()


def plan(snapshot: Snapshot, options: Options = DEFAULT_OPTIONS, memo: Memo | None = None) -> Plan:
    """What to do now, and why everything else waits.

    Pure: the same snapshot and options give the same plan. A `memo` kept by the caller between
    plans of one cluster only makes it faster.
    """
    world = build_world(snapshot, options, Memo() if memo is None else memo)
    run = Pass(world)
    outcome = run.run()
    bookings = run.backfill.outputs()
    evictions = tuple(run.evictions.evictions)
    explains = options.effort is Effort.EXPLAIN
    still = _still_waiting(outcome)
    return Plan(
        now=snapshot.now,
        revision=snapshot.revision,
        identity=plan_identity(outcome.starts, evictions, _touched(world, outcome)),
        starts=tuple(outcome.starts),
        verdicts=outcome.verdicts() if explains else {},
        classes=outcome.classes if explains else {},
        own_reasons=outcome.own_reasons,
        order=tuple(outcome.order),
        bookings=bookings,
        estimates=tuple(estimates(world, run.backfill, still, bookings)),
        counterfactuals=outcome.counterfactuals,
        resizes=_resizes(world, still),
        evictions=evictions,
        holds=run.evictions.holds(),
        withdrawn=run.evictions.withdrawn({start.job for start in outcome.starts}),
        finishes=tuple(outcome.finishes),
        over_admissions=world.accounts.over_admissions,
        stats=outcome.stats(),
    )


def estimating(snapshot: Snapshot, options: Options, memo: Memo) -> Iterator[Estimate]:
    """The estimates that `plan` would give with these options, one at a time.

    For callers that have other things to do in between: the pass is made when the first is asked
    for, each one after it costs a few milliseconds at 10,000 nodes. Until the last has come the memo
    must not be used for another plan.
    """
    world = build_world(snapshot, options, memo)
    run = Pass(world)
    still = _still_waiting(run.run())
    yield from estimates(world, run.backfill, still, run.backfill.outputs())


def _resizes(world: World, waiting: list[str]) -> tuple[Resize, ...]:
    wishes = growing(world)
    if not wishes or cluster_gate(world.snapshot, world.options) is not None:
        return ()
    jobs = world.memo.lines(world.snapshot).jobs
    wanted = {flavor for job_id in waiting for flavor in jobs[job_id].ask.flavors}
    return resizes(world, {name: jobs for name, jobs in wishes.items() if name not in wanted})


def _still_waiting(outcome: Outcome) -> list[str]:
    starting = {start.job for start in outcome.starts}
    return [job_id for job_id in outcome.order if job_id not in starting]


def _touched(world: World, outcome: Outcome) -> Iterable[tuple[str, int]]:
    """(name, version) of every node and tenant that the decisions rest on."""
    touched: set[tuple[str, int]] = set()
    starting = {start.job for start in outcome.starts}
    for start in outcome.starts:
        grid = world.fields[start.flavor].grid
        touched.update((name, grid.nodes[grid.index[name]].version) for name in start.nodes)
    jobs = world.memo.lines(world.snapshot).jobs
    tenants = {jobs[job_id].ask.tenant for job_id in starting}
    touched.update((t.name, t.version) for t in world.snapshot.tenants if t.name in tenants)
    return touched
