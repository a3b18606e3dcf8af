"""Starts → attempts, placements and seats: each gang whole or not at all, many gangs in one transaction.

Called by `scheduler.apply.plan`. The plan was made from a snapshot; what it rests on is looked at again under
locks, start by start: the job is still the one that was read, its nodes still take jobs and have room beside the
starts before it. One that no longer holds is left out alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import IntegrityError, OperationalError, connection
from django.db.models import Count, Sum
from psycopg.errors import DeadlockDetected

from controlplane.common import log
from controlplane.common.errors import ConflictError
from queues.lifecycle import Phase
from queues.models import Attempt, ClusterMode, Flavor, Job, JobRole, Placement
from queues.services.attempts import Beginning, begin_attempts
from scheduler.apply.estimates import note_starts
from scheduler.apply.fence import HeldLease, hold
from scheduler.apply.seats import insert_seats
from scheduler.core.inputs.jobs import Seat as PlannedSeat
from scheduler.core.outputs import Start
from scheduler.core.resources import NOTHING, Amount
from scheduler.kube.manifests import AttemptName, pod_name
from scheduler.models import ForeignPod, HealthState, Hold, Node, Seat

# SQLite takes 32,766 variables in a statement; a placement has some twenty columns.
ROWS_PER_INSERT = 1_000
# Rows of one transaction; a larger gang has one of its own. On SQLite it stays below 200 ms so.
ROWS_PER_TRANSACTION = 5_000
ROWS_ON_SQLITE = 1_200
# Besides placements and seats a start writes an attempt and two events.
ROWS_OF_A_START = 3


# What is read of the rows that are locked: a node's labels alone are more than all of this.
_OF_JOBS = (
    "tenant",
    "queue",
    "job8",
    "phase",
    "outcome",
    "version",
    "message",
    "exit_code",
    "attempt_number",
)
_OF_NODES = (
    "name",
    "domains",
    "managed",
    "out_causes",
    "cordon_wanted",
    "health",
    "health_closed",
    "gpus_allocatable",
    "gpus_capacity",
    "cpu_millis",
    "memory_mib",
    "pods",
)


class PlanOutdatedError(Exception):
    """What the start rests on has changed since the snapshot. The next cycle decides anew."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What some starts became: attempts begun, and (job, why) of the starts that no longer held."""

    attempts: tuple[Attempt, ...] = ()
    outdated: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Room:
    """A node under lock: its row, what is taken on it, and which of its seats are."""

    node: Node
    taken: Amount
    seats: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Ground:
    """What starts are checked against, all under lock. roles by job and name, flavors by name."""

    rooms: Mapping[str, _Room]
    jobs: Mapping[str, Job]
    roles: Mapping[str, Mapping[str, JobRole]]
    flavors: Mapping[str, Flavor]


def commit_start(lease: HeldLease, start: Start, now: datetime) -> Attempt:
    """One start alone. Raises LeaseLostError, or PlanOutdatedError when it no longer matches the rows."""
    found = commit_starts(lease, [start], now)
    if found.outdated:
        raise PlanOutdatedError(found.outdated[0][1])
    return found.attempts[0]


def commit_starts(lease: HeldLease, starts: Sequence[Start], now: datetime) -> Committed:
    """Begin the attempts of `starts` with all their placements and seats, in one transaction.

    A start that no longer matches the rows is left out and leaves no trace. Raises LeaseLostError.
    """
    try:
        return _commit(lease, starts, now)
    except (ConflictError, IntegrityError, OperationalError) as error:
        # The unique indexes have the last word: of two who take a seat at once, one ends here.
        if isinstance(error, OperationalError) and not isinstance(
            error.__cause__, DeadlockDetected
        ):
            raise
        if len(starts) == 1:
            return Committed(outdated=((starts[0].job, f"{starts[0].job}: {error}"),))
    # One of them spoiled it for all: each alone, so that only that one is left out.
    each = [commit_starts(lease, [start], now) for start in starts]
    return Committed(
        tuple(attempt for found in each for attempt in found.attempts),
        tuple(out for found in each for out in found.outdated),
    )


