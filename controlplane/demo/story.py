"""Tells the story: each act through the same services as the pages and the API. Run by `run_story`.

A scene that takes its time (a repair) does not hold up the next one: acts wait for their moment side by side.
"""

import heapq
import itertools
import json
import logging
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from django.db import DatabaseError
from django.utils import timezone

from controlplane.common.errors import ApplicationError
from controlplane.demo.place import CLUSTER
from controlplane.demo.plot import Act, Fault, Repair, Scene, Work, acts
from queues.lifecycle import Phase
from queues.models import Job
from queues.services.jobs import submit_job
from queues.services.validation import validate_job
from scheduler.models import HealthState, MaintenanceWindow
from scheduler.services.node_returns import return_node
from scheduler.services.nodes import node_of
from scheduler.services.windows import create_window
from tenants.access import Actor
from tenants.models import User

logger = logging.getLogger(__name__)

# A demo that nobody watches must not pile up jobs without end.
MOST_WAITING = 30
CROWDED_PAUSE_SECONDS = 5.0
TRY_AGAIN_SECONDS = 20.0
OPERATOR = "ines"


@dataclass(slots=True)
class Teller:
    """Plays acts in the order of the plot. sleep: for tests."""

    sleep: Callable[[float], None] = time.sleep
    _later: list[tuple[float, int, Act]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def tell(self, story: Iterator[Act]) -> None:
        """Until the story ends, which the demo's does not."""
        for act in story:
            if isinstance(act, Repair):
                due = time.monotonic() + act.after_seconds
                heapq.heappush(self._later, (due, next(self._numbers), act))
                continue
            self.sleep(act.after_seconds)
            self._wait_for_room()
            self._play_late()
            play(act)

    def _wait_for_room(self) -> None:
        while Job.objects.filter(phase=Phase.PENDING).count() >= MOST_WAITING:
            self.sleep(CROWDED_PAUSE_SECONDS)

    def _play_late(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            act = heapq.heappop(self._later)[2]
            if play(act):  # the node was not empty yet
                again = time.monotonic() + TRY_AGAIN_SECONDS
                heapq.heappush(self._later, (again, next(self._numbers), act))


def tell(seed: int) -> None:
    """Act after act, for as long as the process lives."""
    Teller().tell(acts(seed))


def play(act: Act) -> bool:
    """One act; whether it is worth trying again.

    A person may have closed a queue, or repaired the node already: then the story goes on without it.
    """
    try:
        if isinstance(act, Scene):
            submit(act)
        elif isinstance(act, Work):
            announce_work(act)
        elif isinstance(act, Fault):
            begin_fault(act)
        else:
            return give_back(act)
    except (ApplicationError, DatabaseError, OSError) as error:
        logger.warning("%s was not played: %s", act, error)
    return False


def submit(scene: Scene) -> Job:
    """What the API does for the user of the scene."""
    actor = _actor(scene.user)
    now = timezone.now()
    return submit_job(actor, validate_job(actor, scene.job, now), now)


def announce_work(work: Work) -> MaintenanceWindow:
    """What the calendar page does for the operator."""
    now = timezone.now()
    begins = (now + timedelta(minutes=work.begins_in_minutes)).replace(second=0, microsecond=0)
    wanted = {
        "title": work.title,
        "cluster": CLUSTER,
        "kind": "maintenance",
        "starts_at": begins.isoformat(),
        "ends_at": (begins + timedelta(minutes=work.minutes)).isoformat(),
        "time_zone": "UTC",
        "nodes": {"domains": [{"level": "leaf", "name": work.leaf}]},
        "crossing": "checkpointable",
        "running_jobs": "checkpoint",
        "notice_minutes": 10,
    }
    return create_window(_actor(OPERATOR), wanted, now)


def give_back(repair: Repair) -> bool:
    """Reset the machine and say so, as the operator does on the node's page; the burn-in follows.

    Answers whether to come again: jobs are still leaving.
    """
    node = node_of(CLUSTER, repair.node)
    if node.health == HealthState.DRAINING:
        return True
    begin_fault(Fault(0.0, "gpu_reset", repair.node, {"node": repair.node}, seconds=0.0))
    return_node(_actor(OPERATOR), node, "GPU was replaced", timezone.now())
    return False


def begin_fault(fault: Fault) -> None:
    """By the control interface of the simulated cluster."""
    server, token = _simulated_cluster(Path(os.environ["KUBECONFIG"]))
    body: dict[str, Any] = {"kind": fault.kind, **fault.parameters}
    if fault.seconds:
        body["seconds"] = fault.seconds
    request = urllib.request.Request(
        f"{server}/_sim/faults",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=5):
        pass


def _simulated_cluster(kubeconfig: Path) -> tuple[str, str]:
    read = yaml.safe_load(kubeconfig.read_text())
    return read["clusters"][0]["cluster"]["server"], read["users"][0]["user"]["token"]


def _actor(name: str) -> Actor:
    return Actor(user=User.objects.get(username=name), via="command")
