"""Estimates one at a time are those of a plan; they promise no start that quota or nodes forbid."""

from dataclasses import replace

from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from scheduler.core.inputs.snapshot import Options
from scheduler.core.memo import Memo
from scheduler.core.planner import estimating, plan
from tests.core.builders import NOW, ask, fabric, job, role, snapshot, tenant
from tests.core.strategies import EXAMPLES, random_snapshot
from tests.core.test_bookings import busy

NODES = fabric(1, 2, 4)
ALL = tuple(node.name for node in NODES)


@examples(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=EXAMPLES // 3, deadline=None)
def test_one_at_a_time_they_are_those_of_the_plan(seed):
    given = random_snapshot(seed)
    wanted = Options(estimates=6)
    assert tuple(estimating(given, wanted, Memo())) == plan(given, wanted).estimates


def starts(given, **changes):
    wanted = Options(estimates=1_000, start_allowance_seconds=0.0, **changes)
    return [estimate.starts_at for estimate in plan(given, wanted).estimates]


def sized(name, nodes, limit, age=0.0):
    return job(name, ask(role(nodes), max_runtime_seconds=limit, grace_seconds=0.0), age)


def test_jobs_in_a_row_are_told_to_start_one_after_another():
    held = busy("r", 1_000.0, *ALL)
    jobs = [sized(f"j{i}", 8, 600.0, 9 - i) for i in range(4)]
    first, *later = starts(snapshot(NODES, *jobs, running=(held,)))
    assert later == [first + 600.0, first + 1_200.0, first + 1_800.0]


def test_job_waits_for_quota_as_well_as_for_nodes():
    """Half the nodes are free, but the tenant's quota is in use for another 1,000 s."""
    held = busy("r", 1_000.0, *ALL[:4])
    given = snapshot(NODES, sized("j", 2, 600.0), running=(held,), tenants=(tenant(nominal=32),))
    rich = replace(given, tenants=(tenant(nominal=64),))
    assert starts(given)[0] >= NOW + 900.0
    assert starts(rich) == []


def test_job_behind_one_that_never_ends_has_no_start():
    held = replace(busy("r", 1_000.0, *ALL))
    forever = replace(held, ask=replace(held.ask, max_runtime_seconds=None))
    assert starts(snapshot(NODES, sized("j", 8, 600.0), running=(forever,))) == [None]
