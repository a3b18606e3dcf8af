"""`make run` on PostgreSQL and Redis, against a simulated cluster that it takes for a real one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from controlplane.processes import lineup
from tests.e2e.api import Api
from tests.e2e.stack import ROOT, TEST_VARIABLES, stop_demo, wait_until, what_it_said
from tests.services.binaries import redis_server
from tests.services.session import Session, free_port

ADMIN = "root"
ADMIN_PASSWORD = "a password of some length"
START_SECONDS = 240.0


@dataclass(slots=True)
class Broker:
    """A Redis of this installation's own, so that it may be stopped."""

    port: int
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """As CELERY_BROKER_URL takes it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Serve, keeping nothing on disk."""
        program = redis_server()
        assert program is not None
        options = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self.process = subprocess.Popen(
            [str(program), *options, "--dir", str(self.folder)], stdout=subprocess.DEVNULL
        )

    def stop(self) -> None:
        """Be gone, as after a crash."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None


@dataclass(frozen=True, slots=True)
class Installation:
    """A running `make run`. token: of its admin, for tenant `default`."""

    url: str
    token: str
    kubeconfig: Path
    broker: Broker
    var: Path
    database_url: str
    environment: dict[str, str]

    @property
    def api(self) -> Api:
        """The REST API as the admin."""
        return Api(self.url, self.token)

    def pids(self) -> dict[str, int]:
        """Process ids by name, as the supervisor last wrote them."""
        found: dict[str, int] = json.loads((self.var / "pids.json").read_text())
        return found

    def second_scheduler(self) -> "subprocess.Popen[bytes]":
        """Another scheduler beside the supervised one; whoever starts it ends it."""
        command = lineup.celery_worker("scheduler", "second").command
        with (self.var / "second.out").open("wb") as said:
            return subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=said, stderr=subprocess.STDOUT
            )

    def cut_connections(self) -> int:
        """End every connection to the database, in whatever it is doing; answers how many there were."""
        ended = self.rows(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        return int(ended[0][0])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database answers."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            return connection.execute(query).fetchall()


@contextmanager
def running_installation(
    folder: Path, session: Session, kubeconfig: Path
) -> Iterator[Installation]:
    """Start it on an empty database of its own; stop it as a service manager would."""
    broker = Broker(free_port(), folder)
    broker.start()
    environment = environment_of(folder, new_database(session), broker, kubeconfig)
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "controlplane.processes"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=(folder / "demo.out").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        url = environment["PUBLIC_URL"]
        wait_until(
            lambda: answers(url, supervisor, folder), START_SECONDS, lambda: what_it_said(folder)
        )
        token = token_of_admin(environment)
        database_url = environment["DATABASE_URL"]
        yield Installation(url, token, kubeconfig, broker, folder, database_url, environment)
    finally:
        if supervisor.poll() is None:
            supervisor.send_signal(signal.SIGTERM)
        stop_demo(supervisor)
        broker.stop()


def new_database(session: Session) -> str:
    """The URL of an empty database on the test session's server."""
    name = f"installation_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(session.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return session.database_url.rpartition("/")[0] + f"/{name}"


def environment_of(folder: Path, database: str, broker: Broker, kubeconfig: Path) -> dict[str, str]:
    """What docs/operations.md asks for."""
    port = free_port()
    inherited = {k: v for k, v in os.environ.items() if k not in TEST_VARIABLES}
    return inherited | {
        "VAR": str(folder),
        "DATABASE_URL": database,
        "CELERY_BROKER_URL": broker.url,
        "SECRET_KEY": "a key that is only ever used by this test",
        "FIELD_KEY": "dGVzdHMgZW5jcnlwdCB3aXRoIHRoaXMgMzIgYnl0ZXM=",
        "KUBECONFIG": str(kubeconfig),
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "WHATIF_URL": f"http://127.0.0.1:{free_port()}",
        "ADMIN_USER": ADMIN,
        "ADMIN_PASSWORD": ADMIN_PASSWORD,
        "HASHED_STATIC": "0",
    }


def answers(url: str, supervisor: "subprocess.Popen[bytes]", folder: Path) -> bool:
    """Whether the web process is ready; fails when the installation has ended."""
    assert supervisor.poll() is None, what_it_said(folder)
    return Api(url, "").ready()


def token_of_admin(environment: dict[str, str]) -> str:
    """By the command that an operator uses."""
    made = subprocess.run(
        [sys.executable, "manage.py", "create_token", "--user", ADMIN, "--tenant", "default"],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return made.stdout.strip()
