"""The planner's speed on synthetic clusters: cold and warm plans, placements, estimates, counterfactuals, memory.

`python -m benchmarks planner`. Snapshots are seeded and in memory; nothing but the planner is measured. Medians of
five; `seconds` are wall time, `cpu_seconds` this process's alone (they differ when the machine is busy).
"""

import gc
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from scheduler.core.inputs.cluster import Cluster, Flavor, Node, OutCause
from scheduler.core.inputs.jobs import Ask, Role, RunningJob, Seat, TopologyAsk, WaitingJob
from scheduler.core.inputs.quotas import Cohort, DecayedUsage, FlavorQuota, Queue, Tenant
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.outputs import Estimate, Plan
from scheduler.core.planner import estimating, plan
from scheduler.core.resources import Amount
from scheduler.core.whatif import simulate

SEED = 20_260_801
NOW = 1_700_000_000.0
RUNS = 5
WHOLE_NODE = Amount(8, 64_000, 500_000, 1)
TENANTS = 20
SLICE_SECONDS = 0.2


def results() -> Iterator[dict[str, Any]]:
    """One result a measure, each with its sizes."""
    big = busy_cluster(nodes=10_000, running=5_000, waiting=10_000, shapes=300)
    yield from big_cluster(big)
    yield from simulation(busy_cluster(nodes=1_024, running=500, waiting=10_000, shapes=300))
    yield placements()
    yield {
        "measure": "peak_memory",
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def big_cluster(given: Snapshot) -> Iterator[dict[str, Any]]:
    """Cold and warm plans, estimates and counterfactuals at 10,000 nodes."""
    sizes = {
        "nodes": len(given.nodes),
        "running": len(given.running),
        "waiting": len(given.waiting),
    }
    yield {"measure": "cold_plan", **sizes, **timed(lambda: plan(given, memo=Memo()))}
    memo = Memo()
    yield {"measure": "warm_plan_after_100_changes", **sizes, **warm_plans(given, memo)}
    plan(given, memo=memo)
    last = given.waiting[len(given.waiting) // 2].id
    probing = Options(probe=frozenset({last}))
    yield {
        "measure": "counterfactuals_of_one_job",
        **sizes,
        **timed(lambda: plan(given, probing, memo)),
    }
    ending = replace(given, running=tuple(_ends(job) for job in given.running))
    yield {"measure": "estimates_of_1000_jobs", **sizes, **sliced(ending)}


def warm_plans(given: Snapshot, memo: Memo) -> dict[str, Any]:
    """Plans of a cluster that goes on, and how many jobs they start and book."""
    changing = Changing(given)
    made = [plan(given, memo=memo)]
    # As the loop does once it has planned for the first time.
    gc.collect()
    gc.freeze()

    def next_plan() -> None:
        made.append(plan(changing.current, memo=memo))

    walls, cpus = [], []
    for _ in range(RUNS):
        changing.enact(made[-1])
        changing.change()
        took = timed(next_plan, runs=1)
        walls.append(took["seconds_p50"])
        cpus.append(took["cpu_seconds_p50"])
    return {
        "runs": RUNS,
        "seconds_p50": statistics.median(walls),
        "seconds_max": max(walls),
        "cpu_seconds_p50": statistics.median(cpus),
        "starts": [len(one.starts) for one in made[1:]],
        "bookings": [len(one.bookings) for one in made[1:]],
        "evictions": [len(one.evictions) for one in made[1:]],
    }


def sliced(given: Snapshot) -> dict[str, Any]:
    """Estimates of 1,000 jobs in slices of a fifth of a second, by the entry that the loop uses."""
    coming = estimating(given, Options(estimates=1_000, preempt=False), Memo())
    made: list[Estimate] = []
    slices: list[float] = []
    cpu = time.process_time()
    while True:
        began = time.perf_counter()
        before = len(made)
        for estimate in coming:
            made.append(estimate)
            if time.perf_counter() - began >= SLICE_SECONDS:
                break
        if len(made) == before:
            break
        slices.append(time.perf_counter() - began)
    return {
        "estimates": len(made),
        "without_a_start": sum(estimate.starts_at is None for estimate in made),
        "slices": len(slices),
        # The first slice makes the pass.
        "first_slice_seconds": round(slices[0], 4),
        "longest_slice_seconds": round(max(slices[1:]), 4),
        "seconds": round(sum(slices), 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
    }


def simulation(given: Snapshot) -> Iterator[dict[str, Any]]:
    """One more job asked about, over and over."""
    memo, rng = Memo(), Random(SEED)
    plan(given, memo=memo)
    jobs = iter([waiting_job(rng, f"ask{i}", ask(rng, i)) for i in range(50)])
    sizes = {"nodes": len(given.nodes), "waiting": len(given.waiting)}
    yield {
        "measure": "simulate",
        **sizes,
        **timed(lambda: simulate(given, next(jobs), memo=memo), runs=40),
    }


def placements() -> dict[str, Any]:
    """Gangs with a required leaf placed in one plan on 640 empty nodes, as many as fit."""
    given = busy_cluster(nodes=640, running=0, waiting=0, shapes=1)
    small = Role("main", 4, Amount(1, 1_000, 1_000, 1), topology=TopologyAsk(required="leaf"))
    wanted = replace(ask(Random(SEED), 0), roles=(small,), tenant="t0", queue="t0/q")
    jobs = tuple(WaitingJob(f"g{i:05d}", wanted, NOW - i) for i in range(1_280))
    crowded = replace(given, waiting=jobs)
    memo = Memo()
    took = timed(lambda: plan(crowded, memo=memo))
    placed = len(plan(crowded, memo=memo).starts)
    return {
        "measure": "topology_placements",
        "nodes": 640,
        "placed": placed,
        "placements_per_second": round(placed / took["seconds_p50"]),
        "placements_per_cpu_second": round(placed / took["cpu_seconds_p50"]),
        **took,
    }


def timed(action: Callable[[], object], runs: int = RUNS) -> dict[str, Any]:
    """Median and the slowest of `runs`, wall and processor time."""
    walls, cpus = [], []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {
        "runs": runs,
        "seconds_p50": round(statistics.median(walls), 4),
        "seconds_max": round(max(walls), 4),
        "cpu_seconds_p50": round(statistics.median(cpus), 4),
        "seconds_p95": round(sorted(walls)[max(0, -(-95 * runs // 100) - 1)], 4),
    }


def busy_cluster(*, nodes: int, running: int, waiting: int, shapes: int) -> Snapshot:
    """Leaves of 16, spines of 8 leaves; gangs side by side; waiting jobs in so many shapes."""
    rng = Random(SEED)
    rows = tuple(node(i) for i in range(nodes))
    asks = [ask(rng, i) for i in range(shapes)]
    return Snapshot(
        now=NOW,
        cluster=Cluster("bench", levels=("spine", "leaf")),
        flavors=(Flavor("h100"),),
        nodes=rows,
        tenants=tuple(
            Tenant(f"t{i}", "root", (FlavorQuota("h100", -(-nodes * 8 // TENANTS)),))
            for i in range(TENANTS)
        ),
        queues=tuple(Queue(f"t{i}/q", f"t{i}", user_fairness=True) for i in range(TENANTS)),
        cohorts=(Cohort("root"),),
        usage=tuple(
            DecayedUsage(f"t{i}", f"u{user}", rng.uniform(0, 1e9))
            for i in range(TENANTS)
            for user in range(5)
        ),
        running=gangs(rng, nodes, running),
        waiting=tuple(waiting_job(rng, f"j{i:05d}", asks[i % shapes]) for i in range(waiting)),
    )


def node(number: int) -> Node:
    """A node of eight."""
    place = (("spine", f"s{number // 128:03d}"), ("leaf", f"l{number // 16:04d}"))
    return Node(f"n{number:05d}", "h100", Amount(8, 128_000, 1_000_000, 110), place)


def gangs(rng: Random, nodes: int, most: int) -> tuple[RunningJob, ...]:
    """Gangs of 1 to 4 whole nodes, one after another, until the nodes are nearly used up."""
    made: list[RunningJob] = []
    first = 0
    while len(made) < most and first < nodes - 16:
        size = rng.choice([1, 1, 1, 1, 1, 2, 2, 4, 4])
        tenant = f"t{len(made) % TENANTS}"
        role = Role("main", size, WHOLE_NODE)
        limit = rng.choice([3_600.0, 7_200.0, 86_400.0, None])
        wanted = Ask(tenant, f"{tenant}/q", "u", ("h100",), (role,), max_runtime_seconds=limit)
        seats = tuple(
            Seat("main", i, i, f"n{first + i:05d}", 8, 64_000, 500_000) for i in range(size)
        )
        placed = NOW - rng.uniform(700, 3_500)
        made.append(RunningJob(f"r{len(made)}", 1, wanted, "h100", seats, placed, placed + 5))
        first += size
    return tuple(made)


def ask(rng: Random, number: int) -> Ask:
    """A gang of 2 to 80 whole nodes, with and without a required level."""
    tenant = f"t{number % TENANTS}"
    size = rng.choice([2, 4, 8, 16, 32, 64]) + number // TENANTS
    levels = [None, "leaf", "spine"] if size <= 16 else [None, "spine"]
    role = Role("main", size, WHOLE_NODE, topology=TopologyAsk(required=rng.choice(levels)))
    limit = rng.choice([3_600.0, 86_400.0])
    user = f"u{number // TENANTS % 5}"
    return Ask(tenant, f"{tenant}/q", user, ("h100",), (role,), max_runtime_seconds=limit)


def waiting_job(rng: Random, name: str, wanted: Ask) -> WaitingJob:
    """A job that came within the last day. Equal asks are one object, as in the loop's snapshot."""
    return WaitingJob(name, wanted, NOW - rng.uniform(0, 86_400))


class Changing:
    """A cluster that goes on: what a plan decides is made so, then 100 more things change."""

    def __init__(self, given: Snapshot) -> None:
        self._rng = Random(SEED)
        self._turn = 0
        self.current = given

    def enact(self, made: Plan) -> None:
        """Starts run, victims have gone."""
        asks = {job.id: job.ask for job in self.current.waiting}
        starting = {start.job for start in made.starts}
        gone = {eviction.job for eviction in made.evictions}
        now = self.current.now
        started = tuple(
            RunningJob(s.job, 1, asks[s.job], s.flavor, s.seats, now, now) for s in made.starts
        )
        self.current = replace(
            self.current,
            running=(*(job for job in self.current.running if job.id not in gone), *started),
            waiting=tuple(job for job in self.current.waiting if job.id not in starting),
        )

    def change(self) -> None:
        """20 nodes are cordoned or come back, 40 jobs end, 40 come."""
        current, rng, turn = self.current, self._rng, self._turn
        nodes = list(current.nodes)
        for place in rng.sample(range(len(nodes)), 20):
            outs = () if nodes[place].outs else (OutCause.CORDONED,)
            nodes[place] = replace(nodes[place], outs=outs)
        asks = [job.ask for job in rng.sample(current.waiting, 40)]
        arrivals = tuple(
            WaitingJob(f"x{turn}-{i}", wanted, current.now) for i, wanted in enumerate(asks)
        )
        gone = {job.id for job in rng.sample(current.running, 40)}
        self._turn += 1
        self.current = replace(
            current,
            now=current.now + 1,
            nodes=tuple(nodes),
            running=tuple(job for job in current.running if job.id not in gone),
            waiting=(*current.waiting, *arrivals),
        )


def _ends(job: RunningJob) -> RunningJob:
    """The job with a limit, so that what waits for it can be estimated."""
    return replace(
        job, ask=replace(job.ask, max_runtime_seconds=job.ask.max_runtime_seconds or 172_800.0)
    )
