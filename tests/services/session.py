"""One test session: its folder, its ports, its database. Shared by the pytest process and its xdist workers.

The first process to ask makes the session and leaves it in the environment, which workers inherit.
`ensure_services` starts PostgreSQL and Redis when the first database test needs them.
"""

import fcntl
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.services.binaries import services_missing

VARIABLE = "MUSTER_TEST_SESSION"
START_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Session:
    """folder: everything the session writes. owner_pid: the pytest process; services end with it."""

    folder: str
    owner_pid: int
    database: str  # "postgresql" or "sqlite"
    postgresql_port: int
    redis_port: int

    @property
    def database_url(self) -> str:
        """As DATABASE_URL takes it."""
        if self.database == "sqlite":
            return f"sqlite:///{self.folder}/muster.sqlite3"
        return f"postgresql://muster@127.0.0.1:{self.postgresql_port}/postgres"

    @property
    def broker_url(self) -> str:
        """As CELERY_BROKER_URL takes it: no server on SQLite, as in the demo."""
        if self.database == "sqlite":
            return "filesystem://"
        return f"redis://127.0.0.1:{self.redis_port}/0"


def current_session() -> Session:
    """The session of this pytest run, made on first use."""
    known = os.environ.get(VARIABLE)
    if known:
        return Session(**json.loads(known))
    made = Session(
        folder=tempfile.mkdtemp(prefix="muster-test-"),
        owner_pid=os.getpid(),
        database=_database(),
        postgresql_port=free_port(),
        redis_port=free_port(),
    )
    os.environ[VARIABLE] = json.dumps(asdict(made))
    return made


def _database() -> str:
    """TEST_DATABASE when given; PostgreSQL where it can be started, else SQLite for the tests that allow it."""
    asked = os.environ.get("TEST_DATABASE", "")
    if asked not in {"", "postgresql", "sqlite"}:
        raise ValueError(f"TEST_DATABASE must be postgresql or sqlite, not {asked!r}")
    return asked or ("sqlite" if services_missing() else "postgresql")


def free_port() -> int:
    """A loopback port nobody listens on, below the range from which outgoing connections are served."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def ensure_services(session: Session) -> None:
    """Start PostgreSQL and Redis unless another worker has; return when both answer."""
    if session.database != "postgresql":
        return
    folder = Path(session.folder)
    ready, failed = folder / "ready", folder / "failed"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists() and not failed.exists():
            _start_keeper(session)
            _wait_for(ready, failed)
    if failed.exists():
        raise RuntimeError(f"the test services did not start: {failed.read_text()}")


def _start_keeper(session: Session) -> None:
    """The keeper outlives the worker that starts it and ends with the session's owner."""
    log = (Path(session.folder) / "keeper.log").open("ab")
    subprocess.Popen(
        [sys.executable, "-m", "tests.services.keeper"],
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {VARIABLE: json.dumps(asdict(session))},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _wait_for(*files: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not any(file.exists() for file in files):
        if time.monotonic() > deadline:
            raise TimeoutError(f"none of {files} within {START_SECONDS} s")
        time.sleep(0.02)


def end_session(session: Session) -> None:
    """Stop what was started and remove the folder. Only the owner calls this; the keeper also sees it die."""
    pid_file = Path(session.folder) / "keeper.pid"
    if pid_file.exists():
        os.kill(int(pid_file.read_text()), 15)
        deadline = time.monotonic() + 20
        while pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    shutil.rmtree(session.folder, ignore_errors=True)
