"""Seeded fault runs in virtual time: a few in the suite, CHAOS_RUNS of them by `make chaos`.

A failed run prints its seed and its plot: `CHAOS_SEED=n CHAOS_RUNS=1` plays it again.
"""

import os

import pytest

from tests.chaos.plot import plot_of
from tests.chaos.run import Report, run

FIRST_SEED = int(os.environ.get("CHAOS_SEED") or 1)
RUNS = int(os.environ.get("CHAOS_RUNS") or 12)
RUNS_A_TEST = 12
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + RUNS, RUNS_A_TEST))
def test_whatever_fails_every_job_ends_as_it_should(first: int) -> None:
    seeds = range(first, min(first + RUNS_A_TEST, FIRST_SEED + RUNS))
    reports = [run(plot_of(seed)) for seed in seeds]
    print(f"seeds {seeds[0]}-{seeds[-1]}: {summary(reports)}")
    assert not [report for report in reports if report.violations], "\n".join(
        report.told() for report in reports if report.violations
    )


def summary(reports: list[Report]) -> str:
    """What the runs went through."""
    return (
        f"{sum(r.virtual_seconds for r in reports):.0f} s of virtual time, "
        f"{sum(r.attempts for r in reports)} attempts, {sum(r.crashes for r in reports)} crashes, "
        f"{sum(r.cuts for r in reports)} cut connections, "
        f"{sum(r.old_plans_refused for r in reports)} plans of deposed leaders refused"
    )


def test_the_same_seed_has_the_same_history_and_another_one_differs() -> None:
    first, again, other = (run(plot_of(seed)) for seed in (3, 3, 4))
    assert first.digest == again.digest
    assert first.digest != other.digest
