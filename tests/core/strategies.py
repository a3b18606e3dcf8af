"""Hypothesis strategies: random small clusters with running and waiting jobs."""

from __future__ import annotations

import os
import random
from dataclasses import replace

from scheduler.core.consequences import as_running
from scheduler.core.inputs.cluster import Cluster, Flavor, Node, OutCause, Window, WindowKind
from scheduler.core.inputs.jobs import (
    Ask,
    Checkpoint,
    Role,
    SliceAsk,
    TopologyAsk,
    WaitingJob,
)
from scheduler.core.inputs.quotas import (
    BackfillOrder,
    Cohort,
    FlavorQuota,
    OrderPolicy,
    Queue,
    Tenant,
    UserLimit,
)
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.planner import plan
from scheduler.core.resources import Amount
from tests.core.builders import NOW

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "150"))
"""Random snapshots per property: a hundred or two in every run, thousands before a release."""

LEVELS = ("spine", "leaf")


def random_snapshot(seed: int) -> Snapshot:
    """A cluster of 1 to 24 nodes; jobs of an earlier plan run, others wait."""
    rng = random.Random(seed)
    nodes = _nodes(rng)
    tenants, cohorts = _tenants(rng)
    queues = tuple(_queue(rng, tenant.name) for tenant in tenants)
    base = Snapshot(
        now=NOW,
        cluster=Cluster("c", levels=LEVELS),
        flavors=(Flavor("f", rng.choice([4, 8])), Flavor("g")),
        nodes=nodes,
        tenants=tenants,
        queues=queues,
        cohorts=cohorts,
        user_limits=(UserLimit("t0", "u0", "f", rng.randint(1, 24)),) if rng.random() < 0.3 else (),
        windows=_windows(rng, nodes),
        waiting=tuple(_job(rng, f"r{i}", tenants) for i in range(rng.randint(0, 6))),
    )
    first = plan(base, Options(preempt=False))
    asks = {job.id: job.ask for job in base.waiting}
    running = tuple(
        as_running(start, asks[start.job], NOW - rng.uniform(0, 5_000)) for start in first.starts
    )
    waiting = tuple(_job(rng, f"j{i}", tenants) for i in range(rng.randint(1, 10)))
    return replace(base, running=running, waiting=waiting)


def _nodes(rng: random.Random) -> tuple[Node, ...]:
    made = []
    for i in range(rng.randint(1, 24)):
        domains = [("spine", f"s{i // 8}"), ("leaf", f"l{i // 4}")]
        if rng.random() < 0.05:
            domains.pop()
        made.append(
            Node(
                f"n{i:02d}",
                "f" if rng.random() < 0.85 else "g",
                Amount(8, rng.choice([16_000, 64_000]), 256_000, rng.choice([4, 110])),
                tuple(domains),
                (OutCause.CORDONED,) if rng.random() < 0.1 else (),
                (("zone", rng.choice("ab")),),
                cuda=(12, rng.randint(0, 4)),
                foreign=Amount(rng.choice([0, 0, 0, 2]), 1_000, 1_000, 1),
            )
        )
    return tuple(made)


def _tenants(rng: random.Random) -> tuple[tuple[Tenant, ...], tuple[Cohort, ...]]:
    policy = rng.choice(list(OrderPolicy))
    cohorts = (Cohort("root", order=policy), Cohort("sub", "root", order=policy))
    tenants = tuple(
        Tenant(f"t{i}", rng.choice([None, "root", "sub"]), (_quota(rng, "f"), _quota(rng, "g")))
        for i in range(rng.randint(1, 4))
    )
    return tenants, cohorts


def _quota(rng: random.Random, flavor: str) -> FlavorQuota:
    return FlavorQuota(
        flavor,
        nominal=rng.choice([0, 16, 32, 200]),
        borrowing_limit=rng.choice([None, None, 0, 16]),
        lending_limit=rng.choice([None, None, 0, 16]),
        weight=rng.choice([0.0, 1.0, 2.0]),
        headroom=rng.choice([0, 0, 8]),
        outside=rng.choice([0, 0, 2]),
    )


def _queue(rng: random.Random, tenant: str) -> Queue:
    return Queue(
        f"{tenant}/q",
        tenant,
        booking_depth=rng.choice([0, 1, 2, 100]),
        booking_after_seconds=rng.choice([None, 3_600.0]),
        backfill=rng.random() < 0.85,
        backfill_order=rng.choice(list(BackfillOrder)),
        user_fairness=rng.random() < 0.3,
        min_runtime_seconds=rng.choice([0.0, 600.0]),
    )


def _windows(rng: random.Random, nodes: tuple[Node, ...]) -> tuple[Window, ...]:
    made = []
    for i in range(rng.choice([0, 0, 1, 2])):
        start = NOW + rng.uniform(-1_000, 8_000)
        names = frozenset(node.name for node in nodes if rng.random() < 0.5)
        kind = rng.choice(list(WindowKind))
        admits = frozenset({"t0"}) if kind is WindowKind.RESERVED else frozenset()
        made.append(Window(f"w{i}", start, start + 2_000, names, kind, admits_tenants=admits))
    return tuple(made)


def _job(rng: random.Random, name: str, tenants: tuple[Tenant, ...]) -> WaitingJob:
    tenant = rng.choice(tenants).name
    roles = [_role(rng, "main")]
    if rng.random() < 0.15:
        roles.append(replace(_role(rng, "other"), topology=TopologyAsk()))
    limit = rng.choice([None, 600.0, 3_600.0, 10_000.0])
    ask = Ask(
        tenant,
        f"{tenant}/q",
        f"u{rng.randint(0, 2)}",
        rng.choice([("f",), ("f",), ("f", "g"), ("g",)]),
        tuple(roles),
        priority=rng.choice([100, 500, 500, 900]),
        preemptible=rng.random() < 0.8,
        max_runtime_seconds=limit,
        checkpoint=Checkpoint(600.0, 30.0) if rng.random() < 0.3 else None,
        node_selector=(("zone", "a"),) if rng.random() < 0.1 else (),
        min_cuda=(12, 2) if rng.random() < 0.1 else None,
    )
    begin = NOW + 100 if rng.random() < 0.05 else None
    return WaitingJob(name, ask, NOW - rng.uniform(0, 90_000), begin_at=begin)


def _role(rng: random.Random, name: str) -> Role:
    gpus = rng.choice([1, 2, 4, 8])
    replicas = rng.choice([1, 1, 2, 4, 8])
    group = 1
    cut = None
    if rng.random() < 0.2:
        group = rng.choice([1, 2, 4])
        group = group if replicas * gpus % group == 0 else 1
    elif rng.random() < 0.15 and replicas >= 4:
        cut = SliceAsk(2, "leaf")
    topology = TopologyAsk(
        rng.choice([None, None, "leaf", "spine"]), rng.choice([None, "leaf"]), cut
    )
    least = max(1, replicas // 2) if rng.random() < 0.25 and cut is None and group == 1 else None
    return Role(name, replicas, Amount(gpus, 1_000, 2_000, 1), least, topology, group)
