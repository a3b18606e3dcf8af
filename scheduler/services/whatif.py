"""Questions to the what-if process, and its answers as one reader may see them. Called by API and pages.

Every function raises UnavailableError ("no verdict now") when the process is away or does not answer in time.
Calls block for up to WHATIF_TIMEOUT_SECONDS: make them from a synchronous view.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import httpx
from django.conf import settings
from django.db.models import Q
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from controlplane.common.errors import ConflictError, ErrorCollector, UnavailableError
from queues import reasons
from queues.contract.quotas import Quotas, read_quotas
from queues.lifecycle import Outcome, Phase
from queues.models import Cluster, Flavor, Job, Queue
from queues.selectors.jobs import jobs_visible_to
from queues.selectors.quotas import current_quotas, known_names
from queues.selectors.waiting import Said
from queues.services.planner import Never
from queues.services.quotas import QuotaDraft
from queues.specs import JobSpec
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.selectors.asks import ask_of, waiting_to_json
from tenants.access import Actor
from tenants.models import Tenant, User

Json = dict[str, Any]

# Sorts behind every stored job of the same age: a simulated one is the newest.
SIMULATED = "~simulated"
# What a quota change may do to jobs.
QUOTA_GROUPS = ("starts", "waits_longer", "evicted", "never")


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one replica would sit."""

    role: str
    replica: int
    rank: int
    node: str
    gpus: int
    domains: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QuotaState:
    """A tenant's state of one flavor, in GPUs."""

    flavor: str
    nominal: int
    used: int
    borrowed: int
    available: int


@dataclass(frozen=True, slots=True)
class Likely:
    """The range of a planned start, from what earlier plans came to."""

    p50: datetime
    p90: datetime


@dataclass(frozen=True, slots=True)
class Simulation:
    """What would become of a job submitted now.

    verdict: "starts_now", "queued" or "never". reasons: the dominant one first, empty when it starts now.
    starts_at: now, or when the plan lets it start; None when nobody can say. position: its place among the
    jobs that would wait, from 1. flavor and levels are those of the placement.
    """

    verdict: str
    reasons: tuple[Said, ...]
    starts_at: datetime | None
    likely: Likely | None
    position: int | None
    flavor: str
    asked_level: str
    achieved_level: str
    seats: tuple[Seat, ...]
    quota_before: QuotaState | None
    quota_after: QuotaState | None


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the planner: held (True), failed with numbers (False), or not reached (None)."""

    name: str
    ok: bool | None
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that runs on, or waits before this one for, what it needs. job is empty where it is hidden."""

    job: str
    gpus: int
    state: str
    expected_end: datetime | None


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A change of the job that the planner has tried, as fields of the contract, and what came of it."""

    change: Mapping[str, Any]
    verdict: str
    starts_at: datetime | None
    likely: Likely | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a waiting job waits. tried_at: when the counterfactuals were tried; the best three that work."""

    reasons: tuple[Said, ...]
    checks: tuple[Check, ...]
    ahead: tuple[Ahead, ...]
    starts_at: datetime | None
    counterfactuals: tuple[Counterfactual, ...]
    likely: Likely | None = None
    tried_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class QuotaPreview:
    """What new quotas of a tenant would change. Jobs are ids the reader may see; the hidden ones are counted.

    over: (name, flavor, GPUs) of tenants and cohorts that would use more than they may.
    """

    plan_id: str
    starts: tuple[str, ...]
    waits_longer: tuple[str, ...]
    evicted: tuple[str, ...]
    never: tuple[str, ...]
    hidden: Mapping[str, int]
    over: tuple[tuple[str, str, int], ...]


def door_key() -> str:
    """What callers of the what-if process prove that they share: derived from the project's key."""
    return salted_hmac("muster.whatif", "door", algorithm="sha256").hexdigest()


def simulate(actor: Actor, spec: JobSpec, now: datetime) -> Simulation:
    """What would become of a validated job if `actor` submitted it now. Nothing is stored."""
    job = _waiting(spec, actor.name, SIMULATED, now)
    found = _ask("simulate", {"cluster": spec.cluster, "job": waiting_to_json(job)})
    start = found["start"] or {}
    return Simulation(
        verdict=found["verdict"],
        reasons=said(actor, found["reasons"]),
        starts_at=moment(found["starts_at"]),
        likely=_likely(found),
        position=found["position"],
        flavor=start.get("flavor") or "",
        asked_level=start.get("asked_level") or "",
        achieved_level=start.get("achieved_level") or "",
        seats=tuple(Seat(**seat) for seat in start.get("seats", ())),
        quota_before=_quota(found["quota_before"]),
        quota_after=_quota(found["quota_after"]),
    )


