"""The end of a replica's log, wherever it is: in Kubernetes while the pod lives, in the store after.

Called by the log view of the pages. The web process speaks to Kubernetes for this alone; it waits
a second or two at most, and says so where it gets no answer.
"""

import asyncio
from dataclasses import dataclass

from queues.models import Job, Placement
from scheduler.kube.connection import Connection, Limits
from scheduler.kube.credentials import CredentialsError
from scheduler.kube.errors import KubeError
from scheduler.kube.pods import LogRange, read_log
from scheduler.services.logs import LogSource, log_store, source_of, web_credentials

LINES = 500
BYTES = 256 * 1024
LIMITS = Limits(tries=1, call_seconds=2.0, connect_seconds=1.0)


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines. final: the log grows no more. trouble: why there is none, in a word."""

    text: str
    final: bool
    is_cut: bool = False
    trouble: str = ""


def log_tail(job: Job, placement: Placement, attempt_number: int) -> LogTail:
    """What the replica wrote last. Needs `job.tenant`, `placement.role`."""
    source = source_of(job, attempt_number, placement)
    stored = _stored(source)
    if stored is not None:
        return stored
    if source.ended and not source.started:
        return LogTail("", final=True, trouble="never_started")
    if placement.gone_at is not None:
        return LogTail("", final=True, trouble="gone")
    if not source.started:
        return LogTail("", final=False, trouble="not_started")
    return _live(source)


def _stored(source: LogSource) -> LogTail | None:
    store = log_store()
    size = store.size(source.key)
    if size is None:
        return None
    text = store.read(source.key, max(0, size - BYTES)) or b""
    return LogTail(_last_lines(text), final=True, is_cut=size > BYTES)


def _live(source: LogSource) -> LogTail:
    try:
        text = asyncio.run(_read(source))
    except (KubeError, CredentialsError, TimeoutError):
        return LogTail("", final=False, trouble="unreachable")
    return LogTail(_last_lines(text), final=False)


async def _read(source: LogSource) -> bytes:
    async with Connection(web_credentials(), limits=LIMITS) as connection:
        wanted = LogRange(tail_lines=LINES, limit_bytes=BYTES)
        return await read_log(connection, source.namespace, source.pod, wanted)


def _last_lines(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").replace("\x00", "").splitlines()
    return "\n".join(lines[-LINES:])
