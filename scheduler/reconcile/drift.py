"""Where the ledger and Kubernetes differ, found within a minute, kept in rows with what heals it.

Called by `tick`, inside its transaction, every twenty seconds. What a tick is about to mend anyway is no drift: a
difference has to be there in two checks. Nothing here acts; the rules that heal are those of `wanted`,
`strangers`, `ends` and `enact`, and none of them touches what is not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.db.models import Count, F, QuerySet

from controlplane.common import log
from queues.models import Cluster, Placement
from scheduler.kube.seen import OUR_PREFIX, PodSeen
from scheduler.models import Drift, DriftKind, Healing, Seat
from scheduler.reconcile.ledger import AttemptLife
from scheduler.reconcile.node_rows import Policy, gpus_of
from scheduler.reconcile.view import ClusterView, attempt_of

CHECK_SECONDS = 20.0
KEPT = timedelta(days=90)
# What makes each kind go, unless somebody else did.
_HEALED_BY = {
    DriftKind.UNCLAIMED: Healing.ITSELF,
    DriftKind.LEFT_OVER: Healing.DELETED,
    DriftKind.STRAY: Healing.DELETED,
    DriftKind.ELSEWHERE: Healing.STOPPED,
    DriftKind.OVERFULL: Healing.ITSELF,
    DriftKind.SEATS: Healing.ITSELF,
    DriftKind.NAMESPACE: Healing.APPLIED,
    DriftKind.NODE: Healing.APPLIED,
}
Key = tuple[DriftKind, str]


@dataclass(frozen=True, slots=True)
class Found:
    """One difference as it is now; the fields are those of `Drift`."""

    kind: DriftKind
    key: str
    node: str = ""
    namespace: str = ""
    pod: str = ""
    job: str = ""
    attempt: int | None = None
    detail: str = ""


@dataclass(slots=True)
class DriftBook:
    """Open drifts of one cluster. `namespaces`: what was last read of each, by name."""

    cluster: Cluster
    namespaces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    checked_at: datetime | None = None
    _suspected: dict[Key, Found] = field(default_factory=dict)
    _open: dict[Key, Found] | None = None

    def is_due(self, now: datetime) -> bool:
        """Whether it is time to compare."""
        return self.checked_at is None or now >= self.checked_at + timedelta(seconds=CHECK_SECONDS)

    def take(self, found: Iterable[Found], now: datetime) -> None:
        """Write what was found twice, and close what is found no longer."""
        self.checked_at = now
        current = {(each.kind, each.key): each for each in found}
        known = self._known()
        lasting = {
            key: each for key, each in current.items() if key in self._suspected or key in known
        }
        self._suspected = current
        for key in known.keys() - current.keys():
            self._close(key, _HEALED_BY[key[0]], now)
        new = [each for key, each in lasting.items() if key not in known]
        self._store(new, now)
        for key, each in lasting.items():
            if known[key] != each:
                self._rows(key).update(detail=each.detail, node=each.node)
                known[key] = each

    def note_healed(
        self, kind: DriftKind, keys: Iterable[str], how: Healing, now: datetime
    ) -> None:
        """Somebody has just mended these."""
        known = self._known()
        for key in keys:
            self._suspected.pop((kind, key), None)
            if (kind, key) in known:
                self._close((kind, key), how, now)

    def forget(self) -> None:
        """Read the rows again next time."""
        self._open = None

    def prune(self, now: datetime) -> None:
        """What was healed long ago goes."""
        Drift.objects.filter(cluster=self.cluster, healed_at__lt=now - KEPT).delete()

    def _known(self) -> dict[Key, Found]:
        if self._open is None:
            rows = Drift.objects.filter(cluster=self.cluster, healed_at__isnull=True)
            self._open = {(DriftKind(row.kind), row.key): _found(row) for row in rows}
        return self._open

    def _store(self, new: list[Found], now: datetime) -> None:
        known = self._known()
        Drift.objects.bulk_create(
            [
                Drift(
                    cluster=self.cluster,
                    since=now,
                    **{name: getattr(each, name) for name in Found.__slots__},
                )
                for each in new
            ],
            ignore_conflicts=True,
        )
        for each in new:
            known[each.kind, each.key] = each
            log.record(self._event("drift.found", each, now))

    def _close(self, key: Key, how: Healing, now: datetime) -> None:
        each = self._known().pop(key)
        self._rows(key).update(healed_at=now, healed_how=how)
        log.record(self._event("drift.healed", each, now, how=how.value))

    def _rows(self, key: Key) -> QuerySet[Drift]:
        return Drift.objects.filter(cluster=self.cluster, kind=key[0], key=key[1], healed_at=None)

    def _event(self, kind: str, each: Found, now: datetime, **numbers: str) -> log.NewEvent:
        return log.NewEvent(
            kind=kind,
            at=now,
            cluster=self.cluster.name,
            node=each.node,
            actor="cluster",
            numbers={"drift": each.kind.value, **numbers},
        )


def _found(row: Drift) -> Found:
    columns = {name: getattr(row, name) for name in Found.__slots__}
    return replace(Found(**columns), kind=DriftKind(row.kind))


def pod_drift(
    view: ClusterView,
    attempts: Mapping[tuple[str, int], AttemptLife],
    unclaimed: Callable[[PodSeen, tuple[str, int]], str | None],
) -> Iterable[Found]:
    """Our pods that no placement, or another than its own, accounts for. `unclaimed`: why a pod of that
    attempt is nobody's; None where a row tells of it."""
    for pod in view.pods.values():
        key = attempt_of(pod)
        if key is None or pod.finished:
            continue
        attempt = attempts.get(key)
        why = unclaimed(pod, key)
        if why is not None:
            yield _of_pod(DriftKind.UNCLAIMED, pod, why)
        elif attempt is not None:
            yield from _of_attempt(pod, attempt)
        elif not pod.terminating:
            yield _of_pod(DriftKind.LEFT_OVER, pod, "its attempt is recorded as ended")


