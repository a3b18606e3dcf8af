"""Whose turn it is: fair share between tenants, fairness between users."""

from dataclasses import replace

from scheduler.core.inputs.quotas import Cohort, DecayedUsage, OrderPolicy, Queue
from scheduler.core.inputs.snapshot import Options
from tests.core.builders import (
    NOW,
    ask,
    fabric,
    job,
    planned,
    role,
    running,
    snapshot,
    started,
    tenant,
)

NODES = fabric(1, 2, 4)
FAIR = (Cohort("co", order=OrderPolicy.FAIR_SHARE),)


def of(name, job_id, age=0.0, **changes):
    return job(job_id, ask(role(1), tenant=name, queue=f"{name}/train", **changes), age)


def world(*waiting, tenants, **changes):
    queues = tuple(Queue(f"{t.name}/train", t.name) for t in tenants)
    given = snapshot(NODES, *waiting, tenants=tenants, queues=queues, cohorts=FAIR)
    return replace(given, **changes)


def test_fair_share_takes_the_lower_share_with_the_candidate_counted():
    tenants = (tenant("a", 0, "co"), tenant("b", 0, "co"), tenant("pool", 32, "co"))
    jobs = [of("a", f"a{i}", age=100 - i) for i in range(4)]
    jobs += [of("b", f"b{i}", age=10 - i) for i in range(4)]
    made = planned(world(*jobs, tenants=tenants))
    assert started(made) == ["a0", "b0", "a1", "b1"]


def test_weight_divides_the_share():
    tenants = (
        tenant("a", 0, "co", weight=3.0),
        tenant("b", 0, "co", weight=1.0),
        tenant("pool", 32, "co"),
    )
    jobs = [of("a", f"a{i}") for i in range(4)] + [of("b", f"b{i}") for i in range(4)]
    made = planned(world(*jobs, tenants=tenants))
    assert sorted(started(made)) == ["a0", "a1", "a2", "b0"]


def test_weight_zero_borrows_last():
    tenants = (
        tenant("a", 0, "co", weight=0.0),
        tenant("b", 0, "co", weight=0.1),
        tenant("pool", 16, "co"),
    )
    jobs = [of("a", "a0", age=99), of("b", "b0"), of("b", "b1")]
    assert started(planned(world(*jobs, tenants=tenants))) == ["b0", "b1"]


def test_past_borrowing_counts_until_it_decays():
    tenants = (tenant("a", 0, "co"), tenant("b", 0, "co"), tenant("pool", 8, "co"))
    jobs = (of("a", "a0", age=99), of("b", "b0"))
    given = world(*jobs, tenants=tenants)
    assert started(planned(given)) == ["a0"]
    past = (DecayedUsage("a", None, 8 * 604_800.0),)
    assert started(planned(replace(given, usage=past))) == ["b0"]


def test_job_that_lost_the_pool_to_others_waits_for_fair_share():
    tenants = (tenant("a", 0, "co"), tenant("b", 0, "co"), tenant("pool", 8, "co"))
    busy = running("r", ("n-0-0-00", 8), wanted=of("b", "x").ask)
    made = planned(world(of("a", "a0"), tenants=tenants, running=(busy,)), Options(preempt=False))
    reason = made.reason_of("a0")
    assert reason is not None
    assert reason.code == "waiting_for_fair_share"
    assert (reason.numbers["lowest_tenant"], reason.numbers["lowest_share"]) == ("b", 1_000.0)


def test_nested_cohorts_meet_at_their_own_level():
    cohorts = (
        Cohort("root", order=OrderPolicy.FAIR_SHARE),
        Cohort("left", "root", order=OrderPolicy.FAIR_SHARE),
        Cohort("right", "root", order=OrderPolicy.FAIR_SHARE),
    )
    tenants = (
        tenant("l1", 0, "left"),
        tenant("l2", 0, "left"),
        tenant("r1", 0, "right"),
        tenant("pool", 32, "root"),
    )
    jobs = [of(t, f"{t}-{i}", age=50 - i) for t in ("l1", "l2", "r1") for i in range(4)]
    made = planned(replace(world(*jobs, tenants=tenants), cohorts=cohorts))
    assert sorted(started(made)) == ["l1-0", "l2-0", "r1-0", "r1-1"]


def fair_queue(*waiting, **changes):
    return snapshot(NODES, *waiting, queues=(Queue("t/train", "t", user_fairness=True),), **changes)


def by(user, name, age=0.0):
    return job(name, ask(role(1), user=user), age)


