"""Raw Node and Pod JSON → `seen` dataclasses; pure. Called by `watching`, `pods` and `nodes`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from sys import intern
from typing import Any

from scheduler.kube.quantities import (
    MIB,
    count,
    exact,
    mib_offered,
    millis_offered,
    rounded_up,
)
from scheduler.kube.seen import (
    OUR_PREFIX,
    ConditionSeen,
    ContainerSeen,
    NodeEvent,
    NodeSeen,
    PodSeen,
    Requests,
    TaintSeen,
)

Raw = Mapping[str, Any]

# GPU Feature Discovery's labels, newest first; AMD's labeller after them. The version that a
# driver supports (cuda.runtime-version) is what `min_cuda` is compared with.
DRIVER_LABELS = ("nvidia.com/cuda.driver-version.full", "amd.com/gpu.driver-version")
CUDA_LABELS = ("nvidia.com/cuda.runtime-version.full",)
OLD_DRIVER_LABELS = ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor")
OLD_CUDA_LABELS = ("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor")


def parse_time(text: str | None) -> datetime | None:
    """An RFC 3339 time as the server writes it (UTC, with or without microseconds)."""
    return datetime.fromisoformat(text) if text else None


def parse_node(raw: Raw) -> NodeSeen:
    """One Node object."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels = _interned(metadata.get("labels"))
    allocatable = status.get("allocatable") or {}
    system = status.get("nodeInfo") or {}
    return NodeSeen(
        name=intern(metadata["name"]),
        uid=metadata["uid"],
        version=metadata.get("resourceVersion", ""),
        labels=labels,
        capacity_devices=_devices(status.get("capacity") or {}),
        allocatable_devices=_devices(allocatable),
        cpu_millis=millis_offered(allocatable.get("cpu", 0)),
        memory_mib=mib_offered(allocatable.get("memory", 0)),
        pods=count(allocatable.get("pods", 0)),
        taints=tuple(
            TaintSeen(t["key"], t.get("value") or "", t["effect"], parse_time(t.get("timeAdded")))
            for t in spec.get("taints") or ()
        ),
        unschedulable=bool(spec.get("unschedulable")),
        conditions=tuple(_condition(c) for c in status.get("conditions") or ()),
        driver=_version(labels, DRIVER_LABELS, OLD_DRIVER_LABELS),
        cuda=_version(labels, CUDA_LABELS, OLD_CUDA_LABELS),
        boot_id=system.get("bootID") or "",
        kubelet_version=system.get("kubeletVersion") or "",
        address=_address(status.get("addresses") or ()),
        deleting="deletionTimestamp" in metadata,
    )


def parse_node_event(raw: Raw) -> NodeEvent:
    """One Event about a node."""
    at = raw.get("lastTimestamp") or raw.get("eventTime") or raw.get("firstTimestamp")
    return NodeEvent(
        node=(raw.get("involvedObject") or {}).get("name") or "",
        reason=raw.get("reason") or "",
        message=raw.get("message") or "",
        at=parse_time(at),
    )