def _of_attempt(pod: PodSeen, attempt: AttemptLife) -> Iterable[Found]:
    placement = next((p for p in attempt.placements if p.pod_uid == pod.uid), None)
    if placement is None:
        open_names = {p.pod_name for p in attempt.placements if not p.pod_uid}
        if pod.name not in open_names and not pod.terminating:
            yield _of_pod(DriftKind.STRAY, pod, "no placement asks for it")
    elif pod.node is not None and pod.node != placement.node:
        yield _of_pod(DriftKind.ELSEWHERE, pod, f"planned for {placement.node}")


def _of_pod(kind: DriftKind, pod: PodSeen, detail: str) -> Found:
    number = pod.labels.get(f"{OUR_PREFIX}attempt", "")
    return Found(
        kind,
        pod.uid,
        node=pod.node or "",
        namespace=pod.namespace,
        pod=pod.name,
        job=pod.labels.get(f"{OUR_PREFIX}job", "")[:63],
        attempt=int(number) if number.isdigit() and len(number) < 10 else None,
        detail=detail,
    )


def overfull_nodes(view: ClusterView, policy: Policy) -> Iterable[Found]:
    """Nodes whose bound, unfinished pods ask for more GPUs than the node has."""
    for name, node in view.nodes.items():
        asked = sum(gpus_of(p, node, policy) for p in view.pods_on(name) if not p.finished)
        if not asked:
            continue
        flavor = next((f for f in policy.flavors if f.resource in node.capacity_devices), None)
        offered = node.capacity_devices.get(flavor.resource, 0) if flavor else asked
        if asked > offered:
            detail = f"pods ask for {asked} GPUs of {offered}"
            yield Found(DriftKind.OVERFULL, name, node=name, detail=detail)


def wrong_seats(cluster: Cluster) -> Iterable[Found]:
    """Placements whose seats are not as many as their GPUs; seats of placements that were released."""
    held = Placement.objects.filter(attempt__cluster=cluster, released_at__isnull=True)
    rows = held.annotate(seats_held=Count("seats")).exclude(seats_held=F("gpus"))
    for pk, node, pod, gpus, seats in rows.values_list(
        "pk", "node", "pod_name", "gpus", "seats_held"
    ):
        detail = f"{seats} seats for {gpus} GPUs"
        yield Found(DriftKind.SEATS, str(pk), node=node, pod=pod, detail=detail)
    left = Seat.objects.filter(node__cluster=cluster, placement__released_at__isnull=False)
    for pk, node, pod in left.values_list(
        "placement_id", "node__name", "placement__pod_name"
    ).distinct():
        yield Found(
            DriftKind.SEATS, str(pk), node=node, pod=pod, detail="seats of a released placement"
        )


def changed_namespaces(read: Mapping[str, tuple[str, ...]]) -> Iterable[Found]:
    """Namespaces that were not as wanted when they were last read."""
    for name, differences in read.items():
        if differences:
            detail = "; ".join(differences)
            yield Found(DriftKind.NAMESPACE, name, namespace=name, detail=detail)
