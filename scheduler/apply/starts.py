"""One start → an attempt, its placements and its seats: the whole gang in one transaction, or nothing.

Called by `scheduler.apply.plan`. The plan was made from a snapshot; what it rests on is looked at again under
locks: the job is still the one that was read, its nodes still take jobs and have room.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, OperationalError
from django.db.models import Count, Sum
from psycopg.errors import DeadlockDetected

from controlplane.common import log
from controlplane.common.errors import ConflictError
from queues.lifecycle import Phase
from queues.models import Attempt, ClusterMode, Estimate, Flavor, Job, Placement
from queues.services.attempts import begin_attempt
from scheduler.apply.fence import HeldLease, hold
from scheduler.core.inputs.jobs import Seat as PlannedSeat
from scheduler.core.outputs import Start
from scheduler.core.resources import NOTHING, Amount
from scheduler.kube.manifests import AttemptName, pod_name
from scheduler.models import ForeignPod, Node, Seat

# SQLite takes 32,766 variables in a statement; a placement has some twenty columns.
ROWS_PER_INSERT = 1_000


class PlanOutdatedError(Exception):
    """What the start rests on has changed since the snapshot. The next cycle decides anew."""


@dataclass(frozen=True, slots=True)
class _Room:
    """A node under lock: its row, what is taken on it, and which of its seats are."""

    node: Node
    taken: Amount
    seats: frozenset[int]


def commit_start(lease: HeldLease, start: Start, now: datetime) -> Attempt:
    """Begin the attempt with all its placements and seats.

    Raises LeaseLostError, or PlanOutdatedError when the start no longer matches the rows; both leave no trace.
    """
    try:
        with log.writing():
            hold(lease)
            rooms = _lock_rooms(lease.cluster_id, start)
            job = _lock_job(lease.cluster_id, start)
            _check_room(start, rooms)
            attempt = _begin(job, start, now)
            _place(attempt, job, start, rooms)
            Estimate.objects.filter(job=job).delete()
    except ConflictError as error:
        raise PlanOutdatedError(error.detail) from error
    except IntegrityError as error:
        # The unique indexes have the last word: of two who take a seat at once, one ends here.
        raise PlanOutdatedError(f"{start.job}: {error}") from error
    except OperationalError as error:
        if not isinstance(error.__cause__, DeadlockDetected):
            raise
        raise PlanOutdatedError(f"{start.job}: {error}") from error
    return attempt


def _lock_rooms(cluster_id: int, start: Start) -> dict[str, _Room]:
    names = sorted(set(start.nodes))
    nodes = list(
        Node.objects.select_for_update(of=("self",))
        .filter(cluster_id=cluster_id, name__in=names, gone_at__isnull=True)
        .order_by("pk")
    )
    placed = _taken_by_placements(cluster_id, names)
    strange = _taken_by_strangers(cluster_id, names)
    seats: dict[int, set[int]] = defaultdict(set)
    for node_id, index in Seat.objects.filter(node__in=nodes).values_list("node_id", "index"):
        seats[node_id].add(index)
    return {
        node.name: _Room(
            node,
            placed.get(node.name, NOTHING) + strange.get(node.name, NOTHING),
            frozenset(seats[node.pk]),
        )
        for node in nodes
    }


def _taken_by_placements(cluster_id: int, names: list[str]) -> dict[str, Amount]:
    rows = Placement.objects.filter(
        node__in=names, released_at__isnull=True, attempt__cluster_id=cluster_id
    ).order_by()
    return _sums(
        rows.values("node")
        .annotate(g=Sum("gpus"), c=Sum("cpu_millis"), m=Sum("memory_mib"), n=Count("pk"))
        .values_list("node", "g", "c", "m", "n")
    )


def _taken_by_strangers(cluster_id: int, names: list[str]) -> dict[str, Amount]:
    rows = ForeignPod.objects.filter(node__in=names, cluster_id=cluster_id).order_by()
    return _sums(
        rows.values("node")
        .annotate(g=Sum("gpus"), c=Sum("cpu_millis"), m=Sum("memory_mib"), n=Count("pk"))
        .values_list("node", "g", "c", "m", "n")
    )


def _sums(rows: Iterable[tuple[str, int, int, int, int]]) -> dict[str, Amount]:
    return {node: Amount(gpus, cpu, memory, pods) for node, gpus, cpu, memory, pods in rows}


def _lock_job(cluster_id: int, start: Start) -> Job:
    job = (
        Job.objects.select_for_update(of=("self",))
        .select_related("tenant", "queue__cluster")
        .filter(pk=start.job)
        .first()
    )
    if job is None or job.phase != Phase.PENDING or job.version != start.job_version:
        raise PlanOutdatedError(f"{start.job} is no longer the job that was planned")
    cluster = job.queue.cluster
    if cluster.pk != cluster_id or cluster.mode != ClusterMode.SCHEDULE:
        raise PlanOutdatedError(f"{start.job} may not start on cluster {cluster.name} now")
    return job


def _check_room(start: Start, rooms: Mapping[str, _Room]) -> None:
    for name, asked in _asked_by_node(start.seats).items():
        room = rooms.get(name)
        if room is None:
            raise PlanOutdatedError(f"node {name} is gone")
        node = room.node
        if node.out_causes or node.cordon_wanted or not node.managed:
            raise PlanOutdatedError(f"node {name} takes no jobs now")
        needed = room.taken + asked
        offered = Amount(node.gpus_allocatable, node.cpu_millis, node.memory_mib, node.pods)
        if any(n > o for n, o in zip(needed.as_tuple(), offered.as_tuple(), strict=True)):
            raise PlanOutdatedError(f"node {name} has no room for {start.job}")


def _asked_by_node(seats: Iterable[PlannedSeat]) -> dict[str, Amount]:
    asked: dict[str, Amount] = {}
    for seat in seats:
        amount = Amount(seat.gpus, seat.cpu_millis, seat.memory_mib, pods=1)
        asked[seat.node] = asked.get(seat.node, NOTHING) + amount
    return asked


def _begin(job: Job, start: Start, now: datetime) -> Attempt:
    cluster = job.queue.cluster
    flavor = Flavor.objects.filter(cluster=cluster, name=start.flavor).first()
    if flavor is None:
        raise PlanOutdatedError(f"flavor {start.flavor} is gone")
    return begin_attempt(
        job,
        cluster=cluster,
        flavor=flavor,
        asked_level=start.asked_level or "",
        achieved_level=start.achieved_level or "",
        now=now,
    )


def _place(attempt: Attempt, job: Job, start: Start, rooms: Mapping[str, _Room]) -> None:
    roles = {role.name: role for role in job.roles.all()}
    name = AttemptName(job.tenant.slug, job.tenant.namespace, job.pk, job.job8, attempt.number)
    placements = Placement.objects.bulk_create(
        [
            Placement(
                attempt=attempt,
                role=roles[seat.role],
                replica=seat.replica,
                rank=seat.rank,
                node=seat.node,
                gpus=seat.gpus,
                cpu_millis=seat.cpu_millis,
                memory_mib=seat.memory_mib,
                domains=rooms[seat.node].node.domains,
                pod_name=pod_name(name, seat.role, seat.replica, 1),
            )
            for seat in start.seats
        ],
        batch_size=ROWS_PER_INSERT,
    )
    Seat.objects.bulk_create(_seats(placements, rooms), batch_size=ROWS_PER_INSERT)


def _seats(placements: Iterable[Placement], rooms: Mapping[str, _Room]) -> list[Seat]:
    """The lowest free seats of each node."""
    taken = {name: set(room.seats) for name, room in rooms.items()}
    seats = []
    for placement in placements:
        node = rooms[placement.node].node
        free = (n for n in range(node.gpus_capacity) if n not in taken[placement.node])
        for _unit in range(placement.gpus):
            index = next(free, None)
            if index is None:
                raise PlanOutdatedError(f"node {node.name} has no seat left")
            taken[placement.node].add(index)
            seats.append(Seat(node=node, index=index, placement=placement))
    return seats
