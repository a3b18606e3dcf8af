"""How states and reasons look: a glyph, a word and a colour class for each.

Pure data and small pure functions, called by the template tags in `templatetags/muster.py` and by
the SVG renderers. The words are those of docs/glossary.md; the glyphs live in
`templates/pieces/_sprite.html` under `s-<key>`, the colours in `static/css/pieces.css` under
`st-<key>`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from controlplane.common import amounts

Words = str | Promise


@dataclass(frozen=True, slots=True)
class Look:
    """One state: `key` names glyph and colour, `word` is what people read."""

    key: str
    word: Words


PHASES: Mapping[str, Look] = {
    "pending": Look("pending", pgettext_lazy("phase", "pending")),
    "placed": Look("placed", pgettext_lazy("phase", "placed")),
    "starting": Look("starting", pgettext_lazy("phase", "starting")),
    "running": Look("running", pgettext_lazy("phase", "running")),
    "stopping": Look("stopping", pgettext_lazy("phase", "stopping")),
    "held": Look("held", pgettext_lazy("phase", "held")),
    "finished": Look("cancelled", pgettext_lazy("phase", "finished")),
}

OUTCOMES: Mapping[str, Look] = {
    "succeeded": Look("succeeded", pgettext_lazy("outcome", "succeeded")),
    "failed": Look("failed", pgettext_lazy("outcome", "failed")),
    "cancelled": Look("cancelled", pgettext_lazy("outcome", "cancelled")),
    "timed_out": Look("timed_out", pgettext_lazy("outcome", "timed out")),
    "preempted": Look("preempted", pgettext_lazy("outcome", "preempted")),
    "infeasible": Look("infeasible", pgettext_lazy("outcome", "infeasible")),
    "node_failure": Look("node_failure", pgettext_lazy("outcome", "node failure")),
}

# How an attempt ended, where it is not an outcome of the whole job.
ENDINGS: Mapping[str, Look] = {
    **{key: look for key, look in OUTCOMES.items() if key != "infeasible"},
    "maintenance": Look("maintenance", pgettext_lazy("ending", "maintenance")),
    "resize": Look("stopping", pgettext_lazy("ending", "resized")),
    "requeued": Look("pending", pgettext_lazy("ending", "requeued")),
    "placement_miss": Look("node_failure", pgettext_lazy("ending", "placement miss")),
    "start_failed": Look("failed", pgettext_lazy("ending", "start failed")),
    "stalled": Look("timed_out", pgettext_lazy("ending", "stalled")),
}

NODES: Mapping[str, Look] = {
    "free": Look("free", pgettext_lazy("node", "free")),
    "used": Look("used", pgettext_lazy("node", "used")),
    "ready": Look("free", pgettext_lazy("node", "ready")),
    "draining": Look("draining", pgettext_lazy("node", "draining")),
    "cordoned": Look("draining", pgettext_lazy("node", "cordoned")),
    "reserved": Look("reserved", pgettext_lazy("node", "reserved")),
    "maintenance": Look("maintenance", pgettext_lazy("node", "maintenance")),
    "faulty": Look("failed", pgettext_lazy("node", "faulty")),
    "not_ready": Look("node_failure", pgettext_lazy("node", "not ready")),
    "unplugged": Look("unplugged", pgettext_lazy("node", "no device plugin")),
    "unmanaged": Look("off", pgettext_lazy("node", "not managed")),
}

QUEUES: Mapping[str, Look] = {
    "open": Look("pending", pgettext_lazy("queue", "open")),
    "held": Look("held", pgettext_lazy("queue", "held")),
    "closed": Look("cancelled", pgettext_lazy("queue", "closed")),
}


def job_look(phase: str, outcome: str | None) -> Look:
    """The look of a job: its outcome once it has one, else its phase."""
    return (OUTCOMES.get(outcome) if outcome else None) or PHASES.get(phase) or Look("off", phase)


def node_look(state: str) -> Look:
    """The look of a node's state; an unknown word is shown as it is."""
    return NODES.get(state) or Look("off", state)


@dataclass(frozen=True, slots=True)
class ReasonLook:
    """One reason for waiting: the icon and word of its kind, and one full sentence.

    `short` is the second half of the chip, formatted with the reason's numbers; where a number is
    missing the `word` alone is shown. `never` marks reasons that waiting does not cure.
    """

    icon: str
    kind: Words
    word: Words
    short: Words = ""
    never: bool = False


_QUOTA, _NODES, _TIME = _("Quota"), _("Nodes"), _("Time")
_ORDER, _RULES, _CLUSTER = _("Order"), _("On hold"), _("Cluster")

