"""The log store: the last MiB of each replica's log per attempt, in files; outlives pods.

`LogStore` is the one interface: the cluster process writes (scheduler.reconcile.logs), doors read,
retention removes. Nothing here knows Kubernetes or the database.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path

KEPT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogKey:
    """Which replica's log: the parts of its place in the log store."""

    tenant: str
    job: str
    attempt: int
    role: str
    replica: int


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

    def lives(self, tenant: str) -> Iterator[tuple[str, int, datetime]]:
        """(job, attempt, last written) of every attempt of a tenant that logs are kept of."""
        for folder in self.root.glob(f"{escape(tenant)}/*/*"):
            if folder.name.isdecimal():
                written = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
                yield folder.parent.name, int(folder.name), written

    def remove_attempt(self, tenant: str, job: str, attempt: int) -> None:
        """Forget all logs of an attempt; absent is done."""
        folder = self.path(LogKey(tenant, job, attempt, "x", 0)).parent
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # other attempts' logs are still there
            folder.parent.rmdir()


def last_bytes(text: bytes, limit: int = KEPT_BYTES) -> bytes:
    """The last `limit` bytes, beginning at the start of a line where that loses little."""
    if len(text) <= limit:
        return text
    kept = text[-limit:]
    newline = kept.find(b"\n", 0, 4096)
    return kept[newline + 1 :] if newline >= 0 else kept
