"""Live pages and waiting requests, fed from the event log (DESIGN section 3, rule 5; docs/live.md).

- `feed`: one thread per web process follows the log and keeps the newest events in memory.
- `topics`: what a page may subscribe to; `queues/live.py` and `scheduler/live.py` register theirs at start.
- `hub`: the open sockets; renders changed rows once per visibility scope and pushes them.

    await live.hub.wait_for(after_seq, lambda heard: heard.job == job.id, timeout_seconds=30)
"""

from controlplane.common.live.feed import Heard
from controlplane.common.live.hub import Hub, Socket, hub
from controlplane.common.live.topics import Fragment, Rendered, Topic, Viewer, register, topics

__all__ = [
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
