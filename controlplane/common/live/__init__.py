"""Live pages and waiting requests, fed from the event log (DESIGN section 3, rule 5; docs/live.md).

- `feed`: one thread per web process follows the log and keeps the newest events in memory.
- `topic`: what a page may subscribe to; `queues/live.py` and `scheduler/live.py` have theirs.
- `sockets`: the hub with the open sockets; renders changed rows once per visibility scope and pushes them.

    await live.hub.wait_for(after_seq, lambda heard: heard.job == job.id, timeout_seconds=30)
"""

from controlplane.common.live.feed import Heard
from controlplane.common.live.sockets import Hub, Socket, hub
from controlplane.common.live.topic import (
    EVERY,
    Fragment,
    Rendered,
    Topic,
    Viewer,
    register,
    topics,
)

__all__ = [
    "EVERY",
    "Fragment",
    "Heard",
    "Hub",
    "Rendered",
    "Socket",
    "Topic",
    "Viewer",
    "hub",
    "register",
    "topics",
]
