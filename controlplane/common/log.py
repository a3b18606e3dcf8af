"""The event log's writer (DESIGN section 3, rule 5). Every service that changes rows writes through here.

    with log.writing():
        ...change rows...
        log.record(log.NewEvent(kind="job.phase", at=now, tenant="research", job=job.id))

`writing()` opens a transaction, or joins the one that is open; what was recorded is inserted as the last
statement of the outermost block. There one lock makes numbers rise in commit order: whoever holds it is the
only one who draws numbers, and it is let go by the commit.
"""

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
    rows = [
        Event(
            at=e.at,
            kind=e.kind,
            tenant=e.tenant,
            job=e.job,
            cluster=e.cluster,
            node=e.node,
            actor=e.actor,
            message=e.message,
            numbers=e.numbers,
        )
        for e in events
    ]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOG_LOCK])
    Event.objects.bulk_create(rows, batch_size=500)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [LOG_CHANNEL])


def latest_seq() -> int:
    """Number of the newest event, 0 when the log is empty."""
    return Event.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
