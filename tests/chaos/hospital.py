"""Health and maintenance in a run: exporters are scraped and judged, rules act, windows open and close.

What the hardware does to whom is noted from the simulator, so that the judge can tell a fault of
the hardware from one of the job's own.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from queues.models import Cluster, Job, Placement
from scheduler.health.rules import SPECS, Mode
from scheduler.models import HealthPolicy, HealthRule, Node
from scheduler.services.health_tick import HealthTicker
from scheduler.services.windows import create_window
from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.store.resources import PODS
from tenants.access import Actor
from tenants.models import PlatformRole
from tests import factories
from tests.chaos.cast import Routine
from tests.chaos.plot import OWN_XIDS, Fault, WindowPlan
from tests.chaos.virtual import START

SCRAPE_SECONDS = 15.0
TECHNICIAN_SECONDS = 300.0
CLOSED_TO_ALL = {"unhealthy", "draining", "repairing", "burn_in", "joining", "closed"}
CLOSED_TO_GANGS = CLOSED_TO_ALL | {"suspect"}
"""Of several nodes. A node that is `closed` is one that its health keeps from new pods, whatever its state."""


def let_rules_act(cluster: Cluster, now: datetime) -> None:
    """Every rule that may take a node out does so, within the default budget, and nodes are burnt in."""
    HealthRule.objects.bulk_create(
        HealthRule(key=key, mode=Mode.ACT, parameters={}, changed_at=now)
        for key, spec in SPECS.items()
        if spec.takes_out
    )
    HealthPolicy.objects.create(cluster=cluster, burn_in_image="registry.example/burn-in:1")


def health_routine(cluster: Cluster, sim: SimCluster) -> Routine:
    """The health process: scrapes all exporters now and then, and at once when an attempt has failed."""
    tickers: list[HealthTicker] = [HealthTicker(cluster)]

    def tick(now: datetime) -> None:
        tickers[0].tick({name: _page(sim, name) for name in sim.fleet.kubelets}, now)

    return Routine("health", SCRAPE_SECONDS, tick, wakes=_someone_fails)


def technician_routine(cluster: Cluster, sim: SimCluster) -> Routine:
    """Whoever mends machines: what has waited for repair at one round is repaired and restarted at the next."""
    waiting: set[str] = set()

    def go_round(now: datetime) -> None:
        rows = Node.objects.filter(cluster=cluster, health="repairing").order_by("name")
        names = list(rows.values_list("name", flat=True))
        for name in names:
            if name in waiting:
                sim.faults.begin("gpu_reset", {"node": name})
                sim.faults.begin("node_reboot", {"node": name})
        waiting.clear()
        waiting.update(names)

    return Routine("technician", TECHNICIAN_SECONDS, go_round)


def _someone_fails() -> bool:
    return Job.objects.filter(phase="stopping", attempts__stop_cause="failed").exists()


def _page(sim: SimCluster, node: str) -> str | None:
    """What the exporter of a node answers; None when it does not."""
    try:
        return sim.verbs.metrics.page(node)
    except ApiError:
        return None


def announce(cluster: Cluster, plan: WindowPlan, now: datetime) -> None:
    """An operator makes a window."""
    operator = factories.make_user("ines", PlatformRole.OPERATOR)
    starts = datetime.fromtimestamp(START + plan.starts, UTC)
    ends = starts + timedelta(seconds=plan.ends - plan.starts)
    sent: Mapping[str, Any] = {
        "title": "new driver", "cluster": cluster.name, "nodes": {"names": list(plan.nodes)},
        "starts_at": starts.isoformat(), "ends_at": ends.isoformat(), "notice_minutes": 5,
        "running_jobs": plan.running_jobs, "crossing": plan.crossing,
    }  # fmt: skip
    create_window(Actor(operator), sent, now)


@dataclass(slots=True)
class Doctor:
    """Notes whom XIDs of the job's own making hit, and starts on nodes that were known to be bad."""

    sim: SimCluster
    own_hits: Counter[str] = field(default_factory=Counter)
    bad_starts: list[str] = field(default_factory=list)
    starts: Counter[str] = field(default_factory=Counter)
    """Pods placed, by the state of their node."""

    def note_fault(self, fault: Fault) -> None:
        """Before the fault strikes: which jobs hold the GPU."""
        if fault.kind != "gpu_xid" or fault.parameters["code"] not in OWN_XIDS:
            return
        machine = self.sim.fleet.kubelets[fault.parameters["node"]].machine
        holders = {
            uid
            for uid, devices in machine.held.items()
            if any(device.gpu == fault.parameters["gpu"] for device in devices)
        }
        for item in self.sim.world.store.collection(PODS).objects.values():
            if item.body["metadata"]["uid"] in holders:
                self.own_hits[
                    (item.body["metadata"].get("labels") or {}).get("muster.dev/job", "")
                ] += 1

    def note_starts(self, before: Mapping[str, str], latest: int) -> None:
        """After a commit: placements newer than `latest` on nodes that were out `before`."""
        made = Placement.objects.filter(pk__gt=latest).select_related("attempt__job")
        nodes_of = defaultdict(set)
        for placement in made:
            nodes_of[placement.attempt_id].add(placement.node)
        for placement in made:
            closed = CLOSED_TO_GANGS if len(nodes_of[placement.attempt_id]) > 1 else CLOSED_TO_ALL
            state = before[placement.node]
            self.starts[state] += 1
            if state in closed:
                name = placement.attempt.job.name
                self.bad_starts.append(f"{name} was placed on {placement.node}, which is {state}")


def health_of_nodes() -> dict[str, str]:
    """As the rows say now: a node's state, or `closed`."""
    rows = Node.objects.values_list("name", "health", "health_closed")
    return {
        name: "closed" if closed and health not in CLOSED_TO_ALL else health
        for name, health, closed in rows
    }


def latest_placement() -> int:
    """The newest placement's number."""
    return Placement.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
