"""Where the system programs that tests need are: PostgreSQL, Redis, Chromium. Called by conftest and keeper."""

import os
import shutil
from pathlib import Path


def postgresql_bin() -> Path | None:
    """Folder with `initdb` and `postgres`: the newest under Debian's path, else the one on PATH."""
    debian = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if debian:
        return max(debian, key=lambda folder: int(folder.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def redis_server() -> Path | None:
    """The Redis server's program."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


def chromium() -> Path | None:
    """The system's Chromium, which Playwright drives."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return Path(found)
    return None


def services_missing() -> list[str]:
    """Names of the Debian packages whose programs the database tests lack."""
    found = {"postgresql": postgresql_bin(), "redis-server": redis_server()}
    return [package for package, path in found.items() if path is None]


def runs_in_ci() -> bool:
    """With CI=true a missing program is a failure, never a skip."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}
