"""The event log's writer (DESIGN section 3, rule 5). Every service that changes rows writes through here.

    with log.writing():
        ...change rows...
        log.record(log.NewEvent(kind="job.phase", at=now, tenant="research", job=job.id))

`writing()` opens a transaction, or joins the one that is open; what was recorded is inserted as the last
statement of the outermost block. There one lock makes numbers rise in commit order: whoever holds it is the
only one who draws numbers, and it is let go by the commit.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from controlplane.common.models import Event

# Any constant does, as long as nothing else in the database takes it: "muster" in ASCII, cut to 32 bits.
LOG_LOCK = 0x6D757374
LOG_CHANNEL = "muster_log"


@dataclass(frozen=True, slots=True)
class NewEvent:
    """What is to be written. Fields as in `Event`; `tenant` empty means visible to all who are signed in."""

    kind: str
    at: datetime
    tenant: str = ""
    job: str = ""
    cluster: str = ""
    node: str = ""
    actor: str = ""
    message: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


_pending: ContextVar[list[NewEvent] | None] = ContextVar("pending_events", default=None)


class NotWritingError(RuntimeError):
    """`record` was called outside `writing()`: the event would not share its change's transaction."""


@contextmanager
def writing() -> Iterator[None]:
    """Open or join the transaction whose last statement appends the recorded events."""
    outer = _pending.get()
    if outer is not None:
        kept = len(outer)
        try:
            with transaction.atomic():
                yield
        except BaseException:
            del outer[kept:]
            raise
        return
    buffer: list[NewEvent] = []
    token = _pending.set(buffer)
    try:
        with transaction.atomic():
            yield
            if buffer:
                _append(buffer)
    finally:
        _pending.reset(token)


def record(*events: NewEvent) -> None:
    """Add events to the open block. Raises NotWritingError where there is none."""
    buffer = _pending.get()
    if buffer is None:
        raise NotWritingError("log.record() needs an enclosing log.writing()")
    buffer.extend(events)


def _append(events: list[NewEvent]) -> None:
    """Insert under the log's lock and tell those who listen. SQLite has one writer and needs no lock."""
    if connection.vendor != "postgresql":
        rows = [Event(**{name: getattr(e, name) for name in _COLUMNS}) for e in events]
        Event.objects.bulk_create(rows, batch_size=500)
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOG_LOCK])
        cursor.execute(_INSERT, _arrays(events))
        cursor.execute("SELECT pg_notify(%s, '')", [LOG_CHANNEL])


# A burst writes tens of thousands of events: as arrays in one statement each costs a fraction of a model object, and
# the lock is held that much shorter. Column and its type.
_COLUMNS = {
    "at": "timestamptz",
    "kind": "text",
    "tenant": "text",
    "job": "text",
    "cluster": "text",
    "node": "text",
    "actor": "text",
    "message": "text",
    "numbers": "jsonb",
}
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
# Names are those above; every value is a parameter. Numbers are drawn in the order of the list.
_INSERT = (
    f'INSERT INTO "{Event._meta.db_table}" ({_NAMES}) SELECT {_NAMES} FROM unnest('
    + ", ".join(f"%s::{kind}[]" for kind in _COLUMNS.values())
    + f") WITH ORDINALITY AS new ({_NAMES}, place) ORDER BY place"
)


def _arrays(events: list[NewEvent]) -> list[list[Any]]:
    texts = [name for name, kind in _COLUMNS.items() if kind == "text"]
    return [
        [e.at for e in events],
        # Choices and lazy translations are texts of other types, which one array does not mix.
        *([str(getattr(e, name)) for e in events] for name in texts),
        [json.dumps(e.numbers) for e in events],
    ]


def latest_seq() -> int:
    """Number of the newest event, 0 when the log is empty."""
    return Event.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
