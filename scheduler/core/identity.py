"""Names of equal things: class keys of waiting jobs, identities of plans.

`class_key` is stored on verdict rows, so it must be stable across processes and releases:
it hashes a canonical text, never Python's `hash`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

from scheduler.core.inputs.jobs import Ask, Role, WaitingJob
from scheduler.core.outputs import Eviction, Start

_BUCKETS_PER_DOUBLING = 2


def limit_bucket(max_runtime_seconds: float | None) -> int | None:
    """The class bucket of a run-time limit: half an octave wide, None without a limit."""
    if max_runtime_seconds is None:
        return None
    return math.floor(_BUCKETS_PER_DOUBLING * math.log2(max(1.0, max_runtime_seconds)))


def class_key(job: WaitingJob, *, by_user: bool = False) -> str:
    """The key of the class of jobs that are alike in all that the planner reads.

    `by_user` where the user has a limit or the queue orders by users' usage. Jobs with survivors
    of an earlier attempt are a class of their own. 16 hexadecimal digits.
    """
    key = ask_key(job.ask, by_user=by_user)
    if not job.survivors:
        return key
    return _digest([key, job.id])


def ask_key(ask: Ask, *, by_user: bool = False) -> str:
    """`class_key` of any job that asks `ask` and has no survivors."""
    parts: list[object] = [
        ask.tenant,
        ask.queue,
        ask.user if by_user else None,
        ask.flavors,
        ask.priority,
        ask.preemptible,
        limit_bucket(ask.max_runtime_seconds),
        ask.checkpoint is not None,
        sorted(ask.node_selector),
        sorted(ask.exclude_nodes),
        ask.min_cuda,
        [_role_parts(role) for role in ask.roles],
    ]
    return _digest(parts)


def plan_identity(
    starts: Iterable[Start], evictions: Iterable[Eviction], touched: Iterable[tuple[str, int]]
) -> str:
    """Hash of the decisions and of the (name, version) pairs that they touch."""
    parts: list[object] = [
        [
            (s.job, s.job_version, s.flavor, [(t.role, t.replica, t.node) for t in s.seats])
            for s in starts
        ],
        [(e.job, e.attempt, e.preemptor, e.keeps_replicas) for e in evictions],
        sorted(touched),
    ]
    return _digest(parts)


def _role_parts(role: Role) -> tuple[object, ...]:
    topology = role.topology
    cut = None if topology.slice is None else (topology.slice.replicas, topology.slice.level)
    return (
        role.name,
        role.replicas,
        role.least_replicas,
        role.per_replica.as_tuple(),
        role.tensor_parallel,
        topology.required,
        topology.preferred,
        cut,
    )


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
