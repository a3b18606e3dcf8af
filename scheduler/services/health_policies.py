"""A cluster's budget, burn-in and the place of its metrics, as a platform admin sets them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ErrorCollector
from queues.contract.reading import Reader
from queues.models import Cluster, Preset
from scheduler.models import HealthPolicy
from scheduler.services.health.scene import policy_of
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit

FIELDS = (
    *(
        "budget_percent",
        "budget_nodes",
        "budget_window_seconds",
        "burn_in_image",
        "burn_in_command",
    ),
    *("burn_in_limit_seconds", "exporter_url", "prometheus_url", "scrape_seconds"),
)


def change_policy(
    actor: Actor, cluster: Cluster, sent: Mapping[str, Any], now: datetime
) -> HealthPolicy:
    """Set what was sent; the rest stays. Raises ForbiddenError, InvalidError with pointers."""
    require(actor, Right.EDIT_CATALOGUE)
    errors = ErrorCollector()
    with log.writing():
        policy = policy_of(cluster)
        before = {name: getattr(policy, name) for name in FIELDS}
        _read(policy, sent, errors)
        errors.raise_if_any()
        policy.save()
        after = {name: getattr(policy, name) for name in FIELDS}
        write_audit(
            actor, Change("health_policy.changed", "cluster", cluster.name, before, after), now=now
        )
        log.record(log.NewEvent("health.policy", now, cluster=cluster.name, actor=actor.name))
    return policy


def _read(policy: HealthPolicy, sent: Mapping[str, Any], errors: ErrorCollector) -> None:
    reader = Reader(sent, "", errors)
    percent = reader.take("budget_percent")
    if percent is not None:
        if (
            isinstance(percent, bool)
            or not isinstance(percent, (int, float))
            or not 0 <= percent <= 100
        ):
            errors.add("/budget_percent", "out_of_range", _("must be a number from 0 to 100"))
        else:
            policy.budget_percent = float(percent)
    policy.budget_nodes = reader.whole("budget_nodes", policy.budget_nodes, most=1_000)
    policy.budget_window_seconds = reader.whole(
        "budget_window_seconds", policy.budget_window_seconds, least=60, most=7 * 86_400
    )
    for name, longest in (("burn_in_image", 500), ("exporter_url", 300), ("prometheus_url", 300)):
        if sent.get(name) == "":
            reader.take(name)
            setattr(policy, name, "")
        else:
            setattr(policy, name, reader.text(name, getattr(policy, name), longest=longest))
    command = reader.texts("burn_in_command", most=64) if reader.has("burn_in_command") else None
    if command is not None:
        policy.burn_in_command = list(command)
    policy.burn_in_limit_seconds = reader.whole(
        "burn_in_limit_seconds", policy.burn_in_limit_seconds, least=10, most=86_400
    )
    policy.scrape_seconds = reader.whole("scrape_seconds", policy.scrape_seconds, least=1, most=600)
    preset = reader.text("burn_in_preset", longest=40) if sent.get("burn_in_preset") != "" else ""
    if "burn_in_preset" in sent:
        reader.take("burn_in_preset")
        policy.burn_in_preset = Preset.objects.filter(name=preset).first() if preset else None
        if preset and policy.burn_in_preset is None:
            errors.add("/burn_in_preset", "unknown", _("is no preset"))
    reader.finish()
