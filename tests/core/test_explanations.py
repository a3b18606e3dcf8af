"""Estimates with their calibration, and counterfactuals."""

from dataclasses import replace

import pytest

from scheduler.core.explain.calibration import KEPT, Calibration
from scheduler.core.inputs.cluster import Flavor
from scheduler.core.inputs.quotas import FlavorQuota, Tenant
from scheduler.core.inputs.snapshot import Options
from scheduler.core.whatif import simulate
from tests.core.builders import (
    H100,
    NOW,
    fabric,
    gang,
    node,
    planned,
    snapshot,
    tenant,
)
from tests.core.test_bookings import busy, sized, window

NODES = fabric(1, 2, 4)
EXACT = Options(start_allowance_seconds=0.0)
PROBE = replace(EXACT, probe_first=100)


def changes(made, name):
    return [(dict(c.change), c.starts_now) for c in made.counterfactuals[name]]


def test_fewer_replicas_and_wider_level_are_tried():
    held = busy("r", 900.0, "n-0-0-00", "n-0-1-00", "n-0-1-01")
    made = planned(snapshot(NODES, gang("g", 4, level="leaf"), running=(held,)), PROBE)
    assert changes(made, "g") == [
        ({"replicas": 3}, True),
        ({"topology.level": "spine"}, True),
        ({"topology.level": None}, True),
    ]


def test_shorter_limit_is_tried_where_time_is_in_the_way():
    given = snapshot(
        NODES, sized("a", 1, 2_000), windows=(window(1_000, 1_500, *(n.name for n in NODES)),)
    )
    made = planned(given, PROBE)
    assert changes(made, "a") == [
        ({"max_runtime_seconds": 1_000.0}, True),
        ({"checkpoint.interval_seconds": 1_800.0}, True),
    ]


def test_other_flavor_is_tried_and_later_starts_are_told_when_earlier_than_the_booking():
    other = replace(node("x"), flavor="a100")
    quotas = (FlavorQuota("h100", 999), FlavorQuota("a100", 999))
    held = busy("r", 9_000.0, *(n.name for n in NODES))
    slow = replace(busy("s", 500.0, "x"), flavor="a100")
    given = snapshot((*NODES, other), sized("a", 1, 60), running=(held, slow))
    given = replace(given, flavors=(H100, Flavor("a100")), tenants=(Tenant("t", None, quotas),))
    made = planned(given, PROBE)
    assert changes(made, "a") == [({"gpu_model": "a100"}, False)]
    assert made.counterfactuals["a"][0].estimated_start == NOW + 500


def test_counterfactuals_of_one_job_change_no_decision():
    held = busy("r", 900.0, "n-0-0-00", "n-0-1-00")
    jobs = (sized("head", 8, 500, 9), sized("b", 4, 2_000, 5), sized("c", 2, 100))
    given = snapshot(NODES, *jobs, running=(held,))
    plain, probed = planned(given, EXACT), planned(given, replace(EXACT, probe=frozenset({"b"})))
    assert (plain.starts, plain.bookings, plain.verdicts) == (
        probed.starts,
        probed.bookings,
        probed.verdicts,
    )
    assert set(probed.counterfactuals) == {"b"}


def test_a_promised_counterfactual_holds_when_it_is_done():
    held = busy("r", 900.0, "n-0-0-00", "n-0-1-00", "n-0-1-01")
    given = snapshot(NODES, gang("g", 4, level="leaf"), running=(held,))
    made = planned(given, PROBE)
    size = made.counterfactuals["g"][0].change["replicas"]
    assert isinstance(size, int)
    again = planned(replace(given, waiting=(gang("g", size, level="leaf"),)), EXACT)
    assert [s.job for s in again.starts] == ["g"]


def test_estimates_follow_the_order_and_the_limits():
    held = busy("r", 1_000.0, *(n.name for n in NODES))
    jobs = [sized(f"j{i}", 8, 100, 9 - i) for i in range(4)]
    given = snapshot(NODES, *jobs, running=(held,))
    made = planned(given, replace(EXACT, estimates=3))
    assert [(e.job, (e.starts_at or 0.0) - NOW) for e in made.estimates] == [
        ("j0", 1_000),
        ("j1", 1_100),
        ("j2", 1_200),
    ]
    assert len(made.bookings) == 1


def test_estimate_waits_for_quota_as_well():
    held = busy("r", 1_000.0, "n-0-0-00")
    given = snapshot(NODES, sized("a", 1, 100), running=(held,), tenants=(tenant(nominal=8),))
    made = planned(given, replace(EXACT, estimates=9))
    assert [(e.job, e.starts_at) for e in made.estimates] == [("a", NOW + 1_000)]


def test_simulation_tells_the_estimate():
    held = busy("r", 1_000.0, *(n.name for n in NODES))
    answer = simulate(snapshot(NODES, running=(held,)), sized("new", 1, 60), EXACT)
    assert answer.estimate is not None
    assert answer.estimate.starts_at == NOW + 1_000


def test_calibration_covers_what_it_learned():
    learned = Calibration((100.0, float(i % 100)) for i in range(2 * KEPT))
    told = learned.range_for(0.0, 1_000.0)
    assert told.p50 == pytest.approx(500, abs=20)
    assert told.p90 == pytest.approx(900, abs=20)


def test_calibration_without_history_is_the_bound_and_its_half():
    told = Calibration().range_for(10.0, 110.0)
    assert (told.p50, told.p90) == (60.0, 110.0)
