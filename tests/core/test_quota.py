"""The cohort tree: nominal, borrowing, lending, outside use, limits, over-admission."""

from dataclasses import replace

import pytest

from scheduler.core.inputs.quotas import Cohort, FlavorQuota, Queue, Tenant, UserLimit
from scheduler.core.quota.tree import build_tree
from tests.core.builders import (
    NOW,
    ask,
    code_of,
    cohort,
    fabric,
    gang,
    job,
    planned,
    role,
    running,
    snapshot,
    started,
    tenant,
)

NODES = fabric(1, 2, 4)


def of(name: str, job_id: str, replicas: int = 1, **changes):
    wanted = ask(role(replicas), tenant=name, queue=f"{name}/train", **changes)
    return job(job_id, wanted)


def world(*waiting, tenants, cohorts=(), **changes):
    queues = tuple(Queue(f"{t.name}/train", t.name) for t in tenants)
    given = snapshot(NODES, *waiting, tenants=tenants, queues=queues, cohorts=cohorts)
    return replace(given, **changes)


def test_nominal_quota_bounds_a_lone_tenant():
    made = planned(world(of("a", "j1"), of("a", "j2"), tenants=(tenant("a", 8),)))
    assert started(made) == ["j1"]
    reason = made.reason_of("j2")
    assert reason is not None
    assert reason.code == "waiting_for_quota"
    assert reason.numbers["available_gpus"] == 0


def test_more_than_potential_quota_is_for_ever():
    made = planned(world(of("a", "j1", 2), tenants=(tenant("a", 8),)))
    assert code_of(made, "j1") == "exceeds_quota_for_ever"
    assert [finish.job for finish in made.finishes] == ["j1"]


def test_cohort_members_borrow_from_each_other():
    tenants = (tenant("a", 8, "co"), tenant("b", 8, "co"))
    made = planned(world(of("a", "j1", 2), tenants=tenants, cohorts=(cohort(),)))
    assert started(made) == ["j1"]


@pytest.mark.parametrize(
    ("limits", "lent", "code"),
    [
        ({"borrowing_limit": 0}, {}, "exceeds_quota_for_ever"),
        ({"borrowing_limit": 8}, {}, None),
        ({}, {"lending_limit": 0}, "exceeds_quota_for_ever"),
        ({}, {"lending_limit": 8}, None),
    ],
)
def test_borrowing_and_lending_limits_are_kept(limits, lent, code):
    tenants = (tenant("a", 8, "co", **limits), tenant("b", 8, "co", **lent))
    made = planned(world(of("a", "j1", 2), tenants=tenants, cohorts=(cohort(),)))
    assert code_of(made, "j1") == code


def test_not_borrowing_goes_first_in_classic_order():
    tenants = (tenant("a", 8, "co"), tenant("b", 8, "co"))
    jobs = (
        replace(of("a", "a1"), submitted_at=NOW - 30),
        replace(of("a", "a2"), submitted_at=NOW - 20),
        replace(of("b", "b1"), submitted_at=NOW - 10),
    )
    made = planned(world(*jobs, tenants=tenants, cohorts=(cohort(),)))
    assert started(made) == ["a1", "b1"]
    assert code_of(made, "a2") == "waiting_for_quota"


def test_non_preemptible_jobs_stay_inside_nominal_less_headroom():
    tenants = (tenant("a", 16, "co", headroom=8), tenant("b", 16, "co"))
    firm = of("a", "firm", 2, preemptible=False)
    made = planned(world(firm, of("a", "soft", 2), tenants=tenants, cohorts=(cohort(),)))
    assert started(made) == ["soft"]
    assert code_of(made, "firm") == "exceeds_quota_for_ever"


def test_outside_pods_count_as_usage():
    made = planned(world(of("a", "j1"), tenants=(tenant("a", 8, outside=1),)))
    assert code_of(made, "j1") == "waiting_for_quota"


