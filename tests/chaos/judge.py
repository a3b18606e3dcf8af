"""What must hold in and after every run. Asks the simulator what there is, and the rows what they say of it."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.common.models import Event
from queues.lifecycle import (
    ACTIVE_PHASES,
    INFRASTRUCTURE_BUDGET,
    INFRASTRUCTURE_ENDS,
    OWN_ENDS,
    EndedBy,
)
from queues.models import Attempt, Job, Placement
from scheduler.models import ClusterState, ForeignPod, Seat
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.store.resources import NODES, PODS, SECRETS, SERVICES
from scheduler.simcluster.store.store import Change
from tests.chaos.hospital import health_of_nodes
from tests.chaos.plot import JobPlan
from tests.e2e.witness import Sighting, gpus_given_twice, sighting_of

GPUS_OF_A_NODE = 8
PARTIAL_SECONDS = 30.0
WINDING_DOWN_SECONDS = 60.0
MOVES_ON_SECONDS = 60.0
# Reasons that say "no room": wrong where the simulator has room, once all is calm.
_NO_ROOM = {"waiting_for_nodes", "unhealthy_nodes", "cluster_unreachable", "not_yet_considered"}


@dataclass(slots=True)
class Witness:
    """Every state of every pod that Muster made, as the simulator had it."""

    sim: SimCluster
    sightings: list[Sighting] = field(default_factory=list)

    def attach(self) -> None:
        """From now on."""
        self.sim.world.store.listen(PODS, self._note)

    def _note(self, change: Change) -> None:
        seen = sighting_of({"type": change.type, "object": change.now.body}, self.sim.clock.now())
        if seen.job:
            self.sightings.append(seen)

    def unfinished(self) -> list[str]:
        """Names of our pods that have not ended."""
        pods = self.sim.world.store.collection(PODS).objects.values()
        return sorted(
            item.body["metadata"]["name"]
            for item in pods
            if "muster.dev/job" in (item.body["metadata"].get("labels") or {})
            and item.body["status"].get("phase") not in ("Succeeded", "Failed")
        )

    def busy_nodes(self) -> list[str]:
        """Nodes on which a pod of ours runs."""
        pods = self.sim.world.store.collection(PODS).objects.values()
        seen = [sighting_of({"type": "ADDED", "object": item.body}, 0.0) for item in pods]
        return sorted({s.node for s in seen if s.job and s.holds_gpus and s.phase == "Running"})

    def live(self) -> set[str]:
        """Uids of our pods that are bound, have not ended and are not asked to."""
        return {uid for uid, (_key, bound) in self._not_ending().items() if bound}

    def claimed(self) -> Counter[tuple[str, str]]:
        """By job and attempt: how many of its pods have not ended and are not asked to."""
        return Counter(key for key, _bound in self._not_ending().values())

    def _not_ending(self) -> dict[str, tuple[tuple[str, str], bool]]:
        found = {}
        for item in self.sim.world.store.collection(PODS).objects.values():
            seen = sighting_of({"type": "ADDED", "object": item.body}, 0.0)
            if seen.job and not seen.terminating and seen.phase not in ("Succeeded", "Failed"):
                found[seen.uid] = ((seen.job, seen.attempt), bool(seen.node))
        return found

    def free_gpus(self) -> Counter[str]:
        """By node: what a new pod could have, on nodes that are ready and open."""
        free: Counter[str] = Counter()
        for item in self.sim.world.store.collection(NODES).objects.values():
            spec, status = item.body.get("spec") or {}, item.body["status"]
            ready = any(
                c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"]
            )
            if ready and not spec.get("unschedulable") and not spec.get("taints"):
                free[item.key[1]] = int(status["allocatable"].get("nvidia.com/gpu", 0))
        for item in self.sim.world.store.collection(PODS).objects.values():
            seen = sighting_of({"type": "ADDED", "object": item.body}, 0.0)
            if seen.holds_gpus and seen.node in free:
                free[seen.node] -= seen.gpus
        return free


def gpus_twice(sightings: list[Sighting]) -> list[str]:
    """Moments at which our pods held more of a node than it has."""
    nodes = {seen.node for seen in sightings}
    return gpus_given_twice(sightings, dict.fromkeys(nodes, GPUS_OF_A_NODE))


@dataclass(slots=True)
class _Gang:
    pods: dict[str, Sighting] = field(default_factory=dict)
    partial_since: float | None = None
    winds_down: bool = False


def gangs_in_part(
    sightings: list[Sighting], least: dict[str, int], calm_from: float, until: float
) -> list[str]:
    """Attempts that held a part of their GPUs for longer than is allowed, faults not counted: while the API
    or a node is away nothing can be rolled back, so the clock of a gang starts when all is calm."""
    found: list[str] = []
    gangs: dict[tuple[str, str], _Gang] = defaultdict(_Gang)

    def close(key: tuple[str, str], gang: _Gang, at: float) -> None:
        if gang.partial_since is None:
            return
        allowed = WINDING_DOWN_SECONDS if gang.winds_down else PARTIAL_SECONDS
        lasted = at - max(gang.partial_since, calm_from)
        if lasted > allowed:
            bound = sorted(pod.name for pod in gang.pods.values() if pod.holds_gpus)
            found.append(f"gang in part: {bound} alone for {lasted:.0f} s of calm")

    for seen in sightings:
        key = (seen.job, seen.attempt)
        gang = gangs[key]
        gang.pods[seen.uid] = seen
        loses_one = bool(seen.node) and (not seen.holds_gpus or seen.terminating)
        if loses_one and not gang.winds_down:
            close(key, gang, seen.at)
            gang.winds_down, gang.partial_since = True, None
        partial = 0 < sum(pod.holds_gpus for pod in gang.pods.values()) < least.get(seen.job, 1)
        if partial and gang.partial_since is None:
            gang.partial_since = seen.at
        elif not partial:
            close(key, gang, seen.at)
            gang.partial_since = None
    for key, gang in gangs.items():
        close(key, gang, until)
    return found


def standing_still(witness: Witness) -> list[str]:
    """Jobs that are told that there is no room while the simulator has room for them."""
    free = witness.free_gpus()
    # Closed to new pods until a person or a burn-in says otherwise; a suspect takes what needs one node alone.
    states = {name: state for name, state in health_of_nodes().items() if state != "healthy"}
    found = []
    for job in Job.objects.filter(phase="pending", reason_code__in=_NO_ROOM).order_by("id"):
        roles = list(job.roles.all())
        needed = sum(role.min_replicas for role in roles)
        each = max(role.gpus_per_replica for role in roles)
        rooms = {node: gpus // each for node, gpus in free.items()}
        alone = [n for node, n in rooms.items() if states.get(node, "suspect") == "suspect"]
        together = sum(room for node, room in rooms.items() if node not in states)
        if together >= needed or max(alone, default=0) >= needed:
            found.append(
                f"{job.name} waits ({job.reason_code}) with its {needed} replicas, "
                f"yet there is room: {dict(free)}, not healthy: {states}"
            )
    unreachable = ClusterState.objects.exclude(watch="live").values_list("watch", "watch_error")
    found += [f"the cluster is {watch}: {problem}" for watch, problem in unreachable]
    return found


def wrong_now(witness: Witness) -> list[str]:
    """What must not be a minute after the last fault: work that stands still, rows that are not so, orphans."""
    return standing_still(witness) + untrue_rows() + orphans(witness) + runs_only_in_rows(witness)


def orphans(witness: Witness) -> list[str]:
    """Pods that live on though their attempt has ended, or never was."""
    rows = Attempt.objects.filter(ended_at=None).values_list("job_id", "number")
    is_open = {(str(job), str(number)) for job, number in rows}
    return [
        f"{pods} pods of attempt {key[1]} of {key[0]} have nobody"
        for key, pods in sorted(witness.claimed().items())
        if key not in is_open
    ]


def runs_only_in_rows(witness: Witness) -> list[str]:
    """Jobs that are said to run, one of whose pods is not there."""
    live = witness.live()
    rows = Placement.objects.filter(
        attempt__ended_at=None, attempt__job__phase="running", released_at=None, ended_at=None
    )
    named = rows.values_list("attempt__job__name", "pod_name", "pod_uid")
    return [
        f"{job} is running, but {pod} is not there" for job, pod, uid in named if uid not in live
    ]


def under_minimum() -> list[str]:
    """Attempts that were placed with less than their job can do with."""
    found = []
    for attempt in Attempt.objects.select_related("job").order_by("pk"):
        least = sum(role.min_replicas for role in attempt.job.roles.all())
        placed = attempt.placements.count()
        if placed < least:
            found.append(f"{attempt.job.name} #{attempt.number}: {placed} placed, not {least}")
    return found


def wrong_ends(plans: list[JobPlan], cancelled: set[int], own_hits: Mapping[str, int]) -> list[str]:
    """Jobs that ended otherwise than they should, or not at all.

    own_hits: by job, how often an XID that is the program's own fault ended one of its pods.
    """
    found = []
    for number, plan in enumerate(plans):
        job = Job.objects.filter(external_id=f"chaos-{number}").first()
        if job is None:
            found.append(f"job {number} was lost")
        else:
            hits = own_hits.get(job.pk, 0)
            found += _wrong_end(job, plan, hits, may_be_cancelled=number in cancelled)
    return found


def _wrong_end(job: Job, plan: JobPlan, own_hits: int, *, may_be_cancelled: bool) -> list[str]:
    told = f"{job.name} {job.phase} {job.outcome or '-'} ({job.message!r}, {job.reason_code})"
    if job.phase != "finished":
        return [f"not finished: {told}"]
    if may_be_cancelled and job.outcome == "cancelled":
        return []
    ends = list(job.attempts.order_by("number").values_list("ended_by", "message"))
    faults = sum(ended_by in INFRASTRUCTURE_ENDS for ended_by, _ in ends)
    if job.outcome == "node_failure" and faults > INFRASTRUCTURE_BUDGET:
        return []
    burnt = sum(ended_by in OWN_ENDS for ended_by, _ in ends)
    if own_hits and burnt > own_hits + plan.attempts_failed:
        return [f"{burnt} failures of its own, for {own_hits} faults of its own: {told}: {ends}"]
    if job.outcome == "failed" and own_hits:
        return []
    if job.outcome != plan.outcome:
        return [f"wrong outcome, not {plan.outcome}: {told}: {ends}"]
    failed = sum(ended_by == EndedBy.FAILED for ended_by, _ in ends)
    if job.restarts_used > min(failed, job.max_restarts):
        return [f"{job.restarts_used} restarts used for {failed} failures: {told}: {ends}"]
    if failed != plan.attempts_failed:
        return [f"{failed} failed attempts, not {plan.attempts_failed}: {told}: {ends}"]
    if job.outcome == "failed" and job.exit_code != 5:
        return [f"wrong exit code {job.exit_code}: {told}"]
    return []


def leftovers(witness: Witness) -> list[str]:
    """What is still there though every job has finished."""
    found = [f"orphan pod {name}" for name in witness.unfinished()]
    store = witness.sim.world.store
    for kind in (SERVICES, SECRETS):
        for item in store.collection(kind).objects.values():
            if item.body["metadata"]["name"].startswith("j") and "muster-" in item.key[0]:
                found.append(f"left over: {kind.singular} {item.key[1]}")
    if count := Seat.objects.count():
        found.append(f"{count} seats are still taken")
    if Attempt.objects.filter(ended_at=None).exists():
        found.append("an attempt is still open")
    names = Placement.objects.filter(released_at=None).values_list("pod_name", flat=True)
    found += [f"placement {name} was not released" for name in names]
    strangers = ForeignPod.objects.filter(namespace__startswith="muster-")
    found += [f"unclaimed pod {pod}" for pod in strangers.values_list("name", flat=True)]
    return found


def untrue_rows() -> list[str]:
    """Rows that contradict each other, at any time."""
    found = []
    for job in Job.objects.order_by("id"):
        is_open = job.attempts.filter(ended_at=None).count()
        if is_open != (job.phase in ACTIVE_PHASES):
            found.append(f"{job.name} is {job.phase} with {is_open} open attempts")
    return found


def digest(sim: SimCluster) -> str:
    """What happened, in Kubernetes and in the log, as one number."""
    rows = Event.objects.order_by("seq").values_list(
        "at", "kind", "job", "node", "message", "numbers"
    )
    told = hashlib.sha256(sim.history_digest.encode())
    for row in rows:
        told.update(json.dumps([str(part) for part in row]).encode())
    return told.hexdigest()
