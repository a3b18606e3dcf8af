"""How soon a gang is bound, and how little an idle demo takes."""

import statistics
import time

import pytest

from benchmarks.idle import cores_used
from benchmarks.submit_to_bound import measure
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.processes, pytest.mark.slow]

BOUND_MEDIAN_SECONDS = 1.5
IDLE_CORES = 0.25


def test_sixty_four_gpus_are_bound_within_a_second_and_a_half_in_the_median(demo: Stack) -> None:
    took = measure(demo, 9)
    assert statistics.median(took) <= BOUND_MEDIAN_SECONDS, took


def test_an_idle_demo_uses_less_than_a_quarter_of_a_core(demo: Stack) -> None:
    time.sleep(5)  # what the tests before left running has to settle
    used = cores_used(demo.pids(), 20)
    assert sum(used.values()) < IDLE_CORES, used
