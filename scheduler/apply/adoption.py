"""An attempt that runs while no row tells of it, as after a restored backup → rows. Called by the cluster process.

Nothing is planned here: the pods are where they are. Nodes are locked as for a start, and the unique index of seats
refuses what others hold; then the pods stay unclaimed, for a person to decide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.common import log
from queues.lifecycle import Phase
from queues.models import Attempt, Cluster, Job, JobRole, Placement
from queues.services.attempts import begin_attempt
from queues.services.lifecycle import record_job_event, transition_job
from scheduler.models import Node, Seat

CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class FoundPod:
    """A pod as its labels and status say. `holds`: it is bound and has not ended."""

    uid: str
    name: str
    role: str
    replica: int
    rank: int
    try_number: int
    node: str
    holds: bool
    created_at: datetime | None
    placed_at: datetime | None


class NotAdoptableError(Exception):
    """Why the pods stay unclaimed, in words."""


def adopt_attempt(
    cluster: Cluster, job_id: str, number: int, pods: Sequence[FoundPod], now: datetime
) -> Attempt:
    """Write the attempt, its placements and seats as the pods are; it counts as placed when they say that it was.

    Raises NotAdoptableError, leaving no trace.

    The job waits, its attempt is not known; or it was placed again under the same number before the pods were
    seen, and has no pods of its own: then the placements move to where the pods are.
    """
    with log.writing():
        job = _locked_job(cluster, job_id)
        roles = {role.name: role for role in job.roles.all()}
        _check_whole(pods, roles)
        nodes = _locked_nodes(cluster, pods)
        attempt = _reopened(job, number, now) or _begun(job, cluster, number, nodes, now)
        _place(attempt, pods, roles, nodes)
        attempt.placed_at = pods[0].placed_at or attempt.placed_at
        attempt.save(update_fields=["placed_at"])
        record_job_event(
            job,
            "attempt.adopted",
            actor=CLUSTER,
            now=now,
            numbers={"attempt": number, "pods": len(pods)},
        )
    return attempt


def _locked_job(cluster: Cluster, job_id: str) -> Job:
    job = (
        Job.objects.select_for_update(of=("self",))
        .select_related("tenant", "queue__cluster")
        .filter(pk=job_id, queue__cluster=cluster)
        .first()
    )
    if job is None:
        raise NotAdoptableError("no row of its job")
    return job


def _check_whole(pods: Sequence[FoundPod], roles: Mapping[str, JobRole]) -> None:
    if len({pod.placed_at for pod in pods}) != 1:
        raise NotAdoptableError("its pods are of several attempts")
    if len({(pod.role, pod.replica) for pod in pods}) < len(pods):
        raise NotAdoptableError("a replica has two pods")
    found = Counter(pod.role for pod in pods)
    if found.keys() - roles.keys():
        raise NotAdoptableError("its job has other roles")
    for name, role in roles.items():
        if found[name] < role.min_replicas:
            raise NotAdoptableError(f"{found[name]} of {role.min_replicas} pods of role {name}")


def _locked_nodes(cluster: Cluster, pods: Iterable[FoundPod]) -> dict[str, Node]:
    names = sorted({pod.node for pod in pods})
    rows = Node.objects.select_for_update(of=("self",)).select_related("flavor")
    nodes = {row.name: row for row in rows.filter(cluster=cluster, name__in=names).order_by("pk")}
    if missing := set(names) - nodes.keys():
        raise NotAdoptableError(f"node {min(missing)} is not known")
    return nodes


def _reopened(job: Job, number: int, now: datetime) -> Attempt | None:
    """The attempt of that number when it was only just planned; its seats are given back."""
    attempt = job.attempts.filter(number=number).first()
    if attempt is None:
        return None
    placements = Placement.objects.filter(attempt=attempt)
    if attempt.ended_at or attempt.stop_cause or job.phase != Phase.PLACED:
        raise NotAdoptableError("its attempt is recorded as ended")
    if placements.exclude(pod_uid="").exists():
        raise NotAdoptableError("its attempt has other pods")
    Seat.objects.filter(placement__attempt=attempt).delete()
    placements.delete()
    return attempt


def _begun(
    job: Job, cluster: Cluster, number: int, nodes: Mapping[str, Node], now: datetime
) -> Attempt:
    if job.phase == Phase.HELD:
        transition_job(job, Phase.PENDING, actor=CLUSTER, now=now)
    if job.phase != Phase.PENDING or number <= job.attempt_number:
        raise NotAdoptableError(f"its job is {job.phase}, attempt {job.attempt_number}")
    flavors = {node.flavor for node in nodes.values() if node.flavor is not None}
    job.attempt_number = number - 1
    return begin_attempt(
        job,
        cluster=cluster,
        flavor=next(iter(flavors)) if len(flavors) == 1 else None,
        asked_level="",
        achieved_level="",
        now=now,
    )


def _place(
    attempt: Attempt,
    pods: Sequence[FoundPod],
    roles: Mapping[str, JobRole],
    nodes: Mapping[str, Node],
) -> None:
    made = Placement.objects.bulk_create(
        [_placement(attempt, pod, roles[pod.role], nodes[pod.node]) for pod in pods],
        batch_size=500,
    )
    taken: dict[int, set[int]] = defaultdict(set)
    held = Seat.objects.filter(node__in=[node.pk for node in nodes.values()])
    for node_id, index in held.values_list("node_id", "index"):
        taken[node_id].add(index)
    seats: list[Seat] = []
    for pod, placement in zip(pods, made, strict=True):
        if pod.holds:
            seats += _seats(nodes[pod.node], placement, taken[nodes[pod.node].pk])
    Seat.objects.bulk_create(seats, batch_size=500)


def _placement(attempt: Attempt, pod: FoundPod, role: JobRole, node: Node) -> Placement:
    return Placement(
        attempt=attempt,
        role=role,
        replica=pod.replica,
        rank=pod.rank,
        node=pod.node,
        gpus=role.gpus_per_replica,
        cpu_millis=role.cpu_millis_per_replica,
        memory_mib=role.memory_mib_per_replica,
        domains=node.domains,
        try_number=pod.try_number,
        pod_name=pod.name,
        pod_uid=pod.uid,
        created_at=pod.created_at,
    )


def _seats(node: Node, placement: Placement, taken: set[int]) -> list[Seat]:
    free = [index for index in range(node.gpus_capacity) if index not in taken][: placement.gpus]
    if len(free) < placement.gpus:
        raise NotAdoptableError(f"its GPUs on {node.name} are given to others")
    taken.update(free)
    return [Seat(node=node, index=index, placement=placement) for index in free]
