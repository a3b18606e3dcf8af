"""Small builders of core objects for tests: node("n1"), gang("a", 4), snapshot(...)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scheduler.core.inputs.cluster import Cluster, Flavor, Node
from scheduler.core.inputs.jobs import Ask, Role, RunningJob, Seat, TopologyAsk, WaitingJob
from scheduler.core.inputs.quotas import Cohort, FlavorQuota, Queue, Tenant
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.invariants import check_plan
from scheduler.core.outputs import Plan, Start
from scheduler.core.planner import plan
from scheduler.core.reasons import Number
from scheduler.core.resources import Amount

NOW = 1_700_000_000.0
H100 = Flavor("h100", gpus_per_nvlink_domain=8)
BIG = Amount(gpus=8, cpu_millis=128_000, memory_mib=1_000_000, pods=110)


def node(name: str, leaf: str | None = None, spine: str | None = None, **changes: Any) -> Node:
    """A node of 8 H100s."""
    domains = tuple((k, v) for k, v in (("spine", spine), ("leaf", leaf)) if v is not None)
    made = Node(name=name, flavor="h100", capacity=BIG, domains=domains)
    return replace(made, **changes)


def fabric(spines: int, leaves: int, nodes: int, **changes: Any) -> tuple[Node, ...]:
    """`spines` × `leaves` × `nodes` nodes, named in topological order."""
    return tuple(
        node(f"n-{s}-{leaf}-{n:02d}", f"leaf-{s}-{leaf}", f"spine-{s}", **changes)
        for s in range(spines)
        for leaf in range(leaves)
        for n in range(nodes)
    )


def role(replicas: int = 1, gpus: int = 8, **changes: Any) -> Role:
    """A role of whole-node replicas by default."""
    made = Role("main", replicas, Amount(gpus=gpus, cpu_millis=1_000, memory_mib=1_024, pods=1))
    return replace(made, **changes)


def ask(*roles: Role, **changes: Any) -> Ask:
    """An ask of tenant `t`, queue `t/train`."""
    made = Ask("t", "t/train", "u", ("h100",), roles or (role(),), max_runtime_seconds=3_600.0)
    return replace(made, **changes)


def job(name: str, wanted: Ask, age: float = 0.0, **changes: Any) -> WaitingJob:
    """A job submitted `age` seconds ago."""
    return replace(WaitingJob(name, wanted, NOW - age), **changes)


def gang(
    name: str, replicas: int, gpus: int = 8, level: str | None = None, **changes: Any
) -> WaitingJob:
    """A job of one role; `level` is required."""
    return job(name, ask(role(replicas, gpus, topology=TopologyAsk(required=level))), **changes)


def running(
    name: str, *places: tuple[str, int], wanted: Ask | None = None, **changes: Any
) -> RunningJob:
    """A job with one replica of so many GPUs on each named node."""
    seats = tuple(
        Seat("main", i, i, where, gpus, 1_000, 1_024) for i, (where, gpus) in enumerate(places)
    )
    gpus = places[0][1] if places else 8
    wanted = wanted or ask(role(len(places), gpus))
    made = RunningJob(name, 1, wanted, "h100", seats, placed_at=NOW - 60, started_at=NOW - 50)
    return replace(made, **changes)


def tenant(
    name: str = "t", nominal: int = 100_000, cohort: str | None = None, **quota: Any
) -> Tenant:
    """A tenant with quota of H100."""
    return Tenant(name, cohort, (FlavorQuota("h100", nominal, **quota),))


def snapshot(nodes: tuple[Node, ...], *waiting: WaitingJob, **changes: Any) -> Snapshot:
    """A cluster with levels spine > leaf and one rich tenant."""
    made = Snapshot(
        now=NOW,
        cluster=Cluster("c", levels=("spine", "leaf")),
        flavors=(H100,),
        nodes=nodes,
        tenants=(tenant(),),
        queues=(Queue("t/train", "t"),),
        waiting=waiting,
    )
    return replace(made, **changes)


def cohort(name: str = "co", **changes: Any) -> Cohort:
    """A cohort without own quota."""
    return replace(Cohort(name), **changes)


def planned(given: Snapshot, options: Options | None = None) -> Plan:
    """The plan, with every invariant checked."""
    made = plan(given, options or Options())
    assert check_plan(given, made) == []
    return made


def started(made: Plan) -> list[str]:
    """Ids of the jobs that start, in order."""
    return [start.job for start in made.starts]


def start_of(made: Plan, name: str) -> Start:
    """The start of one job."""
    return next(start for start in made.starts if start.job == name)


def numbers_of(made: Plan, name: str) -> Mapping[str, Number]:
    """The numbers of one waiting job's dominant reason."""
    reason = made.reason_of(name)
    assert reason is not None
    return reason.numbers


def code_of(made: Plan, name: str) -> str | None:
    """The dominant reason of one job."""
    reason = made.reason_of(name)
    return None if reason is None else str(reason.code)
