"""Preemption, reclaim, fair-share preemption: who is stopped for whom, with what proof."""

from dataclasses import replace

import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from scheduler.core.consequences import as_running
from scheduler.core.inputs.jobs import Checkpoint, Hold
from scheduler.core.inputs.quotas import Cohort, OrderPolicy, Queue
from scheduler.core.inputs.snapshot import Options
from scheduler.core.planner import plan
from tests.core.builders import (
    NOW,
    ask,
    code_of,
    fabric,
    job,
    numbers_of,
    planned,
    role,
    running,
    snapshot,
    started,
    tenant,
)
from tests.core.strategies import EXAMPLES, random_snapshot

NODES = fabric(1, 2, 4)
OLD = NOW - 5_000.0


def runs(name, *nodes, of="t", gpus=8, **changes):
    placed = changes.pop("placed_at", OLD)
    extra = {
        k: changes.pop(k) for k in ("last_checkpoint_at", "preemptions", "stopping") if k in changes
    }
    least = changes.pop("least", None)
    changes.setdefault("max_runtime_seconds", 86_400.0)
    wanted = ask(
        role(len(nodes), gpus, min_replicas=least), tenant=of, queue=f"{of}/train", **changes
    )
    return running(
        name,
        *((n, gpus) for n in nodes),
        wanted=wanted,
        placed_at=placed,
        started_at=placed,
        **extra,
    )


def wants(name, replicas=1, of="t", gpus=8, level=None, **changes):
    from_role = role(replicas, gpus)
    if level:
        from_role = replace(from_role, topology=replace(from_role.topology, required=level))
    return job(name, ask(from_role, tenant=of, queue=f"{of}/train", **changes))


def world(*waiting, tenants=None, cohorts=(), running_jobs=(), nodes=NODES, **changes):
    tenants = tenants or (tenant(),)
    queues = tuple(Queue(f"{t.name}/train", t.name) for t in tenants)
    return replace(
        snapshot(nodes, *waiting, tenants=tenants, queues=queues, running=tuple(running_jobs)),
        cohorts=cohorts,
        **changes,
    )


def evicted(made):
    return [(e.job, str(e.rule)) for e in made.evictions]


FULL = tuple(n.name for n in NODES)


def test_lower_priority_makes_room_inside_a_tenant():
    low = runs("low", *FULL[:4], priority=100)
    same = runs("same", *FULL[4:])
    made = planned(world(wants("high", 2, priority=900), running_jobs=(low, same)))
    assert evicted(made) == [("low", "priority")]
    assert code_of(made, "high") == "waiting_for_preempted"
    assert made.holds[0].job == "high"
    assert {row[0] for row in made.holds[0].nodes} <= set(FULL[:4])


def test_equal_priority_is_never_preempted():
    made = planned(world(wants("new"), running_jobs=(runs("a", *FULL),)))
    assert evicted(made) == []


@pytest.mark.parametrize(
    ("protected", "why"),
    [
        ({"preemptible": False}, "not_preemptible"),
        ({"placed_at": NOW - 10.0}, "minimum_run_time"),
        ({"preemptions": 3}, "preemption_budget"),
    ],
)
def test_protected_jobs_are_refused_with_the_reason(protected, why):
    jobs = (
        runs("p", *FULL[:4], priority=100, **protected),
        runs("q", *FULL[4:], priority=200),
    )
    made = planned(world(wants("high", 1, priority=900), running_jobs=jobs))
    assert evicted(made) == [("q", "priority")]
    assert ("p", why) in made.evictions[0].refused


def test_cheapest_victim_since_its_last_checkpoint_goes():
    jobs = (
        runs("fresh", *FULL[:4], priority=100, last_checkpoint_at=NOW - 5.0),
        runs("stale", *FULL[4:], priority=100),
    )
    made = planned(world(wants("high", 1, priority=900), running_jobs=jobs))
    assert evicted(made) == [("fresh", "priority")]
    assert made.evictions[0].lost_gpu_seconds == 4 * 8 * 5.0


def test_checkpoint_interval_stands_in_for_reports():
    """Both save every hour; one started 61 minutes ago, the other 119."""
    every_hour = {"priority": 100, "checkpoint": Checkpoint(3_600.0, 0.0)}
    jobs = (
        runs("fresh", *FULL[:4], placed_at=NOW - 3_660.0, **every_hour),
        runs("stale", *FULL[4:], placed_at=NOW - 7_140.0, **every_hour),
    )
    made = planned(world(wants("high", 1, priority=900), running_jobs=jobs))
    assert evicted(made) == [("fresh", "priority")]
    assert made.evictions[0].lost_gpu_seconds == 4 * 8 * 60.0


