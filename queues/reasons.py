"""Reasons for waiting as people read them: a sentence with its numbers, and what to do about it. Pure.

The planner writes codes and numbers (`scheduler.core.reasons`); API, pages, live hub and problem documents take
their words from here, in the reader's language. Numbers ending in `_at` or `_until` are seconds since the epoch,
those in `_seconds` seconds; a value may be None, and then the plainer sentence is taken.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.common.amounts import duration, moment

Numbers = Mapping[str, Any]
Words = str | Promise

# A job that has just begun to wait, and the reasons that are a single job's own, not its class's.
NOT_YET_CONSIDERED = "not_yet_considered"
BACKOFF = "backoff"
REFUSED = "refused_by_kubernetes"
BEGIN_TIME = "begin_time"
DEPENDENCY = "waiting_for_dependency"

# Numbers that name a job, or a tenant: shown only to those who may see it.
JOB_NUMBERS = ("first_dependency", "first_job", "frees_job", "booked_job")
TENANT_NUMBERS = ("lowest_tenant",)
# Reasons that waiting does not cure.
FOR_EVER = frozenset({"exceeds_quota_for_ever", "exceeds_cluster_for_ever"})

OUT_CAUSES: Mapping[str, Words] = {
    "cordoned": gettext_lazy("cordoned"),
    "draining": gettext_lazy("being drained"),
    "not_ready": gettext_lazy("not ready"),
    "unhealthy": gettext_lazy("unhealthy GPUs"),
    "taint": gettext_lazy("a taint"),
    "window": gettext_lazy("maintenance"),
    "no_device_plugin": gettext_lazy("no device plugin"),
    "driver": gettext_lazy("the driver"),
    "unmanaged": gettext_lazy("not managed"),
    "suspect": gettext_lazy("suspected after failed starts"),
}
RESOURCES: Mapping[str, Words] = {
    "gpus": gettext_lazy("GPUs"),
    "cpu": gettext_lazy("CPU"),
    "memory": gettext_lazy("memory"),
    "pods": gettext_lazy("room for pods"),
}


def sentence(code: str, numbers: Numbers) -> str:
    """Why the job waits, in one sentence with numbers. Numbers that are missing make it plainer, never wrong."""
    speak = _SENTENCES.get(code)
    if speak is None:
        return code.replace("_", " ")
    try:
        return speak(numbers)
    except (KeyError, TypeError, ValueError, OverflowError):
        return str(_PLAIN.get(code, code.replace("_", " ")))


def hint(code: str, numbers: Numbers) -> str:
    """What a person can do about it; empty where there is nothing but to wait."""
    advise = _HINTS.get(code)
    if advise is None:
        return ""
    try:
        return advise(numbers)
    except (KeyError, TypeError, ValueError, OverflowError):
        return ""


def answer(code: str, numbers: Numbers) -> dict[str, Any]:
    """A reason as the API shows it: code, sentence, hint, and the numbers with times in RFC 3339."""
    return {
        "code": code,
        "message": sentence(code, numbers),
        "hint": hint(code, numbers),
        "numbers": {name: _shown(name, value) for name, value in numbers.items()},
    }


def jobs_named(numbers: Iterable[Numbers]) -> set[str]:
    """The ids of jobs that these numbers name."""
    return {
        str(each[name])
        for each in numbers
        for name in JOB_NUMBERS
        if isinstance(each.get(name), str)
    }


def redacted(
    numbers: Numbers, visible_jobs: Collection[str], visible_tenants: Collection[str] | None
) -> dict[str, Any]:
    """The numbers without names of jobs and tenants that the reader may not see. None: sees all tenants."""
    kept = dict(numbers)
    for name in JOB_NUMBERS:
        if kept.get(name) is not None and kept[name] not in visible_jobs:
            kept[name] = None
    for name in TENANT_NUMBERS:
        hidden = visible_tenants is not None and kept.get(name) not in visible_tenants
        if name in kept and hidden:
            kept[name] = None
    return kept


def _shown(name: str, value: Any) -> Any:
    """Times as text; everything else as it is."""
    if value is None or isinstance(value, str | bool) or not name.endswith(("_at", "_until")):
        return value
    return _time(value).isoformat().replace("+00:00", "Z")


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=0)


def _clock(numbers: Numbers, name: str) -> str:
    value = numbers[name]
    return moment(datetime.fromisoformat(value) if isinstance(value, str) else _time(value))


# --- sentences ---


def _dependency(n: Numbers) -> str:
    if n.get("first_dependency") and n["open_dependencies"] == 1:
        return _("Waits for {job} to end first.").format(job=n["first_dependency"])
    return _("Waits for {open_dependencies} other jobs to end first.").format(**n)


def _quota(n: Numbers) -> str:
    return _(
        "Needs {needed_gpus} GPUs of {flavor}; tenant {tenant} may use {available_gpus} more now "
        "({used_gpus} of {nominal_gpus} nominal in use)."
    ).format(**n)


def _user_limit(n: Numbers) -> str:
    if n["scope"] == "queue":
        text = _(
            "Needs {needed_gpus} GPUs of {flavor}; the queue uses {used_gpus} of its limit of {limit_gpus}."
        )
    else:
        text = _(
            "Needs {needed_gpus} GPUs of {flavor}; the user uses {used_gpus} of a limit of {limit_gpus}."
        )
    return text.format(**n)


def _fair_share(n: Numbers) -> str:
    if n.get("lowest_tenant"):
        return _(
            "Needs {needed_gpus} GPUs of {flavor}; tenant {lowest_tenant} has used less of its share "
            "and goes first."
        ).format(**n)
    return _(
        "Needs {needed_gpus} GPUs of {flavor}; another tenant has used less of its share and goes first."
    ).format(**n)


def _nodes(n: Numbers) -> str:
    scarce = n["limiting_resource"]
    if scarce == "gpus":
        return _(
            "Needs {needed_gpus} GPUs on {needed_nodes} nodes of {flavor}; {free_gpus} are free, "
            "room for {free_replicas} of {needed_replicas} replicas."
        ).format(**n)
    return _(
        "There is not enough {resource} beside free GPUs: room for {free_replicas} of {needed_replicas} "
        "replicas on nodes of {flavor}."
    ).format(**{**n, "resource": RESOURCES.get(scarce, scarce)})


def _topology(n: Numbers) -> str:
    return _(
        "Needs {needed_nodes} nodes in one {level}; the nearest miss is {best_domain}, with {free_there} free."
    ).format(**n)


def _unhealthy(n: Numbers) -> str:
    cause = OUT_CAUSES.get(str(n["main_cause"]), n["main_cause"])
    return _(
        "Needs {needed_nodes} nodes of {flavor}; {nodes_out} are out of service, most because of: {cause}."
    ).format(**{**n, "cause": cause})


def _reservation(n: Numbers) -> str:
    return _("{reserved_nodes} nodes that it needs are kept for others until {until}.").format(
        reserved_nodes=n["reserved_nodes"], until=_clock(n, "ends_at")
    )


def _maintenance(n: Numbers) -> str:
    return _(
        "It would run into maintenance that begins {at}; a job of at most {longest} could start now."
    ).format(at=_clock(n, "starts_at"), longest=duration(n["longest_seconds"]))


def _booking(n: Numbers) -> str:
    ahead = n.get("booked_job")
    values = {
        "job": ahead,
        "at": _clock(n, "booked_at"),
        "longest": duration(n["longest_seconds"]),
    }
    if ahead:
        return _(
            "Starting now would delay {job}, which is to start {at}; a job of at most {longest} could start now."
        ).format(**values)
    return _(
        "Starting now would delay a job ahead, which is to start {at}; a job of at most {longest} could start now."
    ).format(**values)


def _ahead(n: Numbers) -> str:
    if n.get("first_job"):
        return _(
            "{jobs_ahead} jobs with a higher priority go first, {first_job} at the head."
        ).format(**n)
    return _("{jobs_ahead} jobs with a higher priority go first.").format(**n)


def _preempted(n: Numbers) -> str:
    return _(
        "{stopping_jobs} jobs are saving and leaving to make room; {freed_gpus} GPUs come free by {at}."
    ).format(stopping_jobs=n["stopping_jobs"], freed_gpus=n["freed_gpus"], at=_clock(n, "free_at"))


def _never_in_cluster(n: Numbers) -> str:
    if n.get("flavor", "") is None:
        return _("The cluster has no node of a flavor that it may use.")
    if n.get("level"):
        return _(
            "No {level} of the cluster can ever hold it: {most_replicas} of {needed_replicas} replicas fit."
        ).format(**n)
    return _(
        "The cluster can never hold it: {most_replicas} of {needed_replicas} replicas fit on {flavor}."
    ).format(**n)


def _refused(n: Numbers) -> str:
    return _("Kubernetes refused its pods: {refusal}. The next try is {at}.").format(
        refusal=n["refusal"], at=_clock(n, "refused_until")
    )


def _text(words: Promise) -> Callable[[Numbers], str]:
    return lambda n: str(words).format(**n)


_SENTENCES: Mapping[str, Callable[[Numbers], str]] = {
    "queue_held": _text(gettext_lazy("Queue {queue} is held: it starts no jobs.")),
    "queue_closed": _text(gettext_lazy("Queue {queue} is closed.")),
    "cluster_paused": _text(gettext_lazy("Cluster {cluster} is paused: nothing starts on it.")),
    "cluster_observing": _text(
        gettext_lazy("Cluster {cluster} is only observed: Muster starts nothing on it.")
    ),
    "cluster_unreachable": _text(gettext_lazy("Cluster {cluster} cannot be reached.")),
    "waiting_for_dependency": _dependency,
    "begin_time": lambda n: _("It may not start before {at}.").format(at=_clock(n, "begin_at")),
    "backoff": lambda n: _("It pauses after a fault and tries again {at}.").format(
        at=_clock(n, "backoff_until")
    ),
    "refused_by_kubernetes": _refused,
    "exceeds_quota_for_ever": _text(
        gettext_lazy(
            "Needs {needed_gpus} GPUs of {flavor}; tenant {tenant} can never use more than {most_gpus}."
        )
    ),
    "exceeds_cluster_for_ever": _never_in_cluster,
    "waiting_for_preempted": _preempted,
    "higher_priority_ahead": _ahead,
    "user_limit": _user_limit,
    "waiting_for_quota": _quota,
    "waiting_for_fair_share": _fair_share,
    "waiting_for_driver": _text(
        gettext_lazy(
            "Needs {needed_nodes} nodes whose driver has CUDA {min_cuda}; {new_enough_nodes} have it, "
            "{too_old_nodes} are too old."
        )
    ),
    "unhealthy_nodes": _unhealthy,
    "waiting_for_nodes": _nodes,
    "waiting_for_topology": _topology,
    "waiting_for_reservation": _reservation,
    "waiting_for_maintenance": _maintenance,
    "waiting_for_booking": _booking,
    "not_yet_considered": lambda _n: _("The planner has not looked at it yet."),
}

# Without numbers: what can still be said.
_PLAIN: Mapping[str, Words] = {
    "queue_held": gettext_lazy("The queue is held: it starts no jobs."),
    "queue_closed": gettext_lazy("The queue is closed."),
    "cluster_paused": gettext_lazy("The cluster is paused: nothing starts on it."),
    "cluster_observing": gettext_lazy("The cluster is only observed."),
    "cluster_unreachable": gettext_lazy("The cluster cannot be reached."),
    "waiting_for_dependency": gettext_lazy("Waits for another job to end first."),
    "begin_time": gettext_lazy("It may not start before its begin time."),
    "backoff": gettext_lazy("It pauses after a fault before it tries again."),
    "refused_by_kubernetes": gettext_lazy("Kubernetes refused its pods."),
    "exceeds_quota_for_ever": gettext_lazy("It needs more than the quota can ever be."),
    "exceeds_cluster_for_ever": gettext_lazy("It needs more than the cluster has."),
    "waiting_for_preempted": gettext_lazy("Other jobs are saving and leaving to make room."),
    "higher_priority_ahead": gettext_lazy("Jobs with a higher priority go first."),
    "user_limit": gettext_lazy("A limit within the tenant is in use."),
    "waiting_for_quota": gettext_lazy("The tenant's quota is in use."),
    "waiting_for_fair_share": gettext_lazy(
        "Another tenant has used less of its share and goes first."
    ),
    "waiting_for_driver": gettext_lazy("Too many nodes have drivers too old for the CUDA asked."),
    "unhealthy_nodes": gettext_lazy("Nodes that it needs are out of service."),
    "waiting_for_nodes": gettext_lazy("Not enough nodes that match are free."),
    "waiting_for_topology": gettext_lazy("Enough is free, but no domain holds the job whole."),
    "waiting_for_reservation": gettext_lazy("Nodes that it needs are kept for others."),
    "waiting_for_maintenance": gettext_lazy("It would run into maintenance."),
    "waiting_for_booking": gettext_lazy("Starting now would delay a job ahead."),
}


# --- what to do ---


def _shorter(n: Numbers) -> str:
    if n["longest_seconds"] < 60:
        return ""
    return _("Lower max_runtime_seconds to {seconds} ({longest}) or less.").format(
        seconds=int(n["longest_seconds"]), longest=duration(n["longest_seconds"])
    )


def _quota_hint(n: Numbers) -> str:
    told = {"used_gpus", "needed_gpus", "nominal_gpus"} <= n.keys()
    if told and n["used_gpus"] + n["needed_gpus"] <= n["nominal_gpus"]:
        return _(
            "The tenant is within its own quota: what others have borrowed of it comes back when their jobs end, or"
            " sooner where these may be preempted and have had their minimum run time."
        )
    return _(
        "It starts when jobs of the tenant end; {available_gpus} GPUs would start now."
    ).format(**n)


_HINTS: Mapping[str, Callable[[Numbers], str]] = {
    "queue_held": lambda _n: _("An admin of the tenant can open the queue again."),
    "queue_closed": lambda _n: _("An admin of the tenant can open the queue again."),
    "cluster_paused": lambda _n: _("A platform admin can let the cluster schedule again."),
    "cluster_observing": lambda _n: _("A platform admin can set the cluster's mode to schedule."),
    "exceeds_quota_for_ever": lambda n: _(
        "Ask for at most {most_gpus} GPUs, or ask for more quota."
    ).format(**n),
    "exceeds_cluster_for_ever": lambda n: (
        _("Ask for at most {most_replicas} replicas, or make the topology preferred.").format(**n)
        if n["most_replicas"]
        else _("Choose another GPU model or queue, or ask a platform admin.")
    ),
    "user_limit": lambda _n: _("An admin of the tenant can raise the limit."),
    "waiting_for_quota": _quota_hint,
    "waiting_for_driver": lambda _n: _("A lower min_cuda would fit more nodes."),
    "waiting_for_topology": lambda _n: _(
        "Topology “preferred”, or a wider level, would fit sooner."
    ),
    "waiting_for_nodes": lambda n: (
        _(
            "A gang of {free_replicas} replicas would fit now; min_replicas lets it start smaller."
        ).format(**n)
        if n["free_replicas"]
        else ""
    ),
    "waiting_for_maintenance": _shorter,
    "waiting_for_booking": _shorter,
    "refused_by_kubernetes": lambda _n: _(
        "Mend what Kubernetes names; the job tries again by itself."
    ),
}
