"""The real processes, started as a person starts them: `make demo` with its own folder and ports."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.api import Api
from tests.services.session import free_port

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Stack:
    """A running demo. announcement: what demo.json says. supervisor: None where we did not start it."""

    var: Path
    supervisor: "subprocess.Popen[bytes] | None"
    announcement: dict[str, Any]

    @property
    def url(self) -> str:
        """Address of the web process."""
        return str(self.announcement["url"])

    @property
    def kubeconfig(self) -> Path:
        """How the simulated cluster's API is reached."""
        return Path(self.announcement["kubeconfig"])

    def token_of(self, user: str) -> str:
        """The API token of a demo account."""
        return next(str(p["token"]) for p in self.announcement["logins"] if p["user"] == user)

    def api(self, user: str = "ravi") -> Api:
        """The REST API as that person."""
        return Api(self.url, self.token_of(user))

    def pids(self) -> dict[str, int]:
        """Process ids by name, as the supervisor last wrote them."""
        found: dict[str, int] = json.loads((self.var / "pids.json").read_text())
        return found

    def kill(self, name: str) -> int:
        """`kill -9` one process; answers the pid it had."""
        wait_until(lambda: name in self.pids(), 30)
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def log_of(self, name: str) -> str:
        """What a process has said."""
        file = self.var / "process-logs" / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""


def start_demo(var: Path, **environment: str) -> "subprocess.Popen[bytes]":
    """Start it in a session of its own, output into var/demo.out."""
    var.mkdir(parents=True, exist_ok=True)
    inherited = {k: v for k, v in os.environ.items() if k not in TEST_VARIABLES}
    wanted = {"VAR": str(var), "PORT": str(free_port()), "DEMO_LOAD": "0"} | environment
    return subprocess.Popen(
        [sys.executable, "-m", "controlplane.demo"],
        cwd=ROOT,
        env=inherited | wanted,
        stdin=subprocess.DEVNULL,
        stdout=(var / "demo.out").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


# What the test session set for itself must not reach the product.
TEST_VARIABLES = {
    *("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "FIELD_KEY", "TEST_SQLITE"),
    *("DJANGO_SETTINGS_MODULE", "VAR", "PORT", "DEMO_LOAD", "MUSTER_TEST_SESSION"),
}


def until_ready(var: Path, supervisor: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Wait for demo.json. Fails with the demo's own words when it ends or takes too long."""
    announcement = var / "demo.json"

    def ready() -> bool:
        assert supervisor.poll() is None, what_it_said(var)
        return announcement.exists()

    wait_until(ready, READY_SECONDS, lambda: what_it_said(var))
    found: dict[str, Any] = json.loads(announcement.read_text())
    return found


def what_it_said(var: Path) -> str:
    """The demo's output and the end of each process' log, for the message of a failed test."""
    parts = [(var / "demo.out").read_text(errors="replace")]
    for log in sorted((var / "process-logs").glob("*.log")):
        parts.append(f"--- {log.name}\n" + log.read_text(errors="replace")[-3000:])
    return "\n".join(parts)


def wait_until(
    holds: Callable[[], bool], within_seconds: float, why: Callable[[], str] = lambda: ""
) -> float:
    """Poll until it holds; seconds it took. The clock of real processes cannot be stepped."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > within_seconds:
            raise AssertionError(f"not within {within_seconds} s. {why()}")
        time.sleep(0.03)
    return time.monotonic() - began


@contextmanager
def running_demo(var: Path, **environment: str) -> Iterator[Stack]:
    """A ready demo; stopped as Ctrl-C stops it, and nothing of it may be left."""
    supervisor = start_demo(var, **environment)
    try:
        yield Stack(var, supervisor, until_ready(var, supervisor))
    finally:
        stop_demo(supervisor)


def attached_demo(var: Path) -> Stack:
    """A demo that somebody else has started and will stop."""
    return Stack(var, None, json.loads((var / "demo.json").read_text()))


def stop_demo(supervisor: "subprocess.Popen[bytes]", within_seconds: float = 20.0) -> None:
    """SIGINT as the terminal sends it, then wait."""
    if supervisor.poll() is None:
        supervisor.send_signal(signal.SIGINT)
        try:
            supervisor.wait(within_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(supervisor.pid, signal.SIGKILL)
            raise


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
