"""Rows for tests of the health services: nodes like the factories' jobs are placed on, and a clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from queues.lifecycle import EndedBy
from queues.models import Attempt, Cluster, Flavor, Placement, Queue
from queues.services.attempts import stop_attempt
from scheduler.health.rules import SPECS
from scheduler.models import Gpu, HealthPolicy, HealthRule, Node, NodeWatch
from scheduler.services.health_tick import HealthTicker
from tenants.models import User
from tests.factories import (
    H100,
    NOW,
    later,
    make_cluster,
    make_flavor,
    make_job,
    make_member,
    make_queue,
    make_tenant,
    run_job,
)
from tests.health.pages import page, uuid_of


@dataclass(slots=True)
class Scene:
    """A cluster with nodes `gpu-00000`…, one queue, one user, and the ticker that judges it."""

    cluster: Cluster
    flavor: Flavor
    queue: Queue
    user: User
    nodes: int
    ticker: HealthTicker
    seconds: float = 0
    pods: dict[str, str] = field(default_factory=dict)
    log_times: dict[int, datetime | None] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        return later(self.seconds)

    def name(self, index: int) -> str:
        return f"gpu-{index:05d}"

    def node(self, index: int) -> Node:
        return Node.objects.get(cluster=self.cluster, name=self.name(index))

    def watch(self, index: int) -> NodeWatch:
        return NodeWatch.objects.get(node__cluster=self.cluster, node__name=self.name(index))

    def gpu(self, index: int, gpu: int) -> Gpu:
        return Gpu.objects.get(uuid=uuid_of(self.name(index), gpu))

    def run(self, replicas: int = 1, first_node: int = 0, gpus: int = 8, **changes: Any) -> Attempt:
        """A running gang, its pods on the exporters' pages from now on."""
        job = make_job(self.queue, self.user, replicas=replicas, gpus=gpus, **changes)
        attempt = run_job(job, self.now, first_node)
        for placement in attempt.placements.all():
            self.pods[placement.node] = placement.pod_name
        return attempt

    def tick(
        self,
        after: float = 15,
        changes: Mapping[int, Mapping[int, Mapping[str, Any] | None]] | None = None,
        silent: set[int] | None = None,
        only: set[int] | None = None,
    ) -> None:
        """Scrape all nodes (or `only` some) so many seconds later; `changes` by node and GPU index."""
        self.seconds += after
        pages: dict[str, str | None] = {}
        for index in sorted(only) if only is not None else range(self.nodes):
            name = self.name(index)
            text = page(name, (changes or {}).get(index), pod=self.pods.get(name, ""))
            pages[name] = None if index in (silent or ()) else text
        self.ticker.tick(pages, self.now, self.log_times)

    def fail_pod(self, attempt: Attempt, replica: int, code: int = 1) -> None:
        """A pod exits with an error and the attempt is asked to stop, as the cluster process does."""
        from_row = Placement.objects.filter(attempt=attempt, replica=replica)
        from_row.update(ended_at=self.now, exit_code=code, pod_phase="Failed", released_at=self.now)
        stop_attempt(attempt, cause=EndedBy.FAILED, grace_seconds=30, message="replica main-0 exited with 1",
                     actor="cluster", now=self.now)  # fmt: skip


def make_scene(
    nodes: int = 4, *, nodes_per_leaf: int = 16, mode: str = "act", **policy: Any
) -> Scene:
    """Nodes that have been seen well once. mode: of every rule."""
    cluster = make_cluster()
    flavor = make_flavor(cluster)
    tenant = make_tenant()
    add_nodes(cluster, flavor, range(nodes), nodes_per_leaf)
    for key in SPECS:
        HealthRule.objects.update_or_create(key=key, defaults={"mode": mode})
    HealthPolicy.objects.create(cluster=cluster, **policy)
    user = make_member(tenant)
    queue = make_queue(tenant, flavors=[flavor], nominal=4096)
    scene = Scene(cluster, flavor, queue, user, nodes, HealthTicker(cluster))
    scene.tick(0)
    return scene


def add_nodes(cluster: Cluster, flavor: Flavor, numbers: range, nodes_per_leaf: int = 16) -> None:
    Node.objects.bulk_create(
        Node(
            cluster=cluster, name=f"gpu-{number:05d}", uid=f"uid-{number}", boot_id=f"boot-{number}-1",
            flavor=flavor, gpus_capacity=8, gpus_allocatable=8, cpu_millis=192_000, memory_mib=2_097_152,
            pods=110, domains={"leaf": f"leaf-{number // nodes_per_leaf:02d}", "spine": "spine-00"},
            labels={"nvidia.com/gpu.product": H100, "nvidia.com/gpu.count": "8"}, driver="570.158.01",
            ready=True, ready_changed_at=NOW, observed_at=NOW,
        )
        for number in numbers
    )  # fmt: skip
