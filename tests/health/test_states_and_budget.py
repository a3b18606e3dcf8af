"""The state machine pair by pair, and the budget's arithmetic."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from scheduler.health.budget import Budget, Place, Refusal, Taken, may_take
from scheduler.health.states import GRAVITY, NEXT_STEP, OUT, Happening, State, after, worst

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
# state: what each happening makes of it; what is not named leaves it as it is.
EXPECTED: dict[str, dict[str, str]] = {
    "healthy": {"suspected": "suspect", "condemned": "unhealthy", "appeared": "joining"},
    "suspect": {"condemned": "unhealthy", "cleared": "healthy", "passed": "healthy", "failed": "unhealthy"},
    "unhealthy": {"taken_out": "draining", "cleared": "healthy", "passed": "healthy", "returned": "healthy"},
    "draining": {"emptied": "repairing"},
    "repairing": {"repaired": "burn_in", "returned": "healthy"},
    "burn_in": {"passed": "healthy", "failed": "repairing", "condemned": "repairing", "returned": "healthy"},
    "joining": {"passed": "healthy", "returned": "healthy", "condemned": "unhealthy"},
}  # fmt: skip


@pytest.mark.parametrize(("state", "happening"), list(product(State, Happening)))
def test_every_pair_of_state_and_happening(state: State, happening: Happening) -> None:
    assert after(state, happening) == EXPECTED[state].get(happening, state)


def test_every_state_has_a_next_step_and_out_states_are_the_grave_ones() -> None:
    assert set(NEXT_STEP) == set(State)
    assert all(GRAVITY[state] > GRAVITY[State.SUSPECT] for state in OUT)
    assert worst([State.HEALTHY, State.DRAINING, State.SUSPECT]) is State.DRAINING
    assert worst([]) is State.HEALTHY


def places(nodes: int, leaf: int = 16, out: tuple[int, ...] = ()) -> list[Place]:
    return [
        Place(f"n{i}", f"leaf-{i // leaf}", "h100", takes_jobs=i not in out) for i in range(nodes)
    ]


def taken(*indexes: int, minutes_ago: float = 1) -> list[Taken]:
    return [Taken(f"n{i}", NOW - timedelta(minutes=minutes_ago)) for i in indexes]


@pytest.mark.parametrize(
    ("nodes", "percent", "least", "allowed"),
    [(1, 5, 2, 2), (40, 5, 2, 2), (41, 5, 2, 3), (64, 5, 2, 4), (72, 5, 2, 4), (1000, 5, 2, 50),
     (10, 5, 0, 1), (0, 5, 2, 2)],
)  # fmt: skip
def test_allowed_is_the_larger_and_rounded_up(
    nodes: int, percent: float, least: int, allowed: int
) -> None:
    assert Budget(percent, least).allowed(nodes) == allowed


def test_may_take_stops_at_the_clusters_limit() -> None:
    all_places = places(72)
    answer = may_take("n60", all_places, taken(0, 17, 33), Budget(), NOW)
    assert (answer.granted, answer.taken, answer.allowed) == (True, 3, 4)
    answer = may_take("n60", all_places, taken(0, 17, 33, 50), Budget(), NOW)
    assert answer.refusal is Refusal.CLUSTER


def test_may_take_stops_at_a_leafs_limit() -> None:
    all_places = places(72)
    assert may_take("n2", all_places, taken(0), Budget(), NOW).granted
    answer = may_take("n2", all_places, taken(0, 1), Budget(), NOW)
    assert (answer.refusal, answer.taken, answer.allowed) == (Refusal.LEAF, 2, 2)
    assert may_take("n20", all_places, taken(0, 1), Budget(), NOW).granted


def test_may_take_forgets_what_is_older_than_the_window_and_counts_a_node_once() -> None:
    all_places = places(72)
    assert may_take("n2", all_places, taken(0, 1, minutes_ago=31), Budget(), NOW).granted
    assert may_take("n1", all_places, taken(0, 1), Budget(), NOW).granted  # is out already
    assert may_take("n2", all_places, taken(0, 0, 0), Budget(), NOW).granted


def test_may_take_never_takes_the_last_healthy_domain_of_a_flavor() -> None:
    budget = Budget(percent=100, nodes=50)
    halves = tuple(range(9)) + tuple(range(16, 24))  # 9 of 16, 8 of 16 are out
    all_places = places(32, out=halves)
    assert may_take("n24", all_places, [], budget, NOW).refusal is Refusal.LAST_DOMAIN
    # One that is in no healthy domain anyway takes nothing away.
    assert may_take("n9", all_places, [], budget, NOW).granted
    other = [Place("a", "leaf-9", "a100")]
    assert may_take("a", [*all_places, *other], [], budget, NOW).refusal is Refusal.LAST_DOMAIN


def test_may_take_refuses_a_node_that_nobody_knows() -> None:
    assert not may_take("nowhere", places(4), [], Budget(), NOW).granted
