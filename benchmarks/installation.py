"""The production profile for benchmarks: PostgreSQL, Redis, `make run`, a simulated cluster in its own process.

Used by `bind` and `watcher`. All processes share the machine that the benchmark runs on.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.idle import cpu_seconds
from tests.e2e.production import Installation, running_installation
from tests.e2e.stack import ROOT, wait_until
from tests.services.session import Session, current_session, end_session, ensure_services

TOKEN = "bench"  # noqa: S105 - of a server that lives for minutes on loopback
SYNC_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class SimulatedApi:
    """A simulated cluster: its address, its kubeconfig, its process."""

    url: str
    kubeconfig: Path
    pid: int


@dataclass(frozen=True, slots=True)
class Production:
    """All of it, running."""

    installation: Installation
    cluster: SimulatedApi
    session: Session

    @property
    def database_url(self) -> str:
        """The installation's own database, written down by the process that made it."""
        return self.installation.database_url

    def pids(self) -> dict[str, int]:
        """Process ids by name, the simulated cluster's among them."""
        return {**self.installation.pids(), "simcluster": self.cluster.pid}

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time used so far, by process; PostgreSQL's in one."""
        used = {name: cpu_seconds(pid) for name, pid in self.pids().items()}
        return {**used, "postgresql": sum(cpu_seconds(pid) for pid in self._postgresql())}

    def _postgresql(self) -> list[int]:
        server = int(
            (Path(self.session.folder) / "postgresql/data/postmaster.pid").read_text().split()[0]
        )
        return [server, *_children_of(server)]


def _children_of(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


@contextmanager
def simulated_api(folder: Path, *arguments: str) -> Iterator[SimulatedApi]:
    """Start it, and wait for the line that says it answers."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "scheduler.simcluster", "--token", TOKEN]
    process = subprocess.Popen(
        [*command, "--kubeconfig", str(kubeconfig), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if k != "KUBECONFIG"},
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        match = re.search(r"server: (\S+)", kubeconfig.read_text(encoding="utf-8"))
        assert match is not None
        yield SimulatedApi(match.group(1), kubeconfig, process.pid)
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def production(folder: Path, nodes: int, *arguments: str) -> Iterator[Production]:
    """Everything, ready: the rows know all nodes of the cluster."""
    session = current_session()
    if session.database != "postgresql":
        raise SystemExit("the production profile needs PostgreSQL and Redis")
    try:
        ensure_services(session)
        with (
            simulated_api(folder, "--nodes", str(nodes), *arguments) as cluster,
            running_installation(folder, session, cluster.kubeconfig) as installation,
        ):
            made = Production(installation, cluster, session)
            wait_until(lambda: nodes_known(made.database_url) == nodes, SYNC_SECONDS)
            yield made
    finally:
        end_session(session)


def nodes_known(database_url: str) -> int:
    """How many nodes have rows that say they take jobs."""
    query = "SELECT count(*) FROM scheduler_node WHERE gone_at IS NULL AND out_causes = '[]'"
    with psycopg.connect(database_url) as connection:
        row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0
