"""Seeded runs of an hour with bad GPUs, silent exporters and maintenance windows: one in the suite,
CHAOS_HEALTH_RUNS of them by `make chaos`. `CHAOS_SEED=n` plays one again."""

import os

import pytest

from tests.chaos.plot import health_plot_of
from tests.chaos.run import run, summary

FIRST_SEED = int(os.environ.get("CHAOS_SEED") or 1)
RUNS = int(os.environ.get("CHAOS_HEALTH_RUNS") or 1)
RUNS_A_TEST = 6
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + RUNS, RUNS_A_TEST))
def test_bad_gpus_and_maintenance_windows_lose_no_job(first: int) -> None:
    seeds = range(first, min(first + RUNS_A_TEST, FIRST_SEED + RUNS))
    reports = [run(health_plot_of(seed)) for seed in seeds]
    print(f"seeds {seeds[0]}-{seeds[-1]}: {summary(reports)}")
    assert not [report for report in reports if report.violations], "\n".join(
        report.told() for report in reports if report.violations
    )
