"""Properties of plans over thousands of random snapshots."""

import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.core.consequences import enacted
from scheduler.core.inputs.cluster import OutCause
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.snapshot import Effort, Options
from scheduler.core.invariants import check_plan
from scheduler.core.memo import Memo
from scheduler.core.planner import plan
from scheduler.core.resources import Amount
from tests.core.strategies import EXAMPLES, random_snapshot

seeds = st.integers(min_value=0, max_value=2**32)


@given(seeds)
@example(15_526)
@settings(max_examples=EXAMPLES, deadline=None)
def test_every_plan_keeps_every_invariant(seed):
    """15526: a tenant that a start of the same pass took above its quota lost what it ran inside it."""
    snapshot = random_snapshot(seed)
    assert check_plan(snapshot, plan(snapshot)) == []


@given(seeds)
@settings(max_examples=EXAMPLES // 3, deadline=None)
def test_same_snapshot_same_plan_whatever_the_memo(seed):
    snapshot = random_snapshot(seed)
    memo = Memo()
    plan(random_snapshot(seed + 1), memo=memo)
    first = plan(snapshot, memo=memo)
    assert first == plan(snapshot, memo=memo)
    assert first == plan(snapshot)


def _moved_on(snapshot, rng, step):
    """The snapshot a little later: nodes change in place, jobs end, stop, save, come and change, and now and then
    a quota or a queue does."""
    nodes = tuple(
        replace(
            node, outs=rng.choice([(), (OutCause.CORDONED,)]), foreign=Amount(rng.choice([0, 4]))
        )
        if rng.random() < 0.3
        else node
        for node in snapshot.nodes
    )
    running = tuple(
        _another(job, snapshot.now, rng) for job in snapshot.running if rng.random() < 0.8
    )
    waiting = tuple(
        replace(job, begin_at=snapshot.now + rng.choice([-1, 500])) if rng.random() < 0.1 else job
        for job in snapshot.waiting
        if rng.random() < 0.9
    )
    asks = [job.ask for job in snapshot.waiting]
    fresh = tuple(
        WaitingJob(f"k{step}-{i}", rng.choice(asks), snapshot.now - rng.uniform(0, 9_000))
        for i in range(rng.randint(0, 3) if asks else 0)
    )
    queues, tenants = snapshot.queues, snapshot.tenants
    if rng.random() < 0.2:
        queues = tuple(replace(queue, user_fairness=rng.random() < 0.5) for queue in queues)
    if rng.random() < 0.2:
        tenants = tuple(replace(tenant, cohort=rng.choice([None, "root"])) for tenant in tenants)
    return replace(
        snapshot,
        now=snapshot.now + rng.choice([1, 60, 3_000]),
        nodes=nodes,
        running=running,
        waiting=(*waiting, *fresh),
        queues=queues,
        tenants=tenants,
    )


def _another(job, now, rng):
    """The running job as it is or, sometimes, stopping or with a checkpoint reported."""
    if rng.random() < 0.1:
        return replace(job, stopping=True, stops_by=now + 30.0)
    return replace(job, last_checkpoint_at=now - 5.0) if rng.random() < 0.1 else job


@given(seeds)
@settings(max_examples=EXAMPLES // 2, deadline=None)
def test_warm_plans_equal_cold_ones_over_a_chain_of_changes(seed):
    rng = random.Random(seed)
    memo = Memo()
    snapshot = random_snapshot(seed)
    for step in range(5):
        made = plan(snapshot, memo=memo)
        assert made == plan(snapshot)
        assert check_plan(snapshot, made) == []
        snapshot = _moved_on(enacted(snapshot, made), rng, step)


@given(seeds)
@settings(max_examples=EXAMPLES // 3, deadline=None)
def test_explaining_changes_no_decision(seed):
    snapshot = random_snapshot(seed)
    plain = plan(snapshot, Options(effort=Effort.DECIDE))
    full = plan(snapshot)
    assert (plain.starts, plain.evictions, plain.bookings) == (
        full.starts,
        full.evictions,
        full.bookings,
    )


@given(seeds)
@settings(max_examples=EXAMPLES // 3, deadline=None)
def test_order_of_rows_does_not_matter(seed):
    snapshot = random_snapshot(seed)
    rng = random.Random(seed)
    shuffled = {
        name: tuple(rng.sample(getattr(snapshot, name), len(getattr(snapshot, name))))
        for name in ("nodes", "waiting", "running", "queues")
    }
    other = plan(type(snapshot)(**{**_fields(snapshot), **shuffled}))
    assert other.starts == plan(snapshot).starts
    assert other.verdicts == plan(snapshot).verdicts


def _fields(snapshot):
    return {name: getattr(snapshot, name) for name in snapshot.__dataclass_fields__}
