"""Rules as a platform admin sets them, and what they would have done over the last day."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ErrorCollector, NotVisibleError
from controlplane.common.preconditions import stale
from queues.models import Cluster
from scheduler.health.budget import Budget
from scheduler.health.rules import SPECS, Mode, Rule, RuleSpec
from scheduler.models import HealthEvent, HealthRule, HealthSample, Node
from scheduler.services.health.metrics import SAMPLED_EVERY
from scheduler.services.health.scene import policy_of
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit

DRY_RUN_OVER = timedelta(days=1)
MOST_SHOWN = 100


def spec_of(key: str) -> RuleSpec:
    """The rule of that key. Raises NotVisibleError."""
    if key not in SPECS:
        raise NotVisibleError(_("There is no such rule."))
    return SPECS[key]


def change_rule(
    actor: Actor, key: str, sent: Mapping[str, Any], version: int | None, now: datetime
) -> HealthRule:
    """Set mode and thresholds; what is not sent stays. Raises ForbiddenError, InvalidError, StaleError."""
    require(actor, Right.EDIT_CATALOGUE)
    spec = spec_of(key)
    with log.writing():
        row = HealthRule.objects.select_for_update().filter(key=key).first() or HealthRule(
            key=key, version=0
        )
        if version is not None and version != row.version:
            raise stale(row.version)
        before = {"mode": row.mode, "parameters": dict(row.parameters)}
        row.mode, row.parameters = _read(spec, row, sent)
        row.version, row.changed_by, row.changed_at = row.version + 1, actor.name, now
        row.save()
        after = {"mode": row.mode, "parameters": row.parameters}
        write_audit(
            actor, Change("health_rule.changed", "health_rule", key, before, after), now=now
        )
        log.record(log.NewEvent("health.rule", now, actor=actor.name, message=key, numbers=after))
    return row


def _read(spec: RuleSpec, row: HealthRule, sent: Mapping[str, Any]) -> tuple[str, dict[str, float]]:
    errors = ErrorCollector()
    mode = sent.get("mode", row.mode)
    if mode not in list(Mode):
        errors.add("/mode", "unknown", _("must be off, propose or act"))
    given = sent.get("parameters", {})
    parameters = dict(row.parameters)
    if not isinstance(given, Mapping):
        errors.add("/parameters", "invalid", _("must be an object"))
        given = {}
    for name, value in given.items():
        if name not in spec.parameters:
            errors.add(f"/parameters/{name}", "unknown_field", _("is not a threshold of this rule"))
        elif (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 <= value <= 10_000_000
        ):
            errors.add(
                f"/parameters/{name}", "out_of_range", _("must be a number from 0 to 10,000,000")
            )
        else:
            parameters[name] = value
    for name in sent:
        if name not in ("mode", "parameters"):
            errors.add(f"/{name}", "unknown_field", _("is not a field here"))
    errors.raise_if_any()
    return str(mode), parameters


@dataclass(slots=True)
class DryRun:
    """What a rule would have found in the last day. taken_out: by nodes within the budget; beyond: the rest."""

    since: datetime
    findings: list[dict[str, Any]] = field(default_factory=list)
    found: int = 0
    taken_out: int = 0
    beyond_budget: int = 0
    samples: int = 0

    def add(self, **finding: Any) -> None:
        """One more; only the first hundred are shown."""
        self.found += 1
        if len(self.findings) < MOST_SHOWN:
            self.findings.append(finding)


def dry_run(
    actor: Actor, cluster: Cluster, key: str, sent: Mapping[str, Any], now: datetime
) -> DryRun:
    """Try a rule with these thresholds on what was kept of the last day: ten-minute means, and signals that came.

    Raises ForbiddenError, InvalidError.
    """
    require(actor, Right.EDIT_CATALOGUE)
    spec = spec_of(key)
    row = HealthRule.objects.filter(key=key).first() or HealthRule(key=key)
    mode, parameters = _read(spec, row, sent)
    rule = Rule(spec, Mode(mode), parameters)
    run = DryRun(since=now - DRY_RUN_OVER)
    if key in _MEASURED:
        _over_samples(run, cluster, rule)
    else:
        _over_signals(run, cluster, rule)
    return run


# Rules about values that are kept: place in a sample's list, threshold's name, whether it fires above it.
_MEASURED: Mapping[str, tuple[int, str, bool]] = {
    "waste": (0, "below_percent", False),
    "memory_copy": (1, "above_percent", True),
    "temperature": (2, "above_c", True),
}


def _over_samples(run: DryRun, cluster: Cluster, rule: Rule) -> None:
    """A value that held over so many ten-minute means in a row as the rule's duration asks for."""
    place, name, above = _MEASURED[rule.spec.key]
    limit = rule.number(name)
    wanted = max(1, round(rule.number("seconds") / SAMPLED_EVERY.total_seconds()))
    rows = HealthSample.objects.filter(node__cluster=cluster, at__gt=run.since)
    streaks: dict[tuple[int, str], int] = {}
    names = dict(Node.objects.filter(cluster=cluster).values_list("pk", "name"))
    for node_id, at, gpus in rows.order_by("at").values_list("node_id", "at", "gpus").iterator():
        run.samples += 1
        for index, values in gpus.items():
            value = values[place]
            fires = value is not None and (value > limit if above else value < limit)
            streak = streaks[node_id, index] = streaks.get((node_id, index), 0) + 1 if fires else 0
            if streak == wanted:
                run.add(node=names.get(node_id, ""), gpu=int(index), at=at.isoformat(), value=value)


def _over_signals(run: DryRun, cluster: Cluster, rule: Rule) -> None:
    """Signals of this rule that came, and the nodes that it would have taken out in mode `act`."""
    events = HealthEvent.objects.filter(
        cluster=cluster, at__gt=run.since, rule=rule.spec.key
    ).filter(Q(kind="signal") | Q(kind="state"))
    policy = policy_of(cluster)
    window = timedelta(seconds=policy.budget_window_seconds)
    nodes = Node.objects.filter(cluster=cluster, gone_at__isnull=True, flavor__isnull=False).count()
    allowed = Budget(policy.budget_percent, policy.budget_nodes, window).allowed(nodes)
    taken: dict[str, datetime] = {}
    for event in events.order_by("pk"):
        run.add(node=event.node, gpu=event.gpu, at=event.at.isoformat(), cause=event.cause)
        if not rule.may_take_out or event.after != "unhealthy" or event.node in taken:
            continue
        recent = sum(at > event.at - window for at in taken.values())
        if recent < allowed:
            taken[event.node] = event.at
            run.taken_out += 1
        else:
            run.beyond_budget += 1