def batches_of(starts: Iterable[Start]) -> Iterator[list[Start]]:
    """The starts in order, in groups that one short transaction holds."""
    most = ROWS_ON_SQLITE if connection.vendor == "sqlite" else ROWS_PER_TRANSACTION
    batch: list[Start] = []
    rows = 0
    for start in starts:
        needed = ROWS_OF_A_START + start.replicas + start.gpus
        if batch and rows + needed > most:
            yield batch
            batch, rows = [], 0
        batch.append(start)
        rows += needed
    if batch:
        yield batch


def _commit(lease: HeldLease, starts: Sequence[Start], now: datetime) -> Committed:
    outdated: list[tuple[str, str]] = []
    with log.writing():
        hold(lease)
        ground = _lock_ground(lease.cluster_id, starts)
        held: list[tuple[Start, list[int]]] = []
        for start in starts:
            try:
                held.append((start, _take(ground, start, lease.cluster_id)))
            except PlanOutdatedError as error:
                outdated.append((start.job, str(error)))
        attempts = _write(ground, held, now)
    return Committed(tuple(attempts), tuple(outdated))


# --- what is there, under lock ---


def _lock_ground(cluster_id: int, starts: Sequence[Start]) -> _Ground:
    """A fixed number of queries. Nodes are locked before jobs, each in the order of their keys."""
    names = sorted({name for start in starts for name in start.nodes})
    rooms = _lock_rooms(cluster_id, names)
    ids = [start.job for start in starts]
    jobs = (
        Job.objects.select_for_update(of=("self",))
        .only(*_OF_JOBS)
        .prefetch_related("tenant", "queue__cluster")
        .filter(pk__in=ids)
        .order_by("pk")
    )
    roles: dict[str, dict[str, JobRole]] = defaultdict(dict)
    for role in JobRole.objects.filter(job__in=ids):
        roles[role.job_id][role.name] = role
    return _Ground(
        rooms=rooms,
        jobs={job.pk: job for job in jobs},
        roles=roles,
        flavors={flavor.name: flavor for flavor in Flavor.objects.filter(cluster_id=cluster_id)},
    )


def _lock_rooms(cluster_id: int, names: list[str]) -> dict[str, _Room]:
    nodes = Node.objects.select_for_update(of=("self",)).only(*_OF_NODES)
    open_nodes = nodes.filter(cluster_id=cluster_id, name__in=names, gone_at__isnull=True)
    rows = list(open_nodes.order_by("pk"))
    placed = _taken_by_placements(cluster_id, names)
    strange = _taken_by_strangers(cluster_id, names)
    rooms = {
        node.name: _Room(node, placed.get(node.name, NOTHING) + strange.get(node.name, NOTHING))
        for node in rows
    }
    by_id = {node.pk: rooms[node.name] for node in rows}
    for node_id, index in Seat.objects.filter(node__in=by_id).values_list("node_id", "index"):
        by_id[node_id].seats.add(index)
    return rooms


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


# --- one start against it ---


def _take(ground: _Ground, start: Start, cluster_id: int) -> list[int]:
    """Take the start's room, after all checks: the seats, in order of `start.seats`. Raises PlanOutdatedError."""
    _check_job(ground, start, cluster_id)
    asked = _asked_by_node(start.seats)
    _check_room(start, asked, ground.rooms)
    taken = _free_seats(start, ground.rooms)
    for name, amount in asked.items():
        ground.rooms[name].taken = ground.rooms[name].taken + amount
    at = 0
    for seat in start.seats:
        ground.rooms[seat.node].seats.update(taken[at : at + seat.gpus])
        at += seat.gpus
    return taken


def _check_job(ground: _Ground, start: Start, cluster_id: int) -> None:
    job = ground.jobs.get(start.job)
    if job is None or job.phase != Phase.PENDING or job.version != start.job_version:
        raise PlanOutdatedError(f"{start.job} is no longer the job that was planned")
    cluster = job.queue.cluster
    if cluster.pk != cluster_id or cluster.mode != ClusterMode.SCHEDULE:
        raise PlanOutdatedError(f"{start.job} may not start on cluster {cluster.name} now")
    if start.flavor not in ground.flavors:
        raise PlanOutdatedError(f"flavor {start.flavor} is gone")


