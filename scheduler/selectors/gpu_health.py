"""GPU health as people may see it: everyone who is signed in sees states; jobs only those of their own tenants.

Called by the REST doors and the pages. Nothing here writes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from queues.models import Cluster, Job
from queues.selectors.answers import time_text
from queues.selectors.jobs import jobs_visible_to
from scheduler.health.rules import SPECS, Rule, RuleSpec
from scheduler.health.states import NEXT_STEP, State
from scheduler.models import BurnIn, Gpu, HealthEvent, HealthPolicy, HealthRule, Node, NodeWatch
from tenants.access import Actor, Right, may

# How to switch on what the exporter leaves out by default; shown where ECC counts are unknown.
ECC_HINT = (
    "ECC counts are off by default: uncomment DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, DCGM_FI_DEV_ECC_DBE_VOL_TOTAL,"
    " DCGM_FI_DEV_ECC_SBE_AGG_TOTAL and DCGM_FI_DEV_ECC_DBE_AGG_TOTAL in a counters file of your own, and give it to"
    " dcgm-exporter (GPU operator: dcgmExporter.config.name; chart: customMetrics)."
)


def gpus_visible_to(
    actor: Actor, cluster: str | None = None, state: str | None = None
) -> QuerySet[Gpu]:
    """The ledger. state: a state, or `unknown` for GPUs of which nothing is known now."""
    rows = Gpu.objects.filter(node__gone_at__isnull=True).select_related("node", "cluster")
    if not may(actor, Right.VIEW_NODES):
        return rows.none()
    if cluster:
        rows = rows.filter(cluster__name=cluster)
    if state == "unknown":
        rows = rows.filter(unknown_since__isnull=False)
    elif state:
        rows = rows.filter(state=state)
    return rows


def gpu_answer(gpu: Gpu) -> dict[str, Any]:
    """The contract's answer. A value that is not known is null, never 0."""
    known = gpu.unknown_since is None
    return {
        "uuid": gpu.uuid,
        "cluster": gpu.cluster.name,
        "node": gpu.node.name,
        "index": gpu.index,
        "model": gpu.model,
        "state": gpu.state,
        "since": time_text(gpu.since),
        "cause": gpu.cause or None,
        "evidence": gpu.evidence or None,
        "next_step": gpu.next_step or None,
        "utilisation": gpu.utilisation if known else None,
        "memory_copy": gpu.memory_copy if known else None,
        "temperature_c": gpu.temperature_c if known else None,
        "memory_used_mib": gpu.memory_used_mib if known else None,
        "ecc": "known" if gpu.ecc_known else "unknown",
        "ecc_hint": None if gpu.ecc_known else ECC_HINT,
        "unknown_since": time_text(gpu.unknown_since),
        "override": {
            "state": gpu.override_state,
            "reason": gpu.override_reason,
            "by": gpu.override_by,
            "until": time_text(gpu.override_until),
        }
        if gpu.override_state
        else None,
    }


def health_counts(actor: Actor, cluster: Cluster) -> dict[str, int]:
    """GPUs by state, and `unknown`, for the head of a page."""
    rows = gpus_visible_to(actor, cluster.name)
    counts = {state.value: 0 for state in State}
    for state in rows.values_list("state", flat=True):
        counts[state] += 1
    return counts | {"unknown": rows.filter(unknown_since__isnull=False).count()}


def node_timeline(actor: Actor, node: Node) -> QuerySet[HealthEvent]:
    """The node's fault timeline, newest first; `timeline_answers` leaves out jobs that the actor may not see."""
    rows = HealthEvent.objects.filter(cluster=node.cluster_id, node=node.name).order_by("-pk")
    return rows if may(actor, Right.VIEW_NODES) else rows.none()


def timeline_answers(actor: Actor, events: Sequence[HealthEvent]) -> list[dict[str, Any]]:
    """Lines of a timeline. Jobs of others are a number: `hidden_jobs`."""
    named = {each["job"] for event in events for each in event.jobs}
    visible = set(jobs_visible_to(actor).filter(pk__in=named).values_list("pk", flat=True))
    return [_line(event, visible) for event in events]