def explain(actor: Actor, job: Job) -> Explanation:
    """Why `job`, which the actor may see and which is pending, waits.

    Raises ConflictError when it no longer does.
    """
    cluster = job.queue.cluster.name
    found = _ask("explain", {"cluster": cluster, "job": job.pk}, missing=_not_waiting(job))
    visible = visible_jobs(actor, [ahead["job"] for ahead in found["ahead"]])
    raw = [*found["reasons"], *(check for check in found["checks"] if check["numbers"])]
    seen = visible_jobs(actor, reasons.jobs_named(each["numbers"] for each in raw))
    tenants = visible_tenant_names(actor)
    return Explanation(
        reasons=said(actor, found["reasons"]),
        checks=tuple(
            Check(c["check"], c["ok"], reasons.redacted(c["numbers"], seen, tenants))
            for c in found["checks"]
        ),
        ahead=tuple(
            Ahead(
                a["job"] if a["job"] in visible else "",
                a["gpus"],
                a["state"],
                moment(a["expected_end"]),
            )
            for a in found["ahead"]
        ),
        starts_at=moment(found["starts_at"]),
        counterfactuals=tuple(
            Counterfactual(c["change"], c["verdict"], moment(c["starts_at"]), _likely(c))
            for c in found["counterfactuals"]
        ),
        likely=_likely(found),
        tried_at=moment(found.get("counterfactuals_at")),
    )


def preview_quotas(actor: Actor, tenant: Tenant, cluster: Cluster, wanted: Quotas) -> QuotaPreview:
    """What would change on one cluster if these were all of the tenant's quotas (a draft's `after`)."""
    found = _ask_quotas(tenant, cluster, wanted)
    told: dict[str, list[str]] = {group: found[group] for group in QUOTA_GROUPS}
    visible = visible_jobs(actor, [job for jobs in told.values() for job in jobs])
    shown = {group: tuple(job for job in jobs if job in visible) for group, jobs in told.items()}
    names = visible_tenant_names(actor)
    return QuotaPreview(
        plan_id=found["plan_id"],
        hidden={group: len(jobs) - len(shown[group]) for group, jobs in told.items()},
        over=tuple(
            (
                over["name"] if names is None or over["name"] in names else "",
                over["flavor"],
                over["over_gpus"],
            )
            for over in found["over"]
        ),
        **shown,
    )


def ask_change(cluster: Cluster, changes: Sequence[Json]) -> Json:
    """What valid changes (`services.changes`) would change on a cluster, all jobs named."""
    return _ask("change", {"cluster": cluster.name, "changes": list(changes)})


def simulated_job(spec: JobSpec, user: str, number: int, now: datetime) -> WaitingJob:
    """The job that a valid ask would become, under an id that no job has."""
    return _waiting(spec, user, f"{SIMULATED}-{number:04d}", now)


def quotas_body(tenant: Tenant, cluster: Cluster, wanted: Quotas) -> Json:
    """A tenant's quotas on a cluster as the planner is told of them."""
    return {"tenant": tenant.slug, **_quotas_json(cluster, wanted)}


def delays_by_windows(cluster: str, windows: Sequence[Json]) -> list[Json | None]:
    """For each window alone (times as seconds since the epoch) whose starts it would delay: jobs, seconds and GPU
    seconds, summed. None where the planner had no time left."""
    found = _ask("windows", {"cluster": cluster, "windows": list(windows)})
    delays: list[Json | None] = found["delays"]
    return delays


