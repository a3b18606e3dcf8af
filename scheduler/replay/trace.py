"""Traces as text: one CSV row a job, one CSV row a node. Read by the `replay` command.

Columns are described in `docs/scheduling.md`. Files are opened by the caller; this room only reads
lines. A share of a GPU counts as a whole one: sharing is not built.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from scheduler.core.inputs.cluster import Node
from scheduler.core.inputs.jobs import Ask, Role, TopologyAsk, WaitingJob
from scheduler.core.resources import Amount

TENANT = "trace"
QUEUE = "trace/queue"
FLAVOR = "gpu"

_MANY = 1 << 40
"""What a node offers of a resource that the trace does not tell."""


class TraceError(ValueError):
    """A row that cannot be read; the message names line, column and value."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace: what is asked, and how long it really runs."""

    waiting: WaitingJob
    duration_seconds: float


def read_nodes(lines: Iterable[str]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Nodes and the levels that the file has, widest first. Raises TraceError."""
    rows = list(csv.DictReader(lines))
    levels = tuple(level for level in ("spine", "leaf") if any(row.get(level) for row in rows))
    return tuple(_node(row, number, levels) for number, row in enumerate(rows, 2)), levels


def read_jobs(lines: Iterable[str], levels: tuple[str, ...]) -> tuple[TraceJob, ...]:
    """Jobs in file order; gangs prefer one leaf where there are leaves. Raises TraceError."""
    topology = TopologyAsk(preferred=levels[-1]) if levels else TopologyAsk()
    asks: dict[Ask, Ask] = {}
    return tuple(
        _job(row, number, topology, asks) for number, row in enumerate(csv.DictReader(lines), 2)
    )


def shuffled(jobs: tuple[TraceJob, ...], seed: int) -> tuple[TraceJob, ...]:
    """The same jobs in another order: submit times stay, who comes when is drawn."""
    drawn = list(jobs)
    random.Random(seed).shuffle(drawn)
    return tuple(
        replace(job, waiting=replace(job.waiting, submitted_at=place.waiting.submitted_at))
        for job, place in zip(drawn, jobs, strict=True)
    )


def _node(row: dict[str, str], number: int, levels: tuple[str, ...]) -> Node:
    cores, gib = _float(row, "cpu", number), _float(row, "mem_gib", number)
    return Node(
        name=_text(row, "node", number),
        flavor=FLAVOR,
        capacity=Amount(
            gpus=_int(row, "gpus", number),
            cpu_millis=_MANY if cores is None else round(cores * 1000),
            memory_mib=_MANY if gib is None else round(gib * 1024),
            pods=_MANY,
        ),
        domains=tuple((level, row[level]) for level in levels if row.get(level)),
        labels=(("gpu_model", row.get("gpu_model") or ""),),
    )


def _job(row: dict[str, str], number: int, topology: TopologyAsk, asks: dict[Ask, Ask]) -> TraceJob:
    cores, gib = _float(row, "cpu_per_replica", number), _float(row, "mem_gib_per_replica", number)
    per_replica = Amount(
        gpus=_int(row, "gpus_per_replica", number),
        cpu_millis=0 if cores is None else math.ceil(cores * 1000),
        memory_mib=0 if gib is None else math.ceil(gib * 1024),
        pods=1,
    )
    model = row.get("gpu_model")
    ask = Ask(
        tenant=TENANT,
        queue=QUEUE,
        user=row.get("tenant") or "",
        flavors=(FLAVOR,),
        roles=(Role("main", _int(row, "replicas", number), per_replica, topology=topology),),
        max_runtime_seconds=_float(row, "estimate_s", number),
        grace_seconds=0.0,
        node_selector=(("gpu_model", model),) if model else (),
    )
    submitted = _float(row, "submit_s", number)
    duration = _float(row, "duration_s", number)
    if submitted is None or duration is None:
        raise TraceError(f"line {number}: submit_s and duration_s are needed")
    name = f"{number:09d}-{row.get('job_id', '')}"
    return TraceJob(WaitingJob(name, asks.setdefault(ask, ask), submitted), duration)


def _text(row: dict[str, str], column: str, number: int) -> str:
    value = row.get(column)
    if not value:
        raise TraceError(f"line {number}: column {column} is empty")
    return value


def _int(row: dict[str, str], column: str, number: int) -> int:
    value = _text(row, column, number)
    try:
        found = int(value)
    except ValueError:
        raise TraceError(f"line {number}: {column} is {value!r}, not a whole number") from None
    if found < 0:
        raise TraceError(f"line {number}: {column} is {value!r}, less than nothing")
    return found


def _float(row: dict[str, str], column: str, number: int) -> float | None:
    value = row.get(column)
    if not value:
        return None
    try:
        found = float(value)
    except ValueError:
        raise TraceError(f"line {number}: {column} is {value!r}, not a number") from None
    if not 0 <= found < math.inf:
        raise TraceError(f"line {number}: {column} is {value!r}, not a length or an amount")
    return found