def _line(event: HealthEvent, visible: set[str]) -> dict[str, Any]:
    jobs = [each for each in event.jobs if each["job"] in visible]
    return {
        "id": event.pk,
        "at": time_text(event.at),
        "kind": event.kind,
        "gpu": event.gpu or None,
        "rule": event.rule or None,
        "before": event.before or None,
        "after": event.after or None,
        "cause": event.cause or None,
        "evidence": _evidence(event, hidden=len(jobs) < len(event.jobs)),
        "signal": event.signal or None,
        "signal_age_seconds": event.signal_age_seconds,
        "xid": event.xid,
        "jobs": [{name: each[name] for name in ("job", "how", "evicted")} for each in jobs],
        "hidden_jobs": len(event.jobs) - len(jobs),
        "action": event.action or None,
        "next_step": event.next_step or None,
        "actor": _actor(event),
    }


def _evidence(event: HealthEvent, *, hidden: bool) -> str | None:
    """What a tenant has reported may speak of its work: only with the job itself."""
    return None if not event.evidence or (hidden and event.signal == "report") else event.evidence


def _actor(event: HealthEvent) -> str | None:
    """A report's sender is a tenant's job: its name is nobody else's business."""
    return "a job" if "/" in event.actor else event.actor or None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A node that is out, or watched, by health."""

    node: Node
    watch: NodeWatch | None
    gpus: tuple[Gpu, ...]
    burn_in: BurnIn | None
    next_step: str

    def age_seconds(self, now: datetime) -> float:
        """For how long."""
        since = self.node.health_since
        return (now - since).total_seconds() if since else 0.0


def quarantine(actor: Actor, cluster: Cluster) -> list[Quarantined]:
    """Nodes that are not well, those that have been so the longest first."""
    if not may(actor, Right.VIEW_NODES):
        return []
    rows = list(
        Node.objects.filter(cluster=cluster, gone_at__isnull=True)
        .exclude(health="healthy", health_closed=False)
        .exclude(health="joining")
        .select_related("flavor", "watch")
        .order_by("health_since", "name")
    )
    gpus: dict[int, list[Gpu]] = {}
    for gpu in Gpu.objects.filter(node__in=rows).exclude(state="healthy").order_by("index"):
        gpus.setdefault(gpu.node_id, []).append(gpu)
    burn_ins = {each.node_id: each for each in BurnIn.objects.filter(node__in=rows).order_by("pk")}
    return [
        Quarantined(
            node=row,
            watch=_watch_of(row),
            gpus=tuple(gpus.get(row.pk, ())),
            burn_in=burn_ins.get(row.pk),
            next_step=_next_step(row, gpus.get(row.pk, [])),
        )
        for row in rows
    ]


def _watch_of(row: Node) -> NodeWatch | None:
    return getattr(row, "watch", None)


def _next_step(row: Node, gpus: Sequence[Gpu]) -> str:
    watch = _watch_of(row)
    if watch is not None and watch.out_since is None and row.health_closed and gpus:
        return "a person decides: take it out, or say that it is well"
    told = next((gpu.next_step for gpu in gpus if gpu.next_step), "")
    return told if row.health in ("suspect", "unhealthy") and told else NEXT_STEP[State(row.health)]


def quarantine_answers(rows: Iterable[Quarantined], now: datetime) -> list[dict[str, Any]]:
    """Over REST."""
    return [
        {
            "node": each.node.name,
            "health": each.node.health,
            "closed": each.node.health_closed,
            "since": time_text(each.node.health_since),
            "age_seconds": round(each.age_seconds(now)),
            "cause": each.node.health_cause or None,
            "gpus": [gpu.uuid for gpu in each.gpus],
            "next_step": each.next_step or None,
            "burn_in": burn_in_answer(each.burn_in) if each.burn_in else None,
        }
        for each in rows
    ]


def burn_in_answer(burn_in: BurnIn) -> dict[str, Any]:
    """A burn-in."""
    return {
        "phase": burn_in.phase,
        "pod": burn_in.pod_name,
        "requested_at": time_text(burn_in.requested_at),
        "started_at": time_text(burn_in.started_at),
        "ended_at": time_text(burn_in.ended_at),
        "limit_seconds": burn_in.limit_seconds,
        "exit_code": burn_in.exit_code,
        "message": burn_in.message,
    }


def joining_checklists(actor: Actor, cluster: Cluster) -> list[dict[str, Any]]:
    """Nodes that wait to join, with the steps of their checklists."""
    if not may(actor, Right.VIEW_NODES):
        return []
    rows = NodeWatch.objects.filter(
        node__cluster=cluster, node__gone_at__isnull=True, state=State.JOINING
    ).select_related("node")
    return [
        {"node": watch.node.name, "since": time_text(watch.since), "steps": watch.checklist}
        for watch in rows.order_by("since", "node__name")
    ]


def node_health_answer(node: Node) -> dict[str, Any]:
    """A node's health, its exporter and its GPUs."""
    watch = NodeWatch.objects.filter(node=node).first()
    gpus = Gpu.objects.filter(node=node).select_related("node", "cluster").order_by("index")
    last = BurnIn.objects.filter(node=node).order_by("-pk").first()
    return {
        "node": node.name,
        "cluster": node.cluster.name,
        "health": node.health,
        "closed": node.health_closed,
        "since": time_text(node.health_since),
        "cause": node.health_cause or None,
        "exporter": {
            "answered_at": time_text(watch.answered_at) if watch else None,
            "unknown_since": time_text(watch.unknown_since) if watch else None,
            "generation": (watch.generation or None) if watch else None,
        },
        "checklist": watch.checklist if watch else [],
        "burn_in": burn_in_answer(last) if last else None,
        "gpus": [gpu_answer(gpu) for gpu in gpus],
    }


