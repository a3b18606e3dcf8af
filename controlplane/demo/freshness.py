"""Whether the demo's folder was prepared by this very code. Called by `stage`, which then starts all at once."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

# What tables, static files and first rows come from.
SOURCES = ("*/migrations/*.py", "*/*/migrations/*.py", "static/**/*", "controlplane/demo/seed.py")


def fingerprint(root: Path) -> str:
    """A digest of names, sizes and times of the sources."""
    digest = hashlib.sha256()
    for path in sorted(_files(root)):
        stat = path.stat()
        line = f"{path.relative_to(root)}\0{stat.st_size}\0{stat.st_mtime_ns}\n"
        digest.update(line.encode())
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for pattern in (*SOURCES, "uv.lock"):
        yield from (path for path in root.glob(pattern) if path.is_file())


def is_prepared(stamp: Path, root: Path) -> bool:
    """Whether `mark_prepared` was called for these sources."""
    return stamp.exists() and stamp.read_text() == fingerprint(root)


def mark_prepared(stamp: Path, root: Path) -> None:
    """Remember that everything is in place for these sources."""
    stamp.write_text(fingerprint(root))