def test_over_admission_after_a_cut_is_reported():
    busy = running("r", ("n-0-0-00", 8), ("n-0-0-01", 8), wanted=of("a", "x", 2).ask)
    made = planned(world(tenants=(tenant("a", 8),), running=(busy,)))
    assert [(o.name, o.over_gpus) for o in made.over_admissions] == [("a", 8)]


def test_user_limit_names_its_numbers():
    limit = (UserLimit("a", "u", "h100", 8),)
    made = planned(
        world(of("a", "j1"), of("a", "j2"), tenants=(tenant("a", 64),), user_limits=limit)
    )
    reason = made.reason_of("j2")
    assert reason is not None
    assert reason.code == "user_limit"
    assert (reason.numbers["used_gpus"], reason.numbers["limit_gpus"]) == (8, 8)


def test_another_user_is_not_held_by_a_colleagues_limit():
    limit = (UserLimit("a", "u", "h100", 8),)
    jobs = (of("a", "j1"), of("a", "j2"), of("a", "j3", user="v"))
    made = planned(world(*jobs, tenants=(tenant("a", 64),), user_limits=limit))
    assert started(made) == ["j1", "j3"]


def test_queue_limit_is_kept():
    given = world(of("a", "j1"), of("a", "j2"), tenants=(tenant("a", 64),))
    queues = (Queue("a/train", "a", limits=(("h100", 8),)),)
    made = planned(replace(given, queues=queues))
    assert started(made) == ["j1"]
    assert code_of(made, "j2") == "user_limit"


def test_elastic_job_shrinks_to_what_quota_leaves():
    wanted = ask(role(4, min_replicas=1), tenant="a", queue="a/train")
    made = planned(world(job("j", wanted), tenants=(tenant("a", 16),)))
    assert made.starts[0].replicas == 2


def test_circle_of_cohorts_leaves_its_tenants_without_quota():
    circle = (Cohort("x", parent="y"), Cohort("y", parent="x"))
    made = planned(world(of("a", "j"), tenants=(tenant("a", 64, "x"),), cohorts=circle))
    assert code_of(made, "j") == "exceeds_quota_for_ever"


def test_nested_cohorts_pool_what_is_not_kept_local():
    rows = [
        ("root", None, FlavorQuota("f", 10)),
        ("mid", "root", FlavorQuota("f", 0, lending_limit=3, borrowing_limit=5)),
    ]
    leaves = [
        ("a", "mid", FlavorQuota("f", 8, lending_limit=6)),
        ("b", "root", FlavorQuota("f", 4)),
    ]
    tree = build_tree(rows, leaves)
    a, b = tree["a"], tree["b"]
    assert a.parent is not None
    # a keeps 2; mid sees 6, keeps 3 and lends 3; root has 10 + 3 + 4.
    assert (a.local, a.parent.subtree, a.parent.local, b.root.subtree) == (2, 6, 3, 17)
    assert (a.potential(), b.potential()) == (13, 17)
    a.add(9)
    # 2 stay local, 7 reach mid, 3 of them stay there, 4 reach the root.
    assert (a.usage, a.parent.usage, b.root.usage) == (9, 7, 4)
    assert (a.available(), b.available()) == (4, 13)
    a.remove(9)
    assert (a.usage, a.parent.usage, b.root.usage) == (0, 0, 0)


def test_tenant_without_cohort_row_stands_alone():
    lone = Tenant("a", "nowhere", (FlavorQuota("h100", 8),))
    assert started(planned(world(of("a", "j"), tenants=(lone,)))) == ["j"]


def test_priority_then_age_then_id():
    jobs = (
        gang("late", 8, age=1),
        gang("early", 8, age=9),
        job("urgent", ask(role(8), priority=900)),
    )
    made = planned(snapshot(NODES, *jobs))
    assert made.order == ("urgent", "early", "late")
    assert started(made) == ["urgent"]