def test_victims_that_are_not_needed_are_given_back():
    jobs = tuple(runs(f"v{i}", name, priority=100 + i) for i, name in enumerate(FULL))
    made = planned(world(wants("high", 4, level="leaf", priority=900), running_jobs=jobs))
    assert sorted(e.job for e in made.evictions) in (
        ["v0", "v1", "v2", "v3"],
        ["v4", "v5", "v6", "v7"],
    )


def test_victims_are_chosen_in_one_domain_that_then_holds_the_gang():
    """Eight lower jobs, but one in each leaf is out of reach: only a whole leaf helps."""
    fixed = runs("fixed", FULL[0], preemptible=False)
    jobs = (fixed, *(runs(f"v{i}", name, priority=100) for i, name in enumerate(FULL) if i))
    made = planned(world(wants("high", 4, level="leaf", priority=900), running_jobs=jobs))
    assert sorted(e.job for e in made.evictions) == ["v4", "v5", "v6", "v7"]


def test_nothing_is_evicted_when_it_would_not_help():
    fixed = (runs("f1", FULL[0], preemptible=False), runs("f2", FULL[4], preemptible=False))
    jobs = (*fixed, *(runs(f"v{i}", n, priority=100) for i, n in enumerate(FULL) if i % 4))
    made = planned(world(wants("high", 4, level="leaf", priority=900), running_jobs=jobs))
    assert evicted(made) == []


LENT = (tenant("a", 32, "co"), tenant("b", 32, "co"))
COHORT = (Cohort("co"),)


def test_owner_reclaims_what_was_lent():
    jobs = (runs("b1", *FULL[:4], of="b"), runs("b2", *FULL[4:], of="b", placed_at=OLD + 1))
    made = planned(world(wants("mine", 4, of="a"), tenants=LENT, cohorts=COHORT, running_jobs=jobs))
    assert evicted(made) == [("b2", "reclaim")]
    numbers = made.evictions[0].numbers
    assert (numbers["victim_used_gpus"], numbers["victim_nominal_gpus"]) == (64, 32)


def test_work_inside_its_own_quota_is_never_reclaimed():
    tenants = (tenant("a", 64, "co"), tenant("b", 64, "co"))
    jobs = (runs("b1", *FULL[:4], of="b"), runs("b2", *FULL[4:], of="b"))
    made = planned(
        world(
            wants("mine", 4, of="a", priority=900),
            tenants=tenants,
            cohorts=COHORT,
            running_jobs=jobs,
        )
    )
    assert evicted(made) == []


def test_borrower_does_not_reclaim_in_classic_order():
    tenants = (tenant("a", 0, "co"), tenant("b", 0, "co"), tenant("pool", 64, "co"))
    jobs = (runs("b1", *FULL, of="b"),)
    made = planned(world(wants("x", 1, of="a"), tenants=tenants, cohorts=COHORT, running_jobs=jobs))
    assert evicted(made) == []


def test_fair_share_takes_from_the_one_above_its_share():
    tenants = (tenant("a", 0, "co"), tenant("b", 0, "co"), tenant("pool", 64, "co"))
    fair = (Cohort("co", order=OrderPolicy.FAIR_SHARE),)
    jobs = tuple(runs(f"b{i}", name, of="b") for i, name in enumerate(FULL))
    given = world(wants("x", 4, of="a"), tenants=tenants, cohorts=fair, running_jobs=jobs)
    made = planned(given)
    assert len(made.evictions) == 4
    assert {str(e.rule) for e in made.evictions} == {"fair_share"}
    too_much = replace(given, waiting=(wants("x", 5, of="a"),))
    assert evicted(planned(too_much)) == []


def test_elastic_surplus_goes_before_whole_gangs():
    elastic = runs("e", *FULL[:4], priority=100, least=2)
    rigid = runs("r", *FULL[4:], priority=100)
    made = planned(world(wants("high", 2, priority=900), running_jobs=(elastic, rigid)))
    assert [(e.job, e.keeps_replicas) for e in made.evictions] == [("e", 2)]
    assert {row[0] for row in made.holds[0].nodes} == set(FULL[2:4])
    kept = next(hold for hold in made.holds if hold.job == "e")
    assert [row[0] for row in kept.nodes] == list(FULL[:2])


