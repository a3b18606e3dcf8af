"""Numbers of the whole installation for Prometheus, read from the database: the same from whichever web answers.

Registered by `scheduler.apps` in `controlplane.common.metrics.installation`, which /metrics of the web serves. One
set of queries a scrape at most, kept for KEPT_SECONDS: a scraper in a hurry costs nothing. Labels are bounded by
what an operator makes (clusters, flavors, kinds of alerts) and tell no tenants apart. With the database away only
`muster_database_up 0` is left, and the scrape still succeeds.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import DatabaseError
from django.db.models import Count, Max, Min
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane.common.log import latest_seq
from queues.models import Attempt, Cluster, Job
from scheduler.models import Alert, ClusterState, Drift, DriftKind, ForeignPod, Gpu, Lease
from scheduler.selectors.alerts import UNRESOLVED
from scheduler.selectors.node_facts import node_facts
from tenants.models import OutboxMessage

logger = logging.getLogger(__name__)

KEPT_SECONDS = 5.0
BIND_WINDOW = timedelta(minutes=10)
QUANTILES = (0.5, 0.95, 1.0)
WATCHES = ("never", "live", "catching_up", "unreachable")


@dataclass(eq=False)
class Installation(Collector):
    """The collector. clock and monotonic: for tests."""

    clock: Callable[[], datetime] = timezone.now
    monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: list[Metric] = field(default_factory=list)
    _read_at: float = float("-inf")

    def describe(self) -> Iterable[Metric]:
        """Nothing: asking the database when the process starts would be too soon."""
        return []

    def collect(self) -> Iterable[Metric]:
        """All families; of scrapes at the same moment one reads and the others wait for it."""
        with self._lock:
            if self.monotonic() - self._read_at >= KEPT_SECONDS:
                self._kept = self._read()
                self._read_at = self.monotonic()
            return list(self._kept)

    def _read(self) -> list[Metric]:
        up = _gauge("database_up", "Whether the database answers.")
        try:
            found = list(read(self.clock()))
        except DatabaseError as error:
            logger.warning("metrics: the database is away: %s", error)
            found = []
        up.add_metric([], 1.0 if found else 0.0)
        return [up, *found]


def read(now: datetime) -> Iterator[Metric]:
    """Every family."""
    yield from _jobs()
    yield from _binds(now)
    yield from _clusters(now)
    yield _leases(now)
    yield from _drift()
    yield from _capacity()
    yield _alerts()
    yield from _outbox(now)


def _gauge(name: str, told: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"muster_{name}", told, labels=labels)


def _jobs() -> Iterator[Metric]:
    """By phase, and those that wait by their dominant reason."""
    phases = _gauge("jobs", "Jobs that are not finished.", "cluster", "phase")
    waiting = _gauge("jobs_waiting", "Jobs that wait, by dominant reason.", "cluster", "reason")
    rows = Job.objects.exclude(phase="finished").values_list(
        "queue__cluster__name", "phase", "reason_code"
    )
    by_phase: Counter[tuple[str, str]] = Counter()
    by_reason: Counter[tuple[str, str]] = Counter()
    for cluster, phase, reason, count in rows.annotate(n=Count("pk")).order_by():
        by_phase[cluster, phase] += count
        if phase in ("pending", "held"):
            by_reason[cluster, reason or "not_yet_considered"] += count
    for labels, count in sorted(by_phase.items()):
        phases.add_metric(labels, count)
    for labels, count in sorted(by_reason.items()):
        waiting.add_metric(labels, count)
    yield phases
    yield waiting


def _binds(now: datetime) -> Iterator[Metric]:
    """From the plan's commit to the last pod bound, of gangs placed within BIND_WINDOW that are still there."""
    seconds = _gauge(
        "bind_seconds", "From placed to the last pod bound, recently.", "cluster", "quantile"
    )
    count = _gauge("binds_recent", "Gangs that these quantiles are of.", "cluster")
    rows = (
        Attempt.objects.filter(ended_at__isnull=True, placed_at__gte=now - BIND_WINDOW)
        .exclude(placements__bound_at__isnull=True)
        .values_list("cluster__name", "placed_at")
        .annotate(bound=Max("placements__bound_at"))
    )
    took: dict[str, list[float]] = {}
    for cluster, placed_at, bound_at in rows:
        if bound_at is not None:
            took.setdefault(cluster, []).append((bound_at - placed_at).total_seconds())
    for cluster, found in sorted(took.items()):
        found.sort()
        count.add_metric([cluster], len(found))
        for quantile in QUANTILES:
            index = min(len(found) - 1, int(quantile * len(found)))
            seconds.add_metric([cluster, str(quantile)], found[index])
    yield seconds
    yield count


