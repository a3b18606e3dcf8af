"""Properties of plans over thousands of random snapshots."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.inputs.cluster import OutCause
from scheduler.core.inputs.snapshot import Effort, Options
from scheduler.core.invariants import check_plan
from scheduler.core.memo import Memo
from scheduler.core.planner import plan
from scheduler.core.resources import Amount
from tests.core.strategies import EXAMPLES, random_snapshot

seeds = st.integers(min_value=0, max_value=2**32)


@given(seeds)
@settings(max_examples=EXAMPLES, deadline=None)
def test_every_plan_keeps_every_invariant(seed):
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


def _moved_on(snapshot, rng):
    """The snapshot a little later: nodes change in place, jobs end and come."""
    nodes = tuple(
        replace(
            node, outs=rng.choice([(), (OutCause.CORDONED,)]), foreign=Amount(rng.choice([0, 4]))
        )
        if rng.random() < 0.3
        else node
        for node in snapshot.nodes
    )
    running = tuple(job for job in snapshot.running if rng.random() < 0.7)
    waiting = tuple(job for job in snapshot.waiting if rng.random() < 0.8)
    return replace(snapshot, now=snapshot.now + 60, nodes=nodes, running=running, waiting=waiting)


@given(seeds)
@settings(max_examples=EXAMPLES // 2, deadline=None)
def test_warm_plans_equal_cold_ones_over_a_chain_of_changes(seed):
    rng = random.Random(seed)
    memo = Memo()
    snapshot = random_snapshot(seed)
    for _ in range(4):
        assert plan(snapshot, memo=memo) == plan(snapshot)
        snapshot = _moved_on(snapshot, rng)


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