REASONS: Mapping[str, ReasonLook] = {
    "queue_held": ReasonLook("lock", _RULES, _("the queue is held"), _("queue {queue} is held")),
    "queue_closed": ReasonLook(
        "lock", _RULES, _("the queue is closed"), _("queue {queue} is closed")
    ),
    "cluster_paused": ReasonLook(
        "lock", _CLUSTER, _("the cluster is paused"), _("{cluster} is paused")
    ),
    "cluster_observing": ReasonLook(
        "lock", _CLUSTER, _("the cluster is only observed"), _("{cluster} is only observed")
    ),
    "cluster_unreachable": ReasonLook(
        "kube", _CLUSTER, _("the cluster cannot be reached"), _("{cluster} cannot be reached")
    ),
    "waiting_for_dependency": ReasonLook(
        "link",
        _("After"),
        _("waits for another job"),
        _("{open_dependencies} jobs to finish first"),
    ),
    "begin_time": ReasonLook("time", _TIME, _("not before its begin time"), _("from {begin_at}")),
    "backoff": ReasonLook(
        "time", _TIME, _("pausing before it tries again"), _("tries again {backoff_until}")
    ),
    "refused_by_kubernetes": ReasonLook(
        "kube", _("Kubernetes"), _("Kubernetes said no"), _("refused; again {refused_until}")
    ),
    "exceeds_quota_for_ever": ReasonLook(
        "quota",
        _QUOTA,
        _("more than the quota can ever be"),
        _("needs {needed_gpus}, never more than {most_gpus}"),
        never=True,
    ),
    "exceeds_cluster_for_ever": ReasonLook(
        "nodes",
        _NODES,
        _("more than the cluster has"),
        _("{most_replicas} of {needed_replicas} replicas fit"),
        never=True,
    ),
    "waiting_for_preempted": ReasonLook(
        "time",
        _("Handover"),
        _("others are saving and leaving"),
        _("{stopping_jobs} jobs leave by {free_at}"),
    ),
    "higher_priority_ahead": ReasonLook(
        "order", _ORDER, _("jobs ahead go first"), _("{jobs_ahead} jobs ahead")
    ),
    "user_limit": ReasonLook(
        "quota",
        _("Limit"),
        _("the limit is in use"),
        _("{used_gpus} of {limit_gpus} GPUs in use"),
    ),
    "waiting_for_quota": ReasonLook(
        "quota", _QUOTA, _("the quota is in use"), _("needs {needed_gpus}, {available_gpus} left")
    ),
    "waiting_for_fair_share": ReasonLook(
        "order", _("Share"), _("others are owed first"), _("{lowest_tenant} is owed first")
    ),
    "waiting_for_driver": ReasonLook(
        "nodes",
        _("Driver"),
        _("drivers are too old"),
        _("CUDA {min_cuda}: {new_enough_nodes} nodes, {too_old_nodes} too old"),
    ),
    "unhealthy_nodes": ReasonLook(
        "health", _("Health"), _("nodes are out of service"), _("{nodes_out} nodes out of service")
    ),
    "waiting_for_nodes": ReasonLook(
        "nodes", _NODES, _("not enough is free"), _("needs {needed_gpus} GPUs, {free_gpus} free")
    ),
    "waiting_for_topology": ReasonLook(
        "topology",
        _("Topology"),
        _("no domain holds it whole"),
        _("{best_domain} has {free_there} of {needed_nodes} nodes"),
    ),
    "waiting_for_reservation": ReasonLook(
        "lock",
        _("Reserved"),
        _("nodes are kept for others"),
        _("{reserved_nodes} nodes until {ends_at}"),
    ),
    "waiting_for_maintenance": ReasonLook(
        "time",
        _("Window"),
        _("would run into maintenance"),
        _("{starts_at}; fits if under {longest_seconds}"),
    ),
    "waiting_for_booking": ReasonLook(
        "time",
        _("Booking"),
        _("would delay a job ahead"),
        _("fits if under {longest_seconds}"),
    ),
    "not_yet_considered": ReasonLook("time", _ORDER, _("not looked at yet")),
}


def reason_look(code: str) -> ReasonLook:
    """The look of a reason; an unknown code is shown as it is."""
    return REASONS.get(code) or ReasonLook("order", _("Waiting"), code)


def reason_short(code: str, numbers: Mapping[str, Any]) -> str:
    """The second half of a reason's chip: its numbers if all are there, else its words."""
    look = reason_look(code)
    try:
        return str(look.short).format_map(spoken(numbers)) or str(look.word)
    except KeyError:
        return str(look.word)


def spoken(numbers: Mapping[str, Any]) -> "Spoken":
    """Numbers ready for `format_map`; raises KeyError there for one that is missing or None."""
    return Spoken(numbers)


class Spoken(dict[str, Any]):
    """Numbers as people read them: epochs as times, seconds as spans; None counts as missing."""

    def __missing__(self, key: str) -> Any:
        raise KeyError(key)

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if value is None:
            raise KeyError(key)
        if key.endswith(("_at", "_until")):
            return amounts.moment(datetime.fromtimestamp(value, UTC))
        if key.endswith("_seconds"):
            return amounts.duration(value)
        return amounts.count(value) if isinstance(value, int | float) else value
