"""The end of a replica's log, wherever it is: in Kubernetes while the pod lives, in the store after.

Called by the log view of the pages. The web process speaks to Kubernetes for this alone; it waits
a second or two at most, and says so where it gets no answer.
"""

import asyncio
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from queues.models import Job, Placement
from scheduler.kube.connection import Connection, Limits
from scheduler.kube.credentials import Credentials, CredentialsError, load_credentials
from scheduler.kube.errors import KubeError
from scheduler.kube.pods import LogRange, read_log
from scheduler.logstore import LogKey, LogStore

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
    key = LogKey(job.tenant.slug, job.pk, attempt_number, placement.role.name, placement.replica)
    stored = _stored(key)
    if stored is not None:
        return stored
    over = placement.ended_at is not None or placement.gone_at is not None
    if over and placement.started_at is None:
        return LogTail("", final=True, trouble="never_started")
    if placement.gone_at is not None:
        return LogTail("", final=True, trouble="gone")
    if placement.started_at is None:
        return LogTail("", final=False, trouble="not_started")
    return _live(job.tenant.namespace, placement)


def _stored(key: LogKey) -> LogTail | None:
    store = LogStore(settings.LOG_STORE)
    size = store.size(key)
    if size is None:
        return None
    text = store.read(key, max(0, size - BYTES)) or b""
    return LogTail(_last_lines(text), final=True, is_cut=size > BYTES)


def _live(namespace: str, placement: Placement) -> LogTail:
    try:
        text = asyncio.run(_read(_credentials(), namespace, placement.pod_name))
    except (KubeError, CredentialsError, TimeoutError):
        return LogTail("", final=False, trouble="unreachable")
    return LogTail(_last_lines(text), final=False)


async def _read(credentials: Credentials, namespace: str, pod: str) -> bytes:
    async with Connection(credentials, limits=LIMITS) as connection:
        wanted = LogRange(tail_lines=LINES, limit_bytes=BYTES)
        return await read_log(connection, namespace, pod, wanted)


@lru_cache(maxsize=1)
def _credentials() -> Credentials:
    kubeconfig = os.environ.get("KUBECONFIG")
    return load_credentials(Path(kubeconfig) if kubeconfig else None)


def _last_lines(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").replace("\x00", "").splitlines()
    return "\n".join(lines[-LINES:])
