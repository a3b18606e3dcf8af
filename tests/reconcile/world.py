"""A simulated cluster, rows, the real loop and the real cluster process, for tests of the latter."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx

from controlplane.common import log
from queues.models import Attempt, Cluster, Job, Level, Placement, Queue
from queues.services.lifecycle import record_job_event
from scheduler.kube.connection import Connection, Limits
from scheduler.kube.credentials import load_credentials
from scheduler.kube.parse import parse_pod
from scheduler.kube.seen import PodSeen
from scheduler.kube.watching import Pace
from scheduler.logstore import LogStore
from scheduler.loop.cycle import ClusterLoop
from scheduler.models import Node, Seat
from scheduler.reconcile.process import ClusterProcess
from scheduler.simcluster.background import ThreadedSimCluster
from tenants.models import User
from tests import factories

T = TypeVar("T")
QUICK = Limits(first_delay_seconds=0.05, longest_delay_seconds=0.5)


@dataclass
class ShiftedClock:
    """The wall clock, which a test may put forward."""

    shift: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.shift


class RunningProcess:
    """A `ClusterProcess` in a thread with an event loop of its own."""

    def __init__(
        self,
        cluster: Cluster,
        kubeconfig: str,
        store: LogStore,
        clock: ShiftedClock,
        pace: Pace | None = None,
    ) -> None:
        self._make: Callable[[Connection], ClusterProcess] = lambda kube: ClusterProcess(
            cluster, kube, store, clock=clock, pace=pace
        )
        self._kubeconfig = Path(kubeconfig)
        self._ended: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self.process: ClusterProcess | None = None
        self._thread = threading.Thread(target=self._run, name="cluster-process", daemon=True)

    def start(self) -> RunningProcess:
        self._thread.start()
        return self

    def stop(self) -> None:
        """As SIGTERM does; raises what the process died of."""
        if self._loop is not None and self._task is not None and not self._ended.done():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._ended.result(20)
        self._thread.join(20)

    def wake(self) -> None:
        if self._loop is not None and self.process is not None:
            self._loop.call_soon_threadsafe(self.process.wake)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
            self._ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            self._ended.set_exception(error)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with Connection(load_credentials(self._kubeconfig), limits=QUICK) as kube:
            self.process = self._make(kube)
            self._task = asyncio.create_task(self.process.run())
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()


@dataclass
class World:
    """Everything a test needs. `submit` and `plan` are the other processes' parts."""

    sim: ThreadedSimCluster
    cluster: Cluster
    queue: Queue
    user: User
    store: LogStore
    clock: ShiftedClock
    running: RunningProcess | None = None
    loop: ClusterLoop | None = None
    pace: Pace | None = None
    kubeconfig: str = ""

    def start(self) -> None:
        self.running = RunningProcess(
            self.cluster, self.kubeconfig or self.sim.kubeconfig, self.store, self.clock, self.pace
        ).start()

    def stop(self) -> None:
        if self.running is not None:
            running, self.running = self.running, None
            running.stop()

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.shift += timedelta(seconds=seconds)
        if self.running is not None:
            self.running.wake()

    def submit(self, replicas: int = 1, gpus: int = 8, **changes: Any) -> Job:
        annotations = {
            f"sim.muster.dev/{name.replace('_', '-')}": str(changes.pop(name))
            for name in list(changes)
            if name
            in (
                *("run_seconds", "exit_code", "log_lines", "fault", "on_sigterm"),
                *("sigterm_seconds", "pull_seconds", "start_seconds"),
            )
        }
        with log.writing():
            job = factories.make_job(
                self.queue,
                self.user,
                replicas=replicas,
                gpus=gpus,
                submitted_at=self.clock(),
                annotations=annotations,
                **changes,
            )
            record_job_event(job, "job.submitted", actor="ravi", now=self.clock())
        return job

    def plan(self) -> None:
        """One cycle of the real loop."""
        if self.loop is None:
            self.loop = ClusterLoop(self.cluster.pk, self.cluster.name, "test")
        self.loop.tick(self.clock())

    def until(self, what: Callable[[], T | None], seconds: float = 15.0, *, plan: bool = True) -> T:
        """Plan and look until `what` is true; its value."""
        deadline = time.monotonic() + seconds
        while True:
            if plan:
                self.plan()
            found = what()
            if found:
                return found
            assert time.monotonic() < deadline, f"not within {seconds} s: {what.__doc__ or what}"
            time.sleep(0.03)

    def until_phase(self, job: Job, phase: str, seconds: float = 15.0, *, plan: bool = True) -> Job:
        def reached() -> Job | None:
            job.refresh_from_db()
            return job if job.phase == phase else None

        try:
            return self.until(reached, seconds, plan=plan)
        except AssertionError:
            raise AssertionError(
                f"{job.phase} {job.outcome} {job.message!r} {job.reason_code}, wanted {phase}: "
                f"{list(Placement.objects.filter(attempt__job=job).values())}"
            ) from None

    def pods(self) -> list[PodSeen]:
        """All pods in tenants' namespaces as the API server has them."""
        raw = self.sim.call(_pods)
        return [pod for pod in map(parse_pod, raw) if pod.namespace.startswith("muster-")]

    def api(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """One call as the cluster's administrator."""
        response = httpx.request(
            method,
            self.sim.url + path,
            content=None if body is None else json.dumps(body),
            headers={
                "Authorization": f"Bearer {self.sim.cluster.admin_token}",
                "Content-Type": kind,
            },
            timeout=10,
        )
        assert response.status_code < 400, response.text
        return response.json()

    def delete_pod(self, pod: PodSeen, grace_seconds: int = 1) -> None:
        """As a person does by kubectl."""
        self.api(
            "DELETE",
            f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}",
            {"gracePeriodSeconds": grace_seconds},
        )

    def lose_node(self, name: str) -> None:
        """Power off: the kubelet is silent, and the node controller says so."""
        self.sim.call(lambda sim: sim.fleet.kubelets[name].power_off())
        self.set_ready(name, "Unknown", "NodeStatusUnknown")

    def set_ready(self, name: str, status: str, reason: str) -> None:
        now = self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        node = self.api("GET", f"/api/v1/nodes/{name}")
        conditions = node["status"]["conditions"]
        for condition in conditions:
            if condition["type"] == "Ready":
                condition |= {"status": status, "reason": reason, "lastTransitionTime": now}
        self.api(
            "PATCH",
            f"/api/v1/nodes/{name}/status",
            {"status": {"conditions": conditions}},
            "application/merge-patch+json",
        )

    def fault(self, kind: str, seconds: float | None = None, **parameters: Any) -> None:
        """Begin a fault of the simulated cluster."""
        self.sim.call(lambda sim: sim.faults.begin(kind, parameters, seconds))

    def end_faults(self) -> None:
        self.sim.call(lambda sim: sim.faults.end_all())

    def make_foreign_pod(
        self, node: str, gpus: int, name: str = "foreign", namespace: str = "default"
    ) -> None:
        """Somebody else's pod, bound around everybody."""
        self.api(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "annotations": {"sim.muster.dev/run-seconds": "forever"},
                },
                "spec": {
                    "nodeName": node,
                    "restartPolicy": "Never",
                    "securityContext": {
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "main",
                            "image": "busybox",
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
                        }
                    ],
                },
            },
        )

    def attempt(self, job: Job) -> Attempt:
        return job.attempts.order_by("-number")[0]


def _pods(sim: Any) -> list[dict[str, Any]]:
    resource = next(
        c for c in sim.world.store.collections() if c.resource.qualified.startswith("pods")
    )
    return [json.loads(item.raw) for item in resource.objects.values()]


def make_world(sim: ThreadedSimCluster, folder: Path) -> World:
    cluster = factories.make_cluster()
    for name, label in (("spine", "tier-1"), ("leaf", "tier-0")):
        Level.objects.filter(cluster=cluster, name=name).update(
            node_label=f"fabric.topograph.run/{label}"
        )
    tenant = factories.make_tenant("research")
    queue = factories.make_queue(tenant, "train")
    user = factories.make_member(tenant, "ravi")
    return World(sim, cluster, queue, user, LogStore(folder / "logs"), ShiftedClock())


def seats_of(job: Job) -> int:
    return Seat.objects.filter(placement__attempt__job=job).count()


def nodes_in() -> int:
    return Node.objects.filter(gone_at__isnull=True).count()
