"""The changes to an ask that might let it start sooner, one thing changed at a time.

The cycle tries each on the state that the job itself met; nothing here says that one works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from scheduler.core.inputs.cluster import NODE_LEVEL
from scheduler.core.inputs.jobs import Ask, Checkpoint, TopologyAsk
from scheduler.core.reasons import Numbers, Reason, ReasonCode

_LEAST_LIMIT_SECONDS = 60.0
_CROSSABLE = (ReasonCode.WAITING_FOR_MAINTENANCE, ReasonCode.WAITING_FOR_RESERVATION)

CHECKPOINT = Checkpoint(interval_seconds=1_800.0, grace_seconds=120.0)
"""The checkpointing that is suggested to a job that has none."""


@dataclass(frozen=True, slots=True)
class Variant:
    """An ask with one thing changed; `change` names it as the job contract does.

    Where `sized` is set the change is the size that is found, not one that is asked.
    """

    change: Numbers
    ask: Ask
    sized: bool = False


def variants(
    ask: Ask, reasons: Sequence[Reason], levels: Sequence[str], flavors: Sequence[str]
) -> Iterator[Variant]:
    """Fewer replicas, wider level, no slices, shorter limit, checkpoints, any CUDA version, other
    flavors, any node, lent quota.

    `levels` are the cluster's, widest first; `flavors` all that there are.
    """
    yield from _fewer(ask)
    yield from _wider(ask, levels)
    yield from _shorter(ask, reasons)
    if ask.checkpoint is None and any(reason.code in _CROSSABLE for reason in reasons):
        change: Numbers = {"checkpoint.interval_seconds": CHECKPOINT.interval_seconds}
        yield Variant(change, replace(ask, checkpoint=CHECKPOINT))
    if ask.min_cuda is not None and _needs_new_driver(reasons):
        yield Variant({"min_cuda": None}, replace(ask, min_cuda=None))
    for flavor in flavors:
        if flavor not in ask.flavors:
            yield Variant({"gpu_model": flavor}, replace(ask, flavors=(flavor,)))
    if ask.node_selector or ask.exclude_nodes:
        free = replace(ask, node_selector=(), exclude_nodes=frozenset())
        yield Variant({"node_selector": None}, free)
    if not ask.preemptible:
        yield Variant({"preemptible": True}, replace(ask, preemptible=True))


def _needs_new_driver(reasons: Sequence[Reason]) -> bool:
    return any(reason.code is ReasonCode.WAITING_FOR_DRIVER for reason in reasons)


def _fewer(ask: Ask) -> Iterator[Variant]:
    if len(ask.roles) != 1 or ask.roles[0].least_replicas <= 1:
        return
    role = ask.roles[0]
    smaller = replace(role, replicas=role.least_replicas - 1, min_replicas=1)
    yield Variant({"replicas": smaller.replicas}, replace(ask, roles=(smaller,)), sized=True)


def _wider(ask: Ask, levels: Sequence[str]) -> Iterator[Variant]:
    narrow_to_wide = [NODE_LEVEL, *reversed(levels)]
    for required in dict.fromkeys(role.topology.required for role in ask.roles):
        if required not in narrow_to_wide:
            continue
        wider: list[str | None] = [*narrow_to_wide[narrow_to_wide.index(required) + 1 :], None]
        for level in wider:
            yield Variant({"topology.level": level}, _with_level(ask, required, level))
    if any(role.topology.slice is not None for role in ask.roles):
        whole = tuple(
            replace(role, topology=replace(role.topology, slice=None)) for role in ask.roles
        )
        yield Variant({"topology.slice": None}, replace(ask, roles=whole))


def _with_level(ask: Ask, required: str | None, level: str | None) -> Ask:
    def changed(topology: TopologyAsk) -> TopologyAsk:
        if topology.required != required:
            return topology
        return replace(topology, required=level, preferred=topology.preferred or required)

    roles = tuple(replace(role, topology=changed(role.topology)) for role in ask.roles)
    return replace(ask, roles=roles)


def _shorter(ask: Ask, reasons: Sequence[Reason]) -> Iterator[Variant]:
    for reason in reasons:
        longest = reason.numbers.get("longest_seconds")
        if isinstance(longest, float) and _LEAST_LIMIT_SECONDS <= longest < ask.limit:
            limit = float(int(longest))
            yield Variant({"max_runtime_seconds": limit}, replace(ask, max_runtime_seconds=limit))