def parse_pod(raw: Raw) -> PodSeen:
    """One Pod object."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    return PodSeen(
        namespace=intern(metadata.get("namespace") or ""),
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata.get("resourceVersion", ""),
        node=intern(spec["nodeName"]) if spec.get("nodeName") else None,
        phase=intern(status.get("phase") or "Pending"),
        reason=intern(status.get("reason") or ""),
        message=status.get("message") or "",
        labels=_ours(metadata.get("labels")),
        annotations=_ours(metadata.get("annotations")),
        requests=requests_of(spec),
        scheduler=intern(spec.get("schedulerName") or ""),
        owner=_owner(metadata.get("ownerReferences") or ()),
        priority_class=intern(spec.get("priorityClassName") or ""),
        created_at=parse_time(metadata.get("creationTimestamp")),
        started_at=parse_time(status.get("startTime")),
        deleting_since=parse_time(metadata.get("deletionTimestamp")),
        deletion_grace_seconds=metadata.get("deletionGracePeriodSeconds"),
        disruption=_disruption(status.get("conditions") or ()),
        containers=_containers(status),
    )


def requests_of(spec: Raw) -> Requests:
    """What a pod of this spec takes from its node.

    The rule of Kubernetes' PodRequests: containers and restartable init containers add up; an
    init container counts beside the restartable ones before it; the larger of the two, plus the
    runtime's overhead; a pod-level amount wins for CPU and memory.
    """
    return _requests_of(_shape_of(spec))


# Amounts as they stand: (limits, requests) pairs of (name, quantity).
_Amounts = tuple[tuple[str, str], ...]
_Container = tuple[_Amounts, _Amounts, bool]
_Shape = tuple[tuple[_Container, ...], tuple[_Container, ...], _Container, _Amounts]


def _shape_of(spec: Raw) -> _Shape:
    """All that requests depend on. A cluster has ten thousand pods, and few shapes of them."""
    return (
        tuple(_container_shape(c) for c in spec.get("containers") or ()),
        tuple(_container_shape(c) for c in spec.get("initContainers") or ()),
        _container_shape(spec),
        tuple((spec.get("overhead") or {}).items()),
    )


def _container_shape(container: Raw) -> _Container:
    resources = container.get("resources") or {}
    return (
        tuple((resources.get("limits") or {}).items()),
        tuple((resources.get("requests") or {}).items()),
        container.get("restartPolicy") == "Always",
    )


@lru_cache(maxsize=4096)
def _requests_of(shape: _Shape) -> Requests:
    containers, first, whole, overhead = shape
    running = _sum(_asked(c) for c in containers)
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in first:
        asked = _asked(container)
        if container[2]:
            sidecars = _sum((sidecars, asked))
            asked = sidecars
        else:
            asked = _sum((sidecars, asked))
        peak = _larger(peak, asked)
    total = _larger(peak, _sum((running, sidecars)))
    total.update({k: v for k, v in _asked(whole).items() if k in ("cpu", "memory")})
    return _requests(_sum((total, _exact_all(overhead))))


def _requests(total: Mapping[str, Fraction]) -> Requests:
    return Requests(
        devices=_whole(total),
        cpu_millis=rounded_up(total.get("cpu", Fraction(0)) * 1000),
        memory_mib=rounded_up(total.get("memory", Fraction(0)) / MIB),
    )


def _whole(total: Mapping[str, Fraction]) -> dict[str, int]:
    return {intern(k): rounded_up(v) for k, v in total.items() if is_device(k) and v > 0}


def _asked(container: _Container) -> dict[str, Fraction]:
    # The server copies limits into requests; objects that never met one may lack them.
    limits, requests, _restarts = container
    return _exact_all((*limits, *requests))


def _exact_all(amounts: Iterable[tuple[str, str]]) -> dict[str, Fraction]:
    return {name: exact(amount) for name, amount in amounts}


def _sum(parts: Iterable[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    total: defaultdict[str, Fraction] = defaultdict(Fraction)
    for part in parts:
        for name, amount in part.items():
            total[name] += amount
    return dict(total)


def _larger(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    zero = Fraction(0)
    return {k: max(one.get(k, zero), other.get(k, zero)) for k in {*one, *other}}


def is_device(resource: str) -> bool:
    """True for an extended resource (`vendor/name`); Kubernetes' own have no prefix."""
    return "/" in resource and not resource.startswith("kubernetes.io/")


def _devices(amounts: Mapping[str, str]) -> dict[str, int]:
    return {intern(name): count(amount) for name, amount in amounts.items() if is_device(name)}


def _interned(labels: Mapping[str, str] | None) -> dict[str, str]:
    return {intern(k): intern(v) for k, v in (labels or {}).items()}


def _ours(names: Mapping[str, str] | None) -> dict[str, str]:
    return {intern(k): v for k, v in (names or {}).items() if k.startswith(OUR_PREFIX)}


def _condition(raw: Raw) -> ConditionSeen:
    return ConditionSeen(
        type=intern(raw["type"]),
        status=intern(raw["status"]),
        reason=intern(raw.get("reason") or ""),
        message=raw.get("message") or "",
        since=parse_time(raw.get("lastTransitionTime")),
    )


def _version(
    labels: Mapping[str, str], full: tuple[str, ...], parts: tuple[str, ...]
) -> str | None:
    for label in full:
        if labels.get(label):
            return labels[label]
    joined = [labels[label] for label in parts if labels.get(label)]
    return ".".join(joined) or None


def _address(addresses: Iterable[Raw]) -> str | None:
    return next((a["address"] for a in addresses if a.get("type") == "InternalIP"), None)


def _owner(references: Iterable[Raw]) -> str | None:
    return next((f"{r['kind']}/{r['name']}" for r in references if r.get("controller")), None)


def _disruption(conditions: Iterable[Raw]) -> str:
    return next(
        (
            c.get("reason") or "DisruptionTarget"
            for c in conditions
            if c["type"] == "DisruptionTarget" and c["status"] == "True"
        ),
        "",
    )


def _containers(status: Raw) -> tuple[ContainerSeen, ...]:
    return tuple(
        _container(raw, init=init)
        for kind, init in (("initContainerStatuses", True), ("containerStatuses", False))
        for raw in status.get(kind) or ()
    )


def _container(raw: Raw, *, init: bool) -> ContainerSeen:
    name, state = _state(raw.get("state") or {})
    return ContainerSeen(
        name=intern(raw["name"]),
        init=init,
        state=name,
        reason=intern(state.get("reason") or ""),
        message=state.get("message") or "",
        exit_code=state.get("exitCode"),
        started_at=parse_time(state.get("startedAt")),
        finished_at=parse_time(state.get("finishedAt")),
        restarts=raw.get("restartCount") or 0,
    )


def _state(state: Raw) -> tuple[str, Raw]:
    for name in ("terminated", "running", "waiting"):
        if state.get(name) is not None:
            return name, state[name]
    return "waiting", {}
