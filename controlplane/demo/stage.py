"""Starts the demo's processes in order, waits until they are ready, announces them, keeps them running."""

import asyncio
import json
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

from controlplane.demo.freshness import is_prepared, mark_prepared
from controlplane.demo.place import CLUSTER, HOST, Place, write_private
from controlplane.processes import lineup
from controlplane.processes.spec import ProcessSpec
from controlplane.processes.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[2]
NODES = 72
READY_SECONDS = 240.0
LOOK_EVERY_SECONDS = 0.1


async def play(place: Place) -> int:
    """From nothing to "ready", then until somebody stops it. Answers the exit code."""
    place.announcement.unlink(missing_ok=True)
    began = datetime.now(UTC)
    say(f"state and logs under {place.var}")
    pid_file = place.var / "pids.json"
    async with Supervisor(place.logs, pid_file=pid_file) as supervisor:
        supervisor.add(simulated_cluster(place))
        if not (await started(place, supervisor) and await ready(place, supervisor, began)):
            return 0 if supervisor.is_stopping else 1
        announce(place)
        for spec in lineup.in_the_background():
            supervisor.add(spec)
        if place.with_load:
            supervisor.add(ProcessSpec("story", (*lineup.MANAGE, "run_story", "--skip-checks")))
        await supervisor.until_stopped()
        place.announcement.unlink(missing_ok=True)
        print("Stopping …", flush=True)
    return 0


def say(step: str) -> None:
    """One line for each step that takes long, so that nobody takes the wait for a fault."""
    print(f"Muster demo: {step}", flush=True)


async def started(place: Place, supervisor: Supervisor) -> bool:
    """Prepare, and start all of Muster: together where the folder was prepared by this code before."""
    stamp = place.var / "prepared"
    together = is_prepared(stamp, ROOT)
    if not together:
        say("making tables, static files, people and quota (about 20 s the first time)")
        if not await prepared(place, supervisor):
            return False
    say("starting Muster's processes; the scheduler reads the cluster (about 15 s)")
    for spec in lineup.control_plane(HOST, place.port, [CLUSTER]):
        supervisor.add(spec)
    if together and not await prepared(place, supervisor):
        return False
    mark_prepared(stamp, ROOT)
    return True


def simulated_cluster(place: Place) -> ProcessSpec:
    """64 H100 nodes and 8 A100 nodes behind the Kubernetes API."""
    command = (
        *(sys.executable, "-m", "scheduler.simcluster", "--port", str(place.kubernetes_port)),
        *("--profile", "demo", "--kubeconfig", str(place.kubeconfig)),
    )
    # Its token is $KUBERNETES_TOKEN, the same after a restart: who has read the kubeconfig may go on.
    return ProcessSpec("kubernetes", command)


async def prepared(place: Place, supervisor: Supervisor) -> bool:
    """Tables, static files, people and quota. Says why where it fails."""
    step = ProcessSpec("prepare", (*lineup.MANAGE, "prepare_demo", "--logins", str(logins(place))))
    code = await supervisor.run_once(step)
    if code and not supervisor.is_stopping:
        log = place.logs / "prepare.log"
        print(f"Preparing failed; the end of {log}:", file=sys.stderr)
        print("\n".join(log.read_text(errors="replace").splitlines()[-20:]), file=sys.stderr)
    return code == 0 and not supervisor.is_stopping


def logins(place: Place) -> Path:
    """Where the prepared logins and their tokens are kept between runs."""
    return place.var / "logins.json"


async def ready(place: Place, supervisor: Supervisor, began: datetime) -> bool:
    """Wait until the web answers, the nodes are in and the loop has cycled since `began`."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if await asyncio.to_thread(_looks_ready, place, began):
            return True
        if await supervisor.until_stopped(LOOK_EVERY_SECONDS):
            return False
    print(f"Not ready after {READY_SECONDS:.0f} s. Logs: {place.logs}", file=sys.stderr)
    return False


def _looks_ready(place: Place, began: datetime) -> bool:
    return _planner_is_ready(place, began) and _web_answers(place)


def _web_answers(place: Place) -> bool:
    try:
        with urllib.request.urlopen(f"{place.url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _planner_is_ready(place: Place, began: datetime) -> bool:
    """Read straight from the embedded database: this process has no Django."""
    query = """
        SELECT (SELECT count(*) FROM scheduler_node WHERE gone_at IS NULL), s.heard_at, s.considered_at
        FROM scheduler_clusterstate s JOIN queues_cluster c ON c.id = s.cluster_id WHERE c.name = ?
    """
    since = began.strftime("%Y-%m-%d %H:%M:%S")
    try:
        with sqlite3.connect(f"file:{place.var / 'muster.sqlite3'}?mode=ro", uri=True) as database:
            row = database.execute(query, [CLUSTER]).fetchone()
    except sqlite3.Error:
        return False
    return bool(row and row[0] >= NODES and (row[1] or "") > since and (row[2] or "") > since)


def announce(place: Place) -> None:
    """Write demo.json and tell the person at the terminal."""
    people: list[dict[str, str]] = json.loads(logins(place).read_text())
    ravi = next(person for person in people if person["user"] == "ravi")
    announcement = {
        "url": place.url,
        "token": ravi["token"],
        "logins": people,
        "kubeconfig": str(place.kubeconfig),
    }
    write_private(place.announcement, json.dumps(announcement, indent=2))
    rows = [f"    {p['user']:<8} {p['role']:<16} {p['tenant'] or 'all tenants'}" for p in people]
    lines = [
        "",
        f"Muster is ready: {place.url}",
        "",
        f"  Log in with the password {people[0]['password']} as",
        *rows,
        "",
        f"  API token of ravi: {ravi['token']}",
        f"  All of this is in {place.announcement}. Ctrl-C stops everything.",
        "",
    ]
    print("\n".join(lines), flush=True)
