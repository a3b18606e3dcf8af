"""A bell inside one process: `scheduler.tasks` rings it, the pulse of the same worker hears it.

Nothing depends on it being rung (rule 2): the pulse follows the log and beats every second anyway.
"""

from collections.abc import Callable

_listeners: list[Callable[[], None]] = []


def listen(heard: Callable[[], None]) -> None:
    """Call `heard`, from the ringing thread, at every ring."""
    _listeners.append(heard)


def leave(heard: Callable[[], None]) -> None:
    """Stop listening."""
    _listeners.remove(heard)


def ring() -> None:
    """Tell every listener."""
    for heard in list(_listeners):
        heard()
