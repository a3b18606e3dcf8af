"""The processes of Muster (DESIGN section 3), as commands. `make demo` and `make run` start the same ones."""

import sys
from collections.abc import Iterable

from controlplane.processes.spec import ProcessSpec

MANAGE = (sys.executable, "manage.py")
# Django's checks load every page and every door: `make check` runs them, and a process that has no doors need not.
CELERY = (sys.executable, "-m", "celery", "-A", "controlplane", "--skip-checks")


def web(host: str, port: int) -> ProcessSpec:
    """Pages, API and websockets. Sockets get a moment to close, so that pages reconnect at once."""
    command = (
        *(sys.executable, "-m", "uvicorn", "controlplane.asgi:application"),
        *("--host", host, "--port", str(port), "--no-access-log", "--no-server-header"),
        *("--timeout-graceful-shutdown", "3", "--log-level", "warning"),
    )
    return ProcessSpec("web", command)


def celery_worker(queue: str, name: str) -> ProcessSpec:
    """One process that takes one task at a time; the pacemaker lives in the one that has queue `scheduler`."""
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
    command = (*CELERY, "worker", "-Q", queue, "-n", f"{name}@%h", "-P", "solo", *quiet)
    return ProcessSpec(name, command)


def beat() -> ProcessSpec:
    """Sends what is due by the clock: nudges and retention."""
    return ProcessSpec("beat", (*CELERY, "beat", "-l", "WARNING"))


def cluster(name: str) -> ProcessSpec:
    """Watches one Kubernetes cluster and makes it look like the rows."""
    return ProcessSpec(
        f"cluster-{name}", (*MANAGE, "run_cluster", "--skip-checks", "--cluster", name)
    )


def health(name: str) -> ProcessSpec:
    """Scrapes the GPU metrics of one cluster and judges them."""
    return ProcessSpec(
        f"health-{name}", (*MANAGE, "run_health", "--skip-checks", "--cluster", name)
    )


def whatif() -> ProcessSpec:
    """Answers "would this fit?" from a warm snapshot."""
    return ProcessSpec("whatif", (*MANAGE, "run_whatif", "--skip-checks"))


def control_plane(host: str, port: int, clusters: Iterable[str]) -> list[ProcessSpec]:
    """What people and jobs wait for."""
    return [
        web(host, port),
        celery_worker("scheduler", "scheduler"),
        whatif(),
        *(cluster(name) for name in clusters),
        *(health(name) for name in clusters),
    ]


def in_the_background() -> list[ProcessSpec]:
    """What nobody waits for: retention and mail may begin a little later."""
    return [celery_worker("general", "worker"), beat()]