def rules_visible_to(actor: Actor) -> list[tuple[RuleSpec, HealthRule]]:
    """All rules, each with its row or one that says the defaults; everyone may read them."""
    if not may(actor, Right.VIEW_NODES):
        return []
    rows = {row.key: row for row in HealthRule.objects.all()}
    return [(spec, rows.get(key) or HealthRule(key=key, version=0)) for key, spec in SPECS.items()]


def rule_answer(spec: RuleSpec, row: HealthRule) -> dict[str, Any]:
    """A rule in force; its ETag is `version`."""
    rule = Rule(spec, parameters=row.parameters)
    return {
        "key": spec.key,
        "title": spec.title,
        "mode": row.mode,
        "parameters": {name: rule.number(name) for name in spec.parameters},
        "defaults": dict(spec.parameters),
        "takes_out": spec.takes_out,
        "about_jobs": spec.about_jobs,
        "version": row.version,
        "changed_by": row.changed_by or None,
        "changed_at": time_text(row.changed_at),
    }


def policy_answer(policy: HealthPolicy) -> dict[str, Any]:
    """A cluster's budget and burn-in."""
    return {
        "budget_percent": policy.budget_percent,
        "budget_nodes": policy.budget_nodes,
        "budget_window_seconds": policy.budget_window_seconds,
        "burn_in_image": policy.burn_in_image or None,
        "burn_in_command": policy.burn_in_command,
        "burn_in_preset": policy.burn_in_preset.name if policy.burn_in_preset else None,
        "burn_in_limit_seconds": policy.burn_in_limit_seconds,
        "exporter_url": policy.exporter_url or None,
        "prometheus_url": policy.prometheus_url or None,
        "scrape_seconds": policy.scrape_seconds,
    }


def faults_of(job: Job) -> QuerySet[HealthEvent]:
    """Faults that have met a job, for its page. The caller has checked that the reader may see the job."""
    events = HealthEvent.objects.filter(kind__in=("signal", "state", "action"))
    nodes = job.attempts.values_list("placements__node", flat=True)
    return events.filter(Q(node__in=nodes), at__gte=job.submitted_at).order_by("-pk")
