"""Seeded runs with bad GPUs, silent exporters and maintenance windows: one of an hour in the suite, CHAOS_HEALTH_RUNS
of hours, with windows as long as in life, by `make chaos`. `CHAOS_SEED=n` plays one again."""

import os
from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.chaos.plot import AS_IN_LIFE, BUSY, SHORT, Fault, health_plot_of
from tests.chaos.run import run, summary

FIRST_SEED = int(os.environ.get("CHAOS_SEED") or 1)
RUNS = int(os.environ.get("CHAOS_HEALTH_RUNS") or 1)
LENGTHS = AS_IN_LIFE if "CHAOS_HEALTH_RUNS" in os.environ else SHORT
RUNS_A_TEST = 6
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + RUNS, RUNS_A_TEST))
def test_bad_gpus_and_maintenance_windows_lose_no_job(first: int) -> None:
    seeds = range(first, min(first + RUNS_A_TEST, FIRST_SEED + RUNS))
    reports = [run(health_plot_of(seed, LENGTHS)) for seed in seeds]
    print(f"seeds {seeds[0]}-{seeds[-1]}: {summary(reports)}")
    assert not [report for report in reports if report.violations], "\n".join(
        report.told() for report in reports if report.violations
    )


def test_what_a_planner_that_is_blind_to_health_decides_is_refused_by_the_rows() -> None:
    """Of two jobs the first loses a GPU; the second needs what is left of every node, so that one's as well."""
    plain = health_plot_of(1)
    fault = Fault(30.0, "gpu_xid", 60.0, {"node": BUSY, "gpu": 2, "code": 79})
    fields = plain.jobs[0].fields | {"gpus_per_replica": 8, "preemptible": True}
    fields.pop("min_replicas", None)
    first = replace(plain.jobs[0], at=5.0, fields=fields | {"replicas": 1})
    # Two to a node, one where a GPU is gone, none where the first job has gone to.
    replicas = {"replicas": 2 * (plain.nodes - 2) + 1, "gpus_per_replica": 4}
    whole = fields | replicas | {"name": "job-1", "external_id": "chaos-1"}
    plot = replace(
        plain, jobs=(first, replace(first, at=60.0, fields=whole)), faults=(fault,), windows=()
    )
    with (
        patch("scheduler.snapshot.nodes.out_causes", lambda *_args, **_named: ()),
        patch("tests.chaos.run.LONGEST_OF_HOURS_SECONDS", 0.0),
        patch("tests.chaos.run.MOVES_ON_SECONDS", 0.0),
    ):
        found = run(plot).violations
    assert not [text for text in found if "was placed on" in text], found
    assert "not finished: job-1 pending - ('', not_yet_considered)" in found
