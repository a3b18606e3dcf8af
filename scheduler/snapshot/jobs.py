"""Job rows → waiting and running jobs of `core`. Called by `scheduler.snapshot.warm`.

Rows come as plain tuples: with ten thousand jobs the model objects alone would cost seconds.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import F, Q, QuerySet

from queues.lifecycle import EndedBy, Phase
from queues.models import Attempt, Job, JobDependency, JobRole, Placement
from scheduler.core.inputs import jobs as core_jobs
from scheduler.core.resources import Amount
from scheduler.models import Eviction, Hold
from scheduler.selectors.asks import checkpoint_of, topology_of, version_pair
from scheduler.snapshot.policy import Policy
from scheduler.snapshot.usage import PastUse, read_past

# SQLite allows 32,766 variables in a statement, and PostgreSQL plans shorter lists better.
IDS_PER_QUERY = 1_000
# SQLite takes 32,766 variables in a statement.
MOST_IDS = 20_000

# Jobs that learn of a stop before their pods are told to end, and the stops that they learn of.
NOTICES_READ = frozenset({"poll", "file"})
NOTICED = frozenset({EndedBy.PREEMPTED, EndedBy.MAINTENANCE, EndedBy.RESIZE})


class JobRow(NamedTuple):
    """The columns of a job that the planner reads."""

    id: str
    tenant: str
    queue_id: int
    user: str
    version: int
    submitted_at: datetime
    gpu_model: list[str]
    sharing: str
    min_cuda: str
    node_selector: dict[str, str]
    exclude_nodes: list[str]
    priority: int
    preemptible: bool
    on_preemption: str
    max_runtime_seconds: int | None
    grace_seconds: int
    checkpoint_interval_seconds: int | None
    checkpoint_grace_seconds: int | None
    begin_at: datetime | None
    backoff_until: datetime | None
    refused_message: str
    class_key: str
    reason_code: str
    attempt_number: int
    preemptions: int
    checkpoint_notice: str


_COLUMNS = tuple(
    {"tenant": "tenant__slug", "user": "user__username"}.get(name, name) for name in JobRow._fields
)


class AttemptRow(NamedTuple):
    """The columns of an open attempt that the planner reads."""

    id: int
    job: str
    number: int
    flavor_id: int | None
    placed_at: datetime
    started_at: datetime | None
    stop_cause: str
    stop_requested_at: datetime | None
    stop_grace_seconds: int | None
    last_checkpoint_at: datetime | None


_SEAT_COLUMNS = ("role__name", "replica", "rank", "node", "gpus", "cpu_millis", "memory_mib")
_ATTEMPT_COLUMNS = tuple("job_id" if name == "job" else name for name in AttemptRow._fields)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A placement of an ended attempt that still holds its node's capacity."""

    node: str
    amount: Amount


@dataclass(frozen=True, slots=True)
class Leaving:
    """An open eviction: of which attempt, for which job, if for one, and whether the pods were told."""

    attempt: int
    preemptor: str | None
    signalled: bool