class RemotePlanner:
    """What `queues` asks a planner, answered by the what-if process. Registered by `scheduler.apps`."""

    def never(self, specs: Sequence[JobSpec], user: str, now: datetime) -> list[Never | None]:
        """For each job why it can never run, None where it can (or may have to wait)."""
        answers: list[Never | None] = [None] * len(specs)
        clusters = {spec.cluster for spec in specs}
        for cluster in sorted(clusters):
            indices = [index for index, spec in enumerate(specs) if spec.cluster == cluster]
            jobs = [
                waiting_to_json(_bare(specs[index], user, f"{SIMULATED}-{index:04d}", now))
                for index in indices
            ]
            found = _ask("never", {"cluster": cluster, "jobs": jobs})["never"]
            for index, reason in zip(indices, found, strict=True):
                if reason is not None:
                    answers[index] = Never(reason["code"], reason["numbers"])
        return answers

    def refuses_longer_run(
        self, job: Job, max_runtime_seconds: int | None, now: datetime
    ) -> str | None:
        """A sentence that says whom a longer run would delay, None where it delays nobody."""
        body = {
            "cluster": job.queue.cluster.name,
            "job": job.pk,
            "max_runtime_seconds": max_runtime_seconds,
        }
        delayed = len(_ask("longer-run", body)["delays"])
        if not delayed:
            return None
        return _("It would delay {count} jobs that have a planned start.").format(count=delayed)

    def check_quota_plan(
        self, tenant: Tenant, sent: Mapping[str, Any], plan_id: str, now: datetime
    ) -> None:
        """Raise ConflictError `plan_changed`, with the new plan, unless these quotas still lead to `plan_id`.

        `sent` is valid. The new plan names the tenant's own jobs and counts all others.
        """
        before = current_quotas(tenant)
        after = read_quotas(sent, before, known_names(tenant), ErrorCollector()).quotas
        found = [_ask_quotas(tenant, cluster, after) for cluster in clusters_touched(before, after)]
        if plan_id_of(each["plan_id"] for each in found) == plan_id:
            return
        raise ConflictError(
            _("The plan has changed since the preview."),
            code="plan_changed",
            hint=_("Look at the new difference, and apply its plan_id."),
            extra=_shown_to_tenant(tenant, found),
        )


def clusters_touched(before: Quotas, after: Quotas) -> list[Cluster]:
    """The clusters of the flavors in which the two differ, by name."""
    flavors = QuotaDraft(before, after).flavor_ids
    return list(Cluster.objects.filter(flavors__in=flavors).distinct().order_by("name"))


def plan_id_of(plan_ids: Iterable[str]) -> str:
    """One id for the plans of several clusters, in order of their names; the plan's own where there is one."""
    listed = list(plan_ids)
    if len(listed) == 1:
        return listed[0]
    return hashlib.sha256("/".join(listed).encode()).hexdigest()[:16]


def _shown_to_tenant(tenant: Tenant, found: Sequence[Json]) -> Json:
    shown: Json = {"plan_id": plan_id_of(each["plan_id"] for each in found)}
    for group in QUOTA_GROUPS:
        jobs = [job for each in found for job in each[group]]
        own = set(Job.objects.filter(tenant=tenant, pk__in=jobs).values_list("pk", flat=True))
        named: list[Json] = [{"job": job} for job in jobs if job in own]
        hidden = len(jobs) - len(named)
        shown[group] = [*named, {"hidden": hidden}] if hidden else named
    return shown


# --- the way there and back ---


@lru_cache(maxsize=4)
def _client(url: str, timeout_seconds: float, key: str) -> httpx.Client:
    """One client an address: it keeps its connections."""
    return httpx.Client(
        base_url=url,
        timeout=timeout_seconds,
        headers={"Authorization": f"Bearer {key}"},
        trust_env=False,
    )


def _ask(question: str, body: Json, missing: Exception | None = None) -> Json:
    client = _client(settings.WHATIF_URL, settings.WHATIF_TIMEOUT_SECONDS, door_key())
    try:
        answer = client.post(f"/{question}", json=body)
    except httpx.HTTPError as error:
        raise _no_verdict() from error
    if answer.status_code == httpx.codes.NOT_FOUND and missing is not None:
        raise missing
    if answer.status_code != httpx.codes.OK:
        raise _no_verdict()
    found: Json = answer.json()
    return found


def _no_verdict() -> UnavailableError:
    return UnavailableError(
        _("No verdict now: the planner is busy or away."),
        code="no_verdict",
        hint=_("Try again in a moment; submitting does not need it."),
    )