def _check_room(start: Start, asked: Mapping[str, Amount], rooms: Mapping[str, _Room]) -> None:
    for name, amount in asked.items():
        room = rooms.get(name)
        if room is None:
            raise PlanOutdatedError(f"node {name} is gone")
        node = room.node
        if node.out_causes or node.cordon_wanted or not node.managed or _is_unwell(node):
            raise PlanOutdatedError(f"node {name} takes no jobs now")
        needed = room.taken + amount
        offered = Amount(node.gpus_allocatable, node.cpu_millis, node.memory_mib, node.pods)
        if any(n > o for n, o in zip(needed.as_tuple(), offered.as_tuple(), strict=True)):
            raise PlanOutdatedError(f"node {name} has no room for {start.job}")


def _is_unwell(node: Node) -> bool:
    """Suspects take jobs of one node; the planner saw to that."""
    return node.health_closed or node.health not in (HealthState.HEALTHY, HealthState.SUSPECT)


def _asked_by_node(seats: Iterable[PlannedSeat]) -> dict[str, Amount]:
    asked: dict[str, Amount] = {}
    for seat in seats:
        amount = Amount(seat.gpus, seat.cpu_millis, seat.memory_mib, pods=1)
        asked[seat.node] = asked.get(seat.node, NOTHING) + amount
    return asked


def _free_seats(start: Start, rooms: Mapping[str, _Room]) -> list[int]:
    """The lowest free seats of each node, for each replica as many as it has GPUs."""
    free: dict[str, Iterator[int]] = {}
    found: list[int] = []
    for seat in start.seats:
        room = rooms[seat.node]
        if seat.node not in free:
            taken, capacity = frozenset(room.seats), room.node.gpus_capacity
            free[seat.node] = iter([n for n in range(capacity) if n not in taken])
        for _unit in range(seat.gpus):
            index = next(free[seat.node], None)
            if index is None:
                raise PlanOutdatedError(f"node {room.node.name} has no seat left")
            found.append(index)
    return found


# --- rows ---


def _write(
    ground: _Ground, held: Sequence[tuple[Start, list[int]]], now: datetime
) -> list[Attempt]:
    if not held:
        return []
    starts = [start for start, _seats in held]
    attempts = begin_attempts(
        [
            Beginning(
                ground.jobs[start.job],
                ground.flavors[start.flavor],
                start.asked_level or "",
                start.achieved_level or "",
            )
            for start in starts
        ],
        cluster=ground.jobs[starts[0].job].queue.cluster,
        now=now,
    )
    placements = Placement.objects.bulk_create(
        [
            placement
            for attempt, start in zip(attempts, starts, strict=True)
            for placement in _placements(ground, attempt, start)
        ],
        batch_size=ROWS_PER_INSERT,
    )
    indices = (index for _start, seats in held for index in seats)
    insert_seats(
        [
            (ground.rooms[placement.node].node.pk, next(indices), placement.pk)
            for placement in placements
            for _unit in range(placement.gpus)
        ]
    )
    ids = [start.job for start in starts]
    note_starts(ids, now)
    # What was freed for them has served.
    Hold.objects.filter(job__in=ids).delete()
    return attempts


def _placements(ground: _Ground, attempt: Attempt, start: Start) -> Iterator[Placement]:
    job = ground.jobs[start.job]
    name = AttemptName(job.tenant.slug, job.tenant.namespace, job.pk, job.job8, attempt.number)
    for seat in start.seats:
        yield Placement(
            attempt=attempt,
            role=ground.roles[job.pk][seat.role],
            replica=seat.replica,
            rank=seat.rank,
            node=seat.node,
            gpus=seat.gpus,
            cpu_millis=seat.cpu_millis,
            memory_mib=seat.memory_mib,
            domains=ground.rooms[seat.node].node.domains,
            pod_name=pod_name(name, seat.role, seat.replica, 1),
        )
