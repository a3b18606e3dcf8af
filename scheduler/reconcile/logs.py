"""The log store: the last MiB of each replica's log per attempt, in files; outlives pods.

`LogStore` is the one interface: the cluster process writes, the web process reads, retention
removes. `keep` is how the cluster process fills it from Kubernetes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from scheduler.kube.connection import Connection
from scheduler.kube.errors import KubeError
from scheduler.kube.pods import LogRange, PodKey, follow_log
from scheduler.reconcile.wanted import LogKey

KEPT_BYTES = 1024 * 1024
# A log of long lines may be far larger than what is kept: reading stops there.
READ_LINES = 20_000
READ_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogStore:
    """Files under `root`: tenant/job/attempt/role-replica.log. Names are slugs and ids, checked
    where they entered; anything else is refused."""

    root: Path

    def path(self, key: LogKey) -> Path:
        """Where a log is kept, whether or not it is."""
        parts = (key.tenant, key.job, str(key.attempt), f"{key.role}-{key.replica}.log")
        if any(not part or part.startswith(".") or "/" in part for part in parts):
            raise ValueError(f"not a log's name: {parts}")
        return self.root.joinpath(*parts)

    def exists(self, key: LogKey) -> bool:
        """Whether a log is kept, be it empty."""
        return self.path(key).exists()

    def size(self, key: LogKey) -> int | None:
        """Bytes kept; None when none is."""
        try:
            return self.path(key).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, key: LogKey, offset: int = 0, limit_bytes: int = KEPT_BYTES) -> bytes | None:
        """Up to `limit_bytes` from byte `offset`; None when no log is kept."""
        try:
            with self.path(key).open("rb") as file:
                file.seek(max(0, offset))
                return file.read(limit_bytes)
        except FileNotFoundError:
            return None

    def write(self, key: LogKey, text: bytes) -> int:
        """Keep the last MiB of `text`, replacing what was kept; the bytes kept."""
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = last_bytes(text)
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_bytes(kept)
        fresh.replace(path)
        return len(kept)

    def remove_job(self, tenant: str, job: str) -> None:
        """Forget all logs of a job; absent is done."""
        example = self.path(LogKey(tenant, job, 0, "x", 0))
        shutil.rmtree(example.parent.parent, ignore_errors=True)


def last_bytes(text: bytes, limit: int = KEPT_BYTES) -> bytes:
    """The last `limit` bytes, beginning at the start of a line where that loses little."""
    if len(text) <= limit:
        return text
    kept = text[-limit:]
    newline = kept.find(b"\n", 0, 4096)
    return kept[newline + 1 :] if newline >= 0 else kept


async def read_last(connection: Connection, pod: PodKey, *, to_the_end: bool = False) -> bytes:
    """The last MiB of a pod's log as it is now, or, `to_the_end`, once its container has ended.

    The server can cut a log's head by lines only, so a bounded tail is read and cut here.
    """
    wanted = LogRange(tail_lines=READ_LINES)
    kept, seen = bytearray(), 0
    async for piece in _pieces(connection, pod, wanted, to_the_end=to_the_end):
        seen += len(piece)
        kept += piece
        if len(kept) > 2 * KEPT_BYTES:
            del kept[:-KEPT_BYTES]
        if seen > READ_BYTES:
            break
    return bytes(kept)


async def _pieces(
    connection: Connection, pod: PodKey, wanted: LogRange, *, to_the_end: bool
) -> AsyncIterator[bytes]:
    async for piece in follow_log(connection, pod.namespace, pod.name, wanted, follow=to_the_end):
        yield piece


async def keep(
    connection: Connection, store: LogStore, pod: PodKey, key: LogKey, *, last_words: str = ""
) -> int:
    """Store a pod's log as it is now, with `last_words` of ours behind it; the bytes kept.

    Raises `KubeError` when the log cannot be had and there is nothing else to say.
    """
    text: bytes
    try:
        text = await read_last(connection, pod)
    except KubeError:
        if not last_words:
            raise
        # What was kept before the node was lost is all there is.
        before = await asyncio.to_thread(store.read, key, 0, KEPT_BYTES)
        text = before or b""
    if last_words and last_words.encode() not in text:
        text = text.rstrip(b"\n") + (b"\n" if text else b"") + last_words.encode() + b"\n"
    return await asyncio.to_thread(store.write, key, text)


async def keep_to_the_end(
    connection: Connection, store: LogStore, pod: PodKey, key: LogKey, seconds: float
) -> int:
    """Follow the log of a pod that is ending until it has ended, for `seconds` at most."""
    async with asyncio.timeout(seconds):
        text = await read_last(connection, pod, to_the_end=True)
    return await asyncio.to_thread(store.write, key, text)