def stopping(job, preemptor, by=NOW + 30):
    return replace(job, stopping=True, stops_by=by, evicted_for=preemptor, eviction_signalled=True)


def test_freed_capacity_is_kept_for_the_preemptor():
    low = (runs("v1", *FULL[:2], priority=100), runs("v2", *FULL[2:4], priority=100))
    rest = runs("rest", *FULL[4:])
    given = world(wants("high", 4, priority=900), running_jobs=(*low, rest))
    made = planned(given)
    assert sorted(e.job for e in made.evictions) == ["v1", "v2"]
    # v1 is gone, v2 still saves; a small job comes and must not take what v1 freed.
    between = replace(
        given,
        running=(stopping(low[1], "high"), rest),
        holds=made.holds,
        waiting=(*given.waiting, wants("thief", 1)),
    )
    second = planned(between)
    assert started(second) == []
    assert evicted(second) == []
    assert code_of(second, "high") == "waiting_for_preempted"
    numbers = numbers_of(second, "high")
    assert (numbers["stopping_jobs"], numbers["free_at"]) == (1, NOW + 30)
    last = planned(replace(between, running=(rest,), holds=second.holds))
    assert started(last) == ["high"]
    assert last.holds == ()


def test_hold_ends_when_it_expires_or_its_owner_goes():
    hold = Hold("high", "h100", ((FULL[0], 8, 0, 0, 1),), NOW - 1)
    assert started(planned(world(wants("x", 8), holds=(hold,)))) == ["x"]
    orphan = replace(hold, expires_at=NOW + 99)
    made = planned(world(wants("x", 8), holds=(orphan,)))
    assert started(made) == ["x"]
    assert made.holds == ()


def test_eviction_not_yet_signalled_is_withdrawn_when_its_preemptor_goes():
    victim = replace(runs("v", FULL[0]), evicted_for="gone")
    made = planned(world(running_jobs=(victim,)))
    assert made.withdrawn == ("v",)
    signalled = replace(victim, eviction_signalled=True)
    assert planned(world(running_jobs=(signalled,))).withdrawn == ()


def test_checkpoint_grace_is_part_of_the_hold():
    low = runs("low", *FULL, priority=100, checkpoint=Checkpoint(600.0, 120.0))
    made = planned(world(wants("high", 2, priority=900), running_jobs=(low,)))
    assert numbers_of(made, "high")["free_at"] == NOW + 150


def after_evictions(given, made):
    """The snapshot once every victim is gone and waits again; nothing else has changed."""
    gone = {e.job for e in made.evictions} | {s.job for s in made.starts}
    running_now = tuple(r for r in given.running if r.id not in gone)
    started_jobs = {s.job for s in made.starts}
    waiting = tuple(w for w in given.waiting if w.id not in started_jobs)
    return replace(given, running=running_now, waiting=waiting, holds=made.holds)


@examples(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=EXAMPLES, deadline=None)
def test_evictions_end_in_the_preemptors_start(seed):
    given = random_snapshot(seed)
    given = replace(given, running=tuple(replace(r, placed_at=OLD) for r in given.running))
    made = plan(given)
    if not made.evictions:
        return
    preemptors = {e.preemptor for e in made.evictions}
    asks = {w.id: w for w in given.waiting}
    extra = tuple(as_running(start, asks[start.job].ask, NOW) for start in made.starts)
    then = after_evictions(given, made)
    again = plan(replace(then, running=(*then.running, *extra)))
    assert preemptors <= set(started(again))


@examples(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=EXAMPLES, deadline=None)
def test_no_plan_evicts_again_while_its_victims_leave(seed):
    given = random_snapshot(seed)
    given = replace(given, running=tuple(replace(r, placed_at=OLD) for r in given.running))
    made = plan(given)
    if not made.evictions:
        return
    whose = {e.job: e.preemptor for e in made.evictions}
    leaving = tuple(stopping(r, whose[r.id]) if r.id in whose else r for r in given.running)
    again = plan(replace(given, running=leaving, holds=made.holds), Options(preempt=True))
    preemptors = {e.preemptor for e in again.evictions}
    assert not preemptors & set(whose.values())
