"""Seeded fault runs in virtual time: a few in the suite, CHAOS_RUNS of them by `make chaos`.

A failed run prints its seed and its plot: `CHAOS_SEED=n CHAOS_RUNS=1` plays it again.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.chaos.listed import LISTED, tour
from tests.chaos.plot import Fault, plot_of
from tests.chaos.run import run, summary

FIRST_SEED = int(os.environ.get("CHAOS_SEED") or 1)
RUNS = int(os.environ.get("CHAOS_RUNS") or 6)
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


def tours() -> Iterator[tuple[str, ...]]:
    """All of them in a few runs; each in one of its own as well, where there is time for it."""
    names = list(LISTED)
    yield from (tuple(names[first::3]) for first in range(3))
    if "CHAOS_RUNS" in os.environ:
        yield from ((name,) for name in names)


@pytest.mark.parametrize("names", tours(), ids=lambda names: ", ".join(names))
def test_each_fault_of_the_list_strikes_and_all_is_well_within_a_minute(
    names: tuple[str, ...],
) -> None:
    report = run(tour(names))
    print(summary([report]))
    assert not report.violations, report.told()
    marks = {mark for name in names for mark in LISTED[name].marks}
    assert {mark for mark in marks if not report.struck[mark]} == set()
    if "worker.pause" in marks:
        assert report.old_plans_refused == 1


def test_plan_of_a_leader_that_stood_still_is_refused_when_it_goes_on() -> None:
    plain = plot_of(3)
    stop = Fault(9.99, "crash", 30.0, {"step": "worker.pause", "nth": 1})
    fields = plain.jobs[0].fields | {"replicas": 2, "gpus_per_replica": 8, "preemptible": True}
    fields.pop("min_replicas", None)
    job = replace(plain.jobs[0], at=10.0, fields=fields, outcome="succeeded", attempts_failed=0)
    job.fields["annotations"] = {"sim.muster.dev/run-seconds": "8"}
    report = run(replace(plain, jobs=(job,), acts=(), faults=(stop,)))
    assert not report.violations, report.told()
    assert (report.old_plans_refused, report.attempts) == (1, 1)


def test_the_same_seed_has_the_same_history() -> None:
    first, again = (run(plot_of(3)) for _ in range(2))
    assert first.attempts > 0
    assert first.digest == again.digest