@dataclass(slots=True)
class Jobs:
    """What was read.

    said: what the planner last said of a waiting job, as (class key, reason code). past: what released
    placements have used, whatever became of their jobs. last_seats: where a waiting job sat when it lost a node.
    holds: what is kept for a job. leaving: open evictions by the job that is to leave, those whose attempt has
    ended meanwhile too.
    """

    waiting: dict[str, core_jobs.WaitingJob] = field(default_factory=dict)
    running: dict[str, core_jobs.RunningJob] = field(default_factory=dict)
    leftovers: dict[str, tuple[Leftover, ...]] = field(default_factory=dict)
    said: dict[str, tuple[str, str]] = field(default_factory=dict)
    past: dict[str, PastUse] = field(default_factory=dict)
    last_seats: dict[str, tuple[core_jobs.Seat, ...]] = field(default_factory=dict)
    holds: dict[str, core_jobs.Hold] = field(default_factory=dict)
    leaving: dict[str, tuple[Leaving, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class JobReader:
    """Reads jobs of one cluster under one policy. `asks` makes equal asks the same object."""

    cluster_id: int
    policy: Policy
    asks: dict[core_jobs.Ask, core_jobs.Ask]

    def read(self, ids: Collection[str] | None = None) -> Jobs:
        """All waiting and running jobs, or those of `ids` that wait or run."""
        found = Jobs()
        if ids is None:
            self._read_waiting(found, Job.objects.all())
            self._read_leaving(found, Eviction.objects.all())
            self._read_held_capacity(found, Placement.objects.all(), Attempt.objects.all())
            self._read_holds(found, Hold.objects.all())
            found.past = read_past(self.cluster_id)
            return found
        listed = sorted(ids)
        for at in range(0, len(listed), IDS_PER_QUERY):
            part = listed[at : at + IDS_PER_QUERY]
            self._read_waiting(found, Job.objects.filter(pk__in=part))
            self._read_leaving(found, Eviction.objects.filter(attempt__job__in=part))
            self._read_held_capacity(
                found,
                _placements_of(part),
                Attempt.objects.filter(job_id__in=part),
            )
            self._read_holds(found, Hold.objects.filter(job__in=part))
            found.past |= read_past(self.cluster_id, part)
        return found

    def _read_waiting(self, found: Jobs, jobs: QuerySet[Job]) -> None:
        jobs = jobs.filter(phase=Phase.PENDING, queue__cluster_id=self.cluster_id)
        rows = [JobRow._make(row) for row in jobs.values_list(*_COLUMNS)]
        if not rows:
            return
        roles = _roles(JobRole.objects.filter(job__in=jobs))
        unmet = _unmet_dependencies(jobs)
        for row in rows:
            found.said[row.id] = (row.class_key, row.reason_code)
            found.waiting[row.id] = core_jobs.WaitingJob(
                id=row.id,
                ask=self._ask(row, roles[row.id]),
                submitted_at=row.submitted_at.timestamp(),
                begin_at=_seconds(row.begin_at),
                depends_on=tuple(unmet.get(row.id, ())),
                backoff_until=None if row.refused_message else _seconds(row.backoff_until),
                refused_until=_seconds(row.backoff_until) if row.refused_message else None,
                refused_message=row.refused_message,
                preemptions=row.preemptions,
                version=row.version,
            )
        if any(row.attempt_number for row in rows):
            self._read_last_seats(found, jobs.filter(attempt_number__gt=0))

    def _read_last_seats(self, found: Jobs, jobs: QuerySet[Job]) -> None:
        """Where each job sat whose last attempt lost a node; none where its ask has changed since."""
        rows = Placement.objects.filter(
            attempt__job__in=jobs,
            attempt__number=F("attempt__job__attempt_number"),
            attempt__ended_by=EndedBy.NODE_FAILURE,
            attempt__cluster_id=self.cluster_id,
        ).order_by("attempt__job_id", "rank")
        seats: dict[str, list[core_jobs.Seat]] = defaultdict(list)
        for job, *seat in rows.values_list("attempt__job_id", *_SEAT_COLUMNS):
            seats[job].append(core_jobs.Seat(*seat))
        for job, sat in seats.items():
            if _still_asks(found.waiting[job].ask, sat):
                found.last_seats[job] = tuple(sat)

    def _read_holds(self, found: Jobs, holds: QuerySet[Hold]) -> None:
        rows = holds.filter(cluster_id=self.cluster_id)
        for job, flavor, nodes, expires_at in rows.values_list(
            "job_id", "flavor__name", "nodes", "expires_at"
        ):
            kept = tuple((name, gpus, cpu, memory, pods) for name, gpus, cpu, memory, pods in nodes)
            found.holds[job] = core_jobs.Hold(job, flavor, kept, expires_at.timestamp())

    def _read_leaving(self, found: Jobs, evictions: QuerySet[Eviction]) -> None:
        rows = evictions.filter(Eviction.OPEN, cluster_id=self.cluster_id).order_by("pk")
        for job, attempt, preemptor, signalled_at in rows.values_list(
            "attempt__job_id", "attempt_id", "preemptor_id", "signalled_at"
        ):
            each = Leaving(attempt, preemptor, signalled_at is not None)
            found.leaving[job] = (*found.leaving.get(job, ()), each)

    def _read_held_capacity(
        self, found: Jobs, placements: QuerySet[Placement], attempts: QuerySet[Attempt]
    ) -> None:
        attempts = attempts.filter(cluster_id=self.cluster_id, ended_at__isnull=True)
        rows = [AttemptRow._make(row) for row in attempts.values_list(*_ATTEMPT_COLUMNS)]
        seats = self._read_seats(found, placements)
        if not rows:
            return
        jobs = Job.objects.filter(attempts__in=attempts)
        asked = {row[0]: JobRow._make(row) for row in jobs.values_list(*_COLUMNS)}
        roles = _roles(JobRole.objects.filter(job__attempts__in=attempts))
        asks = {row.id: self._ask(asked[row.job], roles[row.job]) for row in rows}
        smaller = {row.id for row in rows if _may_grow(asks[row.id], len(seats.get(row.id, ())))}
        ended = _with_ended_replicas(smaller)
        for row in rows:
            found.running[row.job] = self._running(
                row,
                asked[row.job],
                asks[row.id],
                tuple(seats.get(row.id, ())),
                _of_attempt(row.id, found.leaving.get(row.job, ())),
                replicas_ended=row.id in ended,
            )

    def _read_seats(
        self, found: Jobs, placements: QuerySet[Placement]
    ) -> dict[int, list[core_jobs.Seat]]:
        """Seats by open attempt; what ended attempts still hold goes to `found.leftovers`."""
        seats: dict[int, list[core_jobs.Seat]] = defaultdict(list)
        left: dict[str, list[Leftover]] = defaultdict(list)
        rows = placements.filter(
            released_at__isnull=True, attempt__cluster_id=self.cluster_id
        ).order_by("attempt_id", "rank")
        for attempt, ended, job, role, replica, rank, node, gpus, cpu, memory in rows.values_list(
            "attempt_id", "attempt__ended_at", "attempt__job_id", *_SEAT_COLUMNS
        ):
            if ended is None:
                seats[attempt].append(core_jobs.Seat(role, replica, rank, node, gpus, cpu, memory))
            else:
                left[job].append(Leftover(node, Amount(gpus, cpu, memory, pods=1)))
        found.leftovers.update({job: tuple(held) for job, held in left.items()})
        return seats

    def _running(
        self,
        row: AttemptRow,
        job: JobRow,
        ask: core_jobs.Ask,
        seats: tuple[core_jobs.Seat, ...],
        leaving: Leaving | None,
        *,
        replicas_ended: bool,
    ) -> core_jobs.RunningJob:
        stopping = bool(row.stop_cause)
        flavor = None if row.flavor_id is None else self.policy.flavor_names.get(row.flavor_id)
        return core_jobs.RunningJob(
            id=row.job,
            attempt=row.number,
            ask=ask,
            flavor=flavor or "",
            seats=seats,
            placed_at=row.placed_at.timestamp(),
            started_at=_seconds(row.started_at),
            stopping=stopping,
            stops_by=_stops_by(row, job) if stopping else None,
            last_checkpoint_at=_seconds(row.last_checkpoint_at),
            preemptions=job.preemptions,
            evicted_for=leaving.preemptor if leaving else None,
            eviction_signalled=leaving.signalled if leaving else False,
            version=job.version,
            replicas_ended=replicas_ended,
        )

    def _ask(self, row: JobRow, roles: tuple[core_jobs.Role, ...]) -> core_jobs.Ask:
        queue = self.policy.allowed.get(row.queue_id)
        ask = core_jobs.Ask(
            tenant=row.tenant,
            # A running job may have been moved to a queue of another cluster; it still holds seats here.
            queue=queue[0] if queue else "",
            user=row.user,
            flavors=self.policy.flavors_of(row.queue_id, row.gpu_model, row.sharing)
            if queue
            else (),
            roles=roles,
            priority=row.priority,
            preemptible=row.preemptible,
            max_runtime_seconds=row.max_runtime_seconds,
            grace_seconds=float(row.grace_seconds),
            checkpoint=checkpoint_of(row.checkpoint_interval_seconds, row.checkpoint_grace_seconds),
            on_preemption=core_jobs.OnPreemption(row.on_preemption),
            node_selector=tuple(sorted(row.node_selector.items())),
            exclude_nodes=frozenset(row.exclude_nodes),
            min_cuda=version_pair(row.min_cuda),
        )
        return self.asks.setdefault(ask, ask)


def _roles(rows: QuerySet[JobRole]) -> dict[str, tuple[core_jobs.Role, ...]]:
    roles: dict[str, list[core_jobs.Role]] = defaultdict(list)
    for row in rows.order_by("job_id", "position").values_list(
        "job_id",
        "name",
        "replicas",
        "min_replicas",
        "gpus_per_replica",
        "cpu_millis_per_replica",
        "memory_mib_per_replica",
        "topology_level",
        "topology_mode",
        "topology_preferred_level",
        "slice_replicas",
        "slice_level",
        "tensor_parallel",
    ):
        roles[row[0]].append(_role(*row[1:]))
    return {job: tuple(found) for job, found in roles.items()}


def _role(name: str, replicas: int, min_replicas: int, *rest: Any) -> core_jobs.Role:
    gpus, cpu, memory, level, mode, preferred, cut_replicas, cut_level, tensor_parallel = rest
    return core_jobs.Role(
        name=name,
        replicas=replicas,
        per_replica=Amount(gpus, cpu, memory, pods=1),
        min_replicas=min_replicas,
        topology=topology_of(level, mode, preferred, (cut_replicas, cut_level)),
        tensor_parallel=tensor_parallel,
    )


def _unmet_dependencies(jobs: QuerySet[Job]) -> dict[str, list[str]]:
    met = Q(on__phase=Phase.FINISHED) & (Q(condition="finished") | Q(on__outcome="succeeded"))
    unmet: dict[str, list[str]] = defaultdict(list)
    rows = JobDependency.objects.filter(job__in=jobs).exclude(met).order_by("job_id", "on_id")
    for job, on in rows.values_list("job_id", "on_id"):
        unmet[job].append(on)
    return unmet


def _placements_of(jobs: Sequence[str]) -> QuerySet[Placement]:
    """By their attempts' ids: a join that is filtered by job alone takes PostgreSQL a second while a burst has
    outrun its statistics."""
    attempts = list(Attempt.objects.filter(job_id__in=jobs).values_list("pk", flat=True))
    if len(attempts) > MOST_IDS:
        return Placement.objects.filter(attempt__job_id__in=jobs)
    return Placement.objects.filter(attempt__in=attempts)


def _may_grow(ask: core_jobs.Ask, seats: int) -> bool:
    role = ask.roles[0]
    return len(ask.roles) == 1 and role.least_replicas <= seats < role.replicas


def _with_ended_replicas(attempts: set[int]) -> set[int]:
    """Those of the attempts of which a replica has ended. Asked only for what may grow: they are few."""
    found: set[int] = set()
    ids = sorted(attempts)
    for start in range(0, len(ids), IDS_PER_QUERY):
        part = ids[start : start + IDS_PER_QUERY]
        rows = Placement.objects.filter(attempt__in=part, released_at__isnull=False)
        found.update(rows.order_by().values_list("attempt_id", flat=True))
    return found


def _of_attempt(attempt: int, leaving: Collection[Leaving]) -> Leaving | None:
    return next((each for each in leaving if each.attempt == attempt), None)


def _stops_by(row: AttemptRow, job: JobRow) -> float | None:
    """When the pods of a stopping attempt should be gone: after its grace, and the time to save after a notice."""
    if row.stop_requested_at is None:
        return None
    grace = row.stop_grace_seconds or 0
    if job.checkpoint_notice in NOTICES_READ and row.stop_cause in NOTICED:
        grace += job.checkpoint_grace_seconds or 0
    return row.stop_requested_at.timestamp() + grace


def _still_asks(ask: core_jobs.Ask, sat: Collection[core_jobs.Seat]) -> bool:
    """Whether replicas that sat there are what the job asks for now."""
    roles = {role.name: role for role in ask.roles}
    return all(
        (role := roles.get(seat.role)) is not None
        and seat.replica < role.replicas
        and (seat.gpus, seat.cpu_millis, seat.memory_mib) == role.per_replica.as_tuple()[:3]
        for seat in sat
    )


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