def _clusters(now: datetime) -> Iterator[Metric]:
    watch = _gauge("watch_state", "1 for the state that the watch is in.", "cluster", "state")
    heard = _gauge("watch_age_seconds", "Since the cluster process was heard.", "cluster")
    considered = _gauge("cycle_age_seconds", "Since a planning cycle ended.", "cluster")
    took = _gauge("last_cycle_seconds", "Length of the last planning cycle.", "cluster")
    behind = _gauge("cycle_events_behind", "Events that the last cycle had not read.", "cluster")
    newest = latest_seq()
    for state in ClusterState.objects.select_related("cluster").order_by("cluster__name"):
        label = [state.cluster.name]
        for word in WATCHES:
            watch.add_metric([*label, word], float(state.watch == word))
        if state.heard_at is not None:
            heard.add_metric(label, (now - state.heard_at).total_seconds())
        if state.considered_at is not None:
            considered.add_metric(label, (now - state.considered_at).total_seconds())
            took.add_metric(label, state.cycle_ms / 1000)
            behind.add_metric(label, max(0, newest - state.cycle_seq))
    yield from (watch, heard, considered, took, behind)


def _leases(now: datetime) -> Metric:
    """Negative: it ran out, and nobody has taken it."""
    left = _gauge("lease_expires_in_seconds", "Until the planner's lease runs out.", "cluster")
    rows = Lease.objects.filter(expires_at__isnull=False).values_list("cluster__name", "expires_at")
    for cluster, expires_at in rows.order_by("cluster__name"):
        if expires_at is not None:
            left.add_metric([cluster], (expires_at - now).total_seconds())
    return left


def _drift() -> Iterator[Metric]:
    unclaimed = _gauge("unclaimed_pods", "Pods with our labels and without a row.", "cluster")
    foreign = _gauge("foreign_pods", "Pods of others on our nodes.", "cluster")
    names = Cluster.objects.order_by("name").values_list("name", flat=True)
    rows = ForeignPod.objects.values_list("cluster__name", "unclaimed").annotate(n=Count("pk"))
    found = {(cluster, is_unclaimed): count for cluster, is_unclaimed, count in rows.order_by()}
    for name in names:
        unclaimed.add_metric([name], found.get((name, True), 0))
        foreign.add_metric([name], found.get((name, False), 0))
    drift = _gauge("drift", "Differences between rows and Kubernetes.", "cluster", "kind")
    open_ones = Drift.objects.filter(healed_at__isnull=True).values_list("cluster__name", "kind")
    counts = {(name, kind): n for name, kind, n in open_ones.annotate(n=Count("pk")).order_by()}
    for name in names:
        for kind in DriftKind.values:
            drift.add_metric([name, kind], counts.get((name, kind), 0))
    yield unclaimed
    yield foreign
    yield drift


def _capacity() -> Iterator[Metric]:
    """GPUs as the planner has them, nodes by the state that pages show, and the health ledger."""
    gpus = _gauge("gpus", "GPUs by use.", "cluster", "flavor", "use")
    nodes = _gauge("nodes", "Nodes by state.", "cluster", "state")
    for cluster in Cluster.objects.order_by("name"):
        use: Counter[tuple[str, str]] = Counter()
        states: Counter[str] = Counter()
        for each in node_facts(cluster):
            states[each.state] += 1
            for word in ("used", "foreign", "free", "out"):
                use[each.flavor, word] += getattr(each, word)
        for (flavor, word), count in sorted(use.items()):
            gpus.add_metric([cluster.name, flavor, word], count)
        for state, count in sorted(states.items()):
            nodes.add_metric([cluster.name, state], count)
    health = _gauge("gpu_health", "GPUs by state of the health ledger.", "cluster", "state")
    rows = Gpu.objects.values_list("cluster__name", "state").annotate(n=Count("pk"))
    for cluster_name, state, count in rows.order_by("cluster__name", "state"):
        health.add_metric([cluster_name, state], count)
    yield from (gpus, nodes, health)


def _alerts() -> Metric:
    family = _gauge("alerts", "Alerts that are not over.", "kind", "severity", "state")
    rows = Alert.objects.filter(state__in=UNRESOLVED).values_list("kind", "severity", "state")
    for kind, severity, state, count in rows.annotate(n=Count("pk")).order_by("kind", "severity"):
        family.add_metric([kind, severity, state], count)
    return family


def _outbox(now: datetime) -> Iterator[Metric]:
    waiting = _gauge("outbox_waiting", "Messages that are to be sent.", "way")
    oldest = _gauge("outbox_oldest_seconds", "Age of the oldest message that waits.", "way")
    rows = OutboxMessage.objects.filter(next_attempt_at__isnull=False).values_list("way")
    found = {
        way: (count, since)
        for way, count, since in rows.annotate(n=Count("pk"), since=Min("created_at")).order_by()
    }
    for way, _words in OutboxMessage.WAYS:
        count, since = found.get(way, (0, now))
        waiting.add_metric([way], count)
        oldest.add_metric([way], (now - since).total_seconds())
    yield waiting
    yield oldest