def test_user_with_many_jobs_does_not_hold_back_a_colleague():
    many = [by("busy", f"m{i:03d}", age=500 - i) for i in range(500)]
    made = planned(fair_queue(*many, by("rare", "first")))
    assert started(made)[:2] == ["m000", "first"]
    assert len(started(made)) == 8


def busy(*users):
    """A running job of each user, a GPU each on the last node."""
    return tuple(
        running(f"r{i}", ("n-0-1-03", 1), wanted=ask(role(1, 1), user=user))
        for i, user in enumerate(users)
    )


def test_of_users_who_run_something_the_one_with_less_decayed_usage_goes_first():
    usage = (DecayedUsage("t", "u1", 9_000.0), DecayedUsage("t", "u2", 10.0))
    jobs = (by("u1", "a", 9), by("u2", "b"))
    made = planned(fair_queue(*jobs, usage=usage, running=busy("u1", "u2")))
    assert started(made) == ["b", "a"]


def test_first_job_of_whoever_runs_nothing_goes_before_the_jobs_of_a_modest_user():
    usage = (DecayedUsage("t", "heavy", 9e9), DecayedUsage("t", "modest", 10.0))
    jobs = (
        by("modest", "m1", 9),
        by("modest", "m2", 9),
        by("heavy", "h1", 5),
        by("heavy", "h2", 5),
    )
    made = planned(fair_queue(*jobs, usage=usage, running=busy("modest")))
    # One job only: the second goes by usage again.
    assert made.order == ("h1", "m1", "m2", "h2")
    assert started(made) == ["h1", "m1", "m2", "h2"]


def test_among_users_who_run_nothing_the_oldest_first_job_goes_first():
    usage = (DecayedUsage("t", "u1", 9e9), DecayedUsage("t", "u2", 3_600.0))
    jobs = (by("u1", "older", 9), by("u2", "b1", 8), by("u2", "b2", 8))
    assert started(planned(fair_queue(*jobs, usage=usage))) == ["older", "b1", "b2"]


def test_newcomer_goes_before_others_who_run_nothing():
    usage = (DecayedUsage("t", "u1", 9e9), DecayedUsage("t", "new", 3_599.0))
    jobs = (by("u1", "older", 9), by("new", "n1", 8), by("new", "n2", 8))
    assert started(planned(fair_queue(*jobs, usage=usage))) == ["n1", "older", "n2"]


def test_job_for_later_leaves_its_users_first_turn_to_the_next():
    later = replace(by("rare", "later", 9), begin_at=NOW + 60.0)
    usage = (DecayedUsage("t", "rare", 9e9), DecayedUsage("t", "modest", 10.0))
    jobs = (later, by("rare", "now", 1), by("modest", "m1", 5))
    made = planned(fair_queue(*jobs, usage=usage, running=busy("modest")))
    assert started(made) == ["now", "m1"]


def test_job_that_found_no_room_has_had_its_users_first_turn():
    """All nodes are asked for and one is in use: what else the user sends goes by usage."""
    wide = job("wide", ask(role(8), user="rare"), 9)
    usage = (DecayedUsage("t", "rare", 9e9), DecayedUsage("t", "modest", 10.0))
    jobs = (wide, by("rare", "narrow", 8), by("modest", "m1", 5))
    made = planned(fair_queue(*jobs, usage=usage, running=busy("modest")))
    assert made.order == ("wide", "m1", "narrow")


def test_priority_comes_before_usage():
    usage = (DecayedUsage("t", "u1", 9_000.0),)
    urgent = job("a", ask(role(1), user="u1", priority=900), age=0)
    made = planned(fair_queue(urgent, by("u2", "b", 99), usage=usage))
    assert made.order == ("a", "b")


def test_queues_of_one_tenant_meet_by_priority_and_age():
    one = job("one", ask(role(1), queue="t/one"), age=5)
    two = job("two", ask(role(1), queue="t/two"), age=9)
    high = job("high", ask(role(1), queue="t/one", priority=900), age=1)
    queues = (Queue("t/one", "t"), Queue("t/two", "t"))
    made = planned(replace(snapshot(NODES, one, two, high), queues=queues, now=NOW))
    assert made.order == ("high", "two", "one")


def test_job_that_has_waited_long_goes_before_a_modest_users_new_one():
    usage = (DecayedUsage("t", "busy", 9e9),)
    half_a_day = 43_200.0
    jobs = (by("rare", "new"), by("busy", "old", half_a_day), by("busy", "older", half_a_day + 5))
    assert started(planned(fair_queue(*jobs, usage=usage))) == ["older", "old", "new"]
    younger = (by("rare", "new"), by("busy", "old", half_a_day - 1))
    assert started(planned(fair_queue(*younger, usage=usage))) == ["new", "old"]