def _not_waiting(job: Job) -> ConflictError:
    return ConflictError(
        _("The job no longer waits."), code="not_waiting", extra={"phase": str(job.phase)}
    )


def _waiting(spec: JobSpec, user: str, job_id: str, now: datetime) -> WaitingJob:
    bare = _bare(spec, user, job_id, now)
    return WaitingJob(
        id=bare.id,
        ask=bare.ask,
        submitted_at=bare.submitted_at,
        begin_at=bare.begin_at,
        depends_on=tuple(_open_dependencies(spec)),
    )


def _bare(spec: JobSpec, user: str, job_id: str, now: datetime) -> WaitingJob:
    return WaitingJob(
        id=job_id,
        ask=ask_of(spec, user),
        submitted_at=now.timestamp(),
        begin_at=spec.begin_at.timestamp() if spec.begin_at else None,
    )


def _open_dependencies(spec: JobSpec) -> list[str]:
    """Ids of the jobs that would have to end first. One query."""
    if not spec.depends_on:
        return []
    either = Q()
    for needed in spec.depends_on:
        named = Q(pk=needed.job) if needed.job else Q(external_id=needed.external_id)
        met = Q(phase=Phase.FINISHED)
        if needed.on == "succeeded":
            met &= Q(outcome=Outcome.SUCCEEDED)
        either |= named & ~met
    rows = Job.objects.filter(either, tenant_id=spec.tenant_id).order_by("pk")
    return list(rows.values_list("pk", flat=True))


def said(actor: Actor, raw: Sequence[Json]) -> tuple[Said, ...]:
    """Reasons without names of jobs and tenants that the reader may not see."""
    seen = visible_jobs(actor, reasons.jobs_named(each["numbers"] for each in raw))
    tenants = visible_tenant_names(actor)
    return tuple(
        Said(each["code"], reasons.redacted(each["numbers"], seen, tenants)) for each in raw
    )


def visible_jobs(actor: Actor, jobs: Iterable[str]) -> Collection[str]:
    """Of these the jobs that the actor may see. One query."""
    asked = set(jobs)
    if not asked:
        return ()
    return set(jobs_visible_to(actor).filter(pk__in=asked).values_list("pk", flat=True))


def visible_tenant_names(actor: Actor) -> Collection[str] | None:
    """Slugs of the tenants that the reader may see; None for all."""
    return None if actor.sees_all_tenants else {member.slug for member in actor.memberships}


def _ask_quotas(tenant: Tenant, cluster: Cluster, wanted: Quotas) -> Json:
    return _ask("quotas", {"cluster": cluster.name, **quotas_body(tenant, cluster, wanted)})


def _quotas_json(cluster: Cluster, wanted: Quotas) -> Json:
    """The part of a tenant's quotas that concerns a cluster, by name. Three queries."""
    flavors = dict(Flavor.objects.filter(cluster=cluster).values_list("pk", "name"))
    queue_ids = {queue for queue, _flavor in wanted.queues}
    queues = dict(Queue.objects.filter(pk__in=queue_ids).values_list("pk", "name"))
    user_ids = {user for user, _flavor in wanted.users}
    users = dict(User.objects.filter(pk__in=user_ids).values_list("pk", "username"))
    return {
        "flavors": [
            asdict(quota) | {"flavor": flavors[pk], "weight": float(quota.weight)}
            for pk, quota in wanted.flavors.items()
            if pk in flavors
        ],
        "queues": [
            {"queue": queues[queue], "flavor": flavors[flavor], "limit": limit}
            for (queue, flavor), limit in wanted.queues.items()
            if flavor in flavors
        ],
        "users": [
            {"user": users[user], "flavor": flavors[flavor], "limit": limit}
            for (user, flavor), limit in wanted.users.items()
            if flavor in flavors
        ],
    }


def _quota(found: Mapping[str, Any] | None) -> QuotaState | None:
    if found is None:
        return None
    return QuotaState(**{name: value for name, value in found.items() if name != "tenant"})


def moment(seconds: float | None) -> datetime | None:
    """A planner's time as a moment."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _likely(found: Mapping[str, Any]) -> Likely | None:
    p50, p90 = moment(found["p50"]), moment(found["p90"])
    return None if p50 is None or p90 is None else Likely(p50, p90)
