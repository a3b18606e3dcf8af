"""docs/lifecycle.md says what queues/lifecycle.py does."""

import pytest

from queues.lifecycle import (
    INFRASTRUCTURE_BUDGET,
    INFRASTRUCTURE_ENDS,
    OWN_ENDS,
    TRANSITIONS,
    EndedBy,
    Outcome,
    Phase,
    RestartBudget,
    after_attempt,
)
from tests.architecture.pages import code_words, table

PAGE = "docs/lifecycle.md"
ENDS = table(PAGE, "How an attempt ends, and what follows")


def test_the_phases_and_what_follows_them_are_the_transition_table() -> None:
    shown = {code_words(row[0])[0]: set(code_words(row[2])) for row in table(PAGE, "Phases")}
    assert shown == {str(phase): {str(p) for p in after} for phase, after in TRANSITIONS.items()}


def test_every_outcome_is_explained() -> None:
    assert [code_words(row[0])[0] for row in table(PAGE, "Outcomes")] == list(Outcome.values)


def test_every_end_is_listed_once() -> None:
    assert [code_words(row[0])[0] for row in ENDS] == list(EndedBy.values)


@pytest.mark.parametrize(("end", "follows"), [(row[0], row[1]) for row in ENDS])
def test_what_follows_an_end_is_what_the_table_of_ends_says(end: str, follows: str) -> None:
    ended_by = EndedBy(code_words(end)[0])
    fresh = after_attempt(ended_by, RestartBudget(max_restarts=1))
    assert follows.startswith(str(fresh.phase))
    assert ("back-off" in follows) == (fresh.backoff_seconds > 0)
    used_up = RestartBudget(
        max_restarts=0, on_preemption="stop", infrastructure_faults=INFRASTRUCTURE_BUDGET
    )
    last = after_attempt(ended_by, used_up)
    assert ("finished" in follows) == (last.phase is Phase.FINISHED)
    if last.outcome is not None:
        assert code_words(follows)[-1] == str(last.outcome)


@pytest.mark.parametrize("row", ENDS, ids=lambda row: row[0])
def test_what_an_end_counts_against_is_shown(row: list[str]) -> None:
    ended_by = EndedBy(code_words(row[0])[0])
    own, infrastructure = ended_by in OWN_ENDS, ended_by in INFRASTRUCTURE_ENDS
    assert row[2] == ("`max_restarts`" if own else "infrastructure" if infrastructure else "")
