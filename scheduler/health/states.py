"""The life of a GPU's health, and of a node's: which event leads from which state to which. Pure; every pair tested.

healthy → suspect → unhealthy → draining → repairing → burn_in → healthy. A node that has just appeared is `joining`.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a GPU, or a node, stands; in rising order of how little it may be used."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    UNHEALTHY = "unhealthy"
    DRAINING = "draining"
    REPAIRING = "repairing"
    BURN_IN = "burn_in"
    JOINING = "joining"


class Happening(StrEnum):
    """What may happen to it."""

    SUSPECTED = "suspected"
    CONDEMNED = "condemned"  # an unhealthy finding
    TAKEN_OUT = "taken_out"  # cordoned and tainted within the budget
    EMPTIED = "emptied"  # nothing of ours runs there any more
    REPAIRED = "repaired"  # the signs are gone, or a person says so: to be burnt in
    PASSED = "passed"  # burn-in exited 0
    FAILED = "failed"  # burn-in did not
    CLEARED = "cleared"  # a day without a new sign, or a person says so
    RETURNED = "returned"  # back without a burn-in, where a cluster has none
    APPEARED = "appeared"  # a node that was not there at the first sync


_H, _S, _U = State.HEALTHY, State.SUSPECT, State.UNHEALTHY
_D, _R, _B, _J = State.DRAINING, State.REPAIRING, State.BURN_IN, State.JOINING

# What is not in the table changes nothing.
TRANSITIONS: Mapping[tuple[State, Happening], State] = {
    (_H, Happening.SUSPECTED): _S,
    (_H, Happening.CONDEMNED): _U,
    (_H, Happening.APPEARED): _J,
    (_S, Happening.CONDEMNED): _U,
    (_S, Happening.CLEARED): _H,
    (_S, Happening.PASSED): _H,
    (_S, Happening.FAILED): _U,
    (_U, Happening.TAKEN_OUT): _D,
    (_U, Happening.CLEARED): _H,
    (_U, Happening.PASSED): _H,
    (_U, Happening.RETURNED): _H,
    (_D, Happening.EMPTIED): _R,
    (_R, Happening.REPAIRED): _B,
    (_R, Happening.RETURNED): _H,
    (_B, Happening.PASSED): _H,
    (_B, Happening.FAILED): _R,
    (_B, Happening.CONDEMNED): _R,
    (_B, Happening.RETURNED): _H,
    (_J, Happening.PASSED): _H,
    (_J, Happening.RETURNED): _H,
    (_J, Happening.CONDEMNED): _U,
}
GRAVITY = {state: place for place, state in enumerate(State)}
# No new pod of a job lands there.
OUT = frozenset({_U, _D, _R, _B, _J})


def after(state: State, happening: Happening) -> State:
    """The state that follows; the same where nothing does."""
    return TRANSITIONS.get((state, happening), state)


def worst(states: Iterable[State]) -> State:
    """Of several, the one that says most; healthy without any."""
    return max(states, key=GRAVITY.__getitem__, default=State.HEALTHY)


NEXT_STEP: Mapping[State, str] = {
    _H: "",
    _S: "watched for a day; a passed burn-in clears it sooner",
    _U: "to be taken out",
    _D: "running jobs leave",
    _R: "reset, restart or repair; then restart the device plugin",
    _B: "burn-in on all GPUs of the node",
    _J: "waits for its checklist",
}
