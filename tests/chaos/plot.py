"""What happens in a run, drawn from its seed: jobs, what people do with them, and faults. Pure."""

from dataclasses import dataclass
from random import Random
from typing import Any

CRASH_STEPS = (
    "worker.plan", "worker.commit.before", "worker.commit.after", "worker.statement",
    "worker.pause", "cluster.create.before", "cluster.create.after", "cluster.bind.before",
    "cluster.bind.after", "cluster.delete.before", "cluster.delete.after",
    "cluster.observe.before", "cluster.observe.after", "cluster.statement", "cluster.pause",
)  # fmt: skip
"""Each kills the process at that step; `pause` has it stand still instead: a leader between plan and commit, the
cluster process before it looks at what came in."""
LARGEST_NTH = {"worker.statement": 60, "cluster.statement": 80, "cluster.observe.before": 8}
BUSY = "busy"
"""As a node's name: the first on which a pod of ours runs when the fault strikes."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job to submit: its fields as sent to the API, and what must become of it."""

    at: float
    fields: dict[str, Any]
    outcome: str
    attempts_failed: int = 0


@dataclass(frozen=True, slots=True)
class Act:
    """What a person does with the nth job: cancel, hold (and release 20 s later), requeue."""

    at: float
    what: str
    job: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at a time, for `seconds`."""

    at: float
    kind: str
    seconds: float
    parameters: dict[str, Any]

    @property
    def ends(self) -> float:
        """When it is over."""
        return self.at + self.seconds


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A maintenance window, announced at `at`: which nodes are empty from when to when."""

    at: float
    starts: float
    ends: float
    nodes: tuple[str, ...]
    running_jobs: str
    crossing: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A run. Times in seconds from its start. `health`: exporters are scraped, rules act."""

    seed: int
    nodes: int
    nodes_per_leaf: int
    nominal: int
    jobs: tuple[JobPlan, ...]
    acts: tuple[Act, ...]
    faults: tuple[Fault, ...]
    windows: tuple[WindowPlan, ...] = ()
    health: bool = False

    @property
    def calm_from(self) -> float:
        """From when on nothing is wrong any more."""
        ends = [fault.ends for fault in self.faults] + [act.at + 20 for act in self.acts]
        ends += [window.ends for window in self.windows]
        return max([*ends, *(job.at for job in self.jobs)])

    def told(self) -> str:
        """The run in a few lines, for whoever has to find out what went wrong."""
        lines = [f"seed {self.seed}: {self.nodes} nodes, {self.nodes_per_leaf} to a leaf"]
        lines += [f"  {job.at:6.1f} job {n}: {job.fields}" for n, job in enumerate(self.jobs)]
        lines += [f"  {act.at:6.1f} {act.what} job {act.job}" for act in self.acts]
        lines += [
            f"  {fault.at:6.1f} {fault.kind} {fault.seconds:.1f} s {fault.parameters}"
            for fault in self.faults
        ]
        lines += [f"  {window.at:6.1f} {window}" for window in self.windows]
        return "\n".join(lines)


def plot_of(seed: int) -> Plot:
    """The run of a seed."""
    dice = Random(f"chaos-{seed}")
    nodes = dice.choice((4, 6, 8, 12))
    jobs = tuple(_job(dice, number, nodes) for number in range(dice.randint(4, 8)))
    return Plot(
        seed=seed,
        nodes=nodes,
        nodes_per_leaf=dice.choice((2, 4)),
        nominal=dice.choice((nodes * 4, nodes * 8)),
        jobs=jobs,
        acts=tuple(_acts(dice, len(jobs))),
        faults=tuple(_fault(dice, nodes) for _ in range(dice.randint(3, 6))),
    )


def _job(dice: Random, number: int, nodes: int) -> JobPlan:
    gpus = dice.choice((1, 4, 8, 8, 8))
    replicas = dice.choice((1, 1, 2, 2, 3, max(2, nodes // 2)))
    run_seconds = dice.choice((8, 20, 45))
    fields: dict[str, Any] = {
        "name": f"job-{number}", "tenant": dice.choice(("research", "vision")), "queue": "train",
        "image": "registry.example/train:1", "gpus_per_replica": gpus, "replicas": replicas,
        "cpu_per_replica": str(2 * gpus), "memory_per_replica": f"{16 * gpus}Gi",
        "max_runtime_seconds": 900, "grace_seconds": dice.choice((2, 10, 30)),
        "priority": dice.choice(("low", "normal")),
        # Jobs that may not be preempted run inside the nominal quota alone.
        "preemptible": dice.random() < 0.7 or replicas * gpus > nodes * 4,
        "external_id": f"chaos-{number}",
    }  # fmt: skip
    notes = {
        "run-seconds": str(run_seconds), "log-lines": "3",
        "on-sigterm": dice.choice(("exit", "exit", "checkpoint", "ignore")),
    }  # fmt: skip
    if replicas > 1 and dice.random() < 0.3:
        fields["min_replicas"] = replicas - 1
    if dice.random() < 0.3:
        fields["topology"] = {"level": "leaf", "mode": "preferred"}
    outcome, failed = "succeeded", 0
    fate = dice.random()
    if fate < 0.15:
        notes["exit-code"], outcome = "5", "failed"
        fields["max_restarts"] = dice.choice((0, 1))
        failed = 1 + fields["max_restarts"]
    elif fate < 0.25:
        notes["run-seconds"], outcome = "forever", "timed_out"
        fields["max_runtime_seconds"] = 60
    fields["annotations"] = {f"sim.muster.dev/{name}": text for name, text in notes.items()}
    return JobPlan(dice.uniform(0, 90), fields, outcome, failed)


def _acts(dice: Random, jobs: int) -> list[Act]:
    what = ("cancel", "hold", "requeue")
    return [
        Act(dice.uniform(10, 120), dice.choice(what), dice.randrange(jobs))
        for _ in range(dice.choice((0, 0, 1, 2)))
    ]


def _fault(dice: Random, nodes: int) -> Fault:
    at, seconds = dice.uniform(2, 120), dice.uniform(5, 60)
    draw = dice.choices(
        (_crash, _api_fault, _watch_fault, _database_fault, _node_fault, _pod_fault, _twin),
        weights=(5, 3, 2, 2, 3, 2, 1),
    )[0]
    kind, parameters = draw(dice, nodes)
    return Fault(at, kind, seconds, parameters)


def _crash(dice: Random, nodes: int) -> tuple[str, dict[str, Any]]:
    step = dice.choice(CRASH_STEPS)
    return "crash", {"step": step, "nth": dice.randint(1, LARGEST_NTH.get(step, 4))}


def _api_fault(dice: Random, nodes: int) -> tuple[str, dict[str, Any]]:
    choices: tuple[tuple[str, dict[str, Any]], ...] = (
        ("api_error", {"share": 0.1, "status": 500}),
        ("api_error", {"share": 0.1, "status": 429, "retry_after_seconds": 2}),
        ("api_error", {"share": 0.2, "status": 504, "after": True}),
        ("api_reset", {"share": 0.1}),
        ("api_reset", {"share": 0.2, "after": True}),
        ("api_timeout", {"share": 0.1}),
        ("api_slow", {"share": 0.5, "wait_seconds": 10.0}),
        ("api_reset", {"share": 1.0}),
        ("api_error", {"share": 1.0, "status": 503}),
    )
    return dice.choice(choices)


def _watch_fault(dice: Random, nodes: int) -> tuple[str, dict[str, Any]]:
    kind = dice.choice(("watch_drop", "watch_silent", "watch_expire"))
    return kind, {"resource": dice.choice(("", "pods", "nodes"))}


def _database_fault(dice: Random, nodes: int) -> tuple[str, dict[str, Any]]:
    kind = dice.choice(("database_cut", "commit_lost", "database_away"))
    return kind, {} if kind == "database_away" else {"nth": dice.randint(1, 60)}


def _node_fault(dice: Random, nodes: int) -> tuple[str, dict[str, Any]]:
    kinds = (
        "node_deleted",
        "node_gone",
        "node_reboot",
        "node_silent",
        "node_not_ready",
        "pull_slow",
    )
    return dice.choice(kinds), {"node": dice.choice((BUSY, f"gpu-{dice.randrange(nodes):05d}"))}


def _pod_fault(dice: Random, nodes: int) -> tuple[str, dict[str, Any]]:
    if dice.random() < 0.5:
        return "pod_deleted", {"nth": dice.randrange(100), "grace_seconds": dice.choice((0, 1, 30))}
    node = f"gpu-{dice.randrange(nodes):05d}"
    return "foreign_pod", {"node": node, "gpus": dice.choice((4, 8))}


def _twin(dice: Random, nodes: int) -> tuple[str, dict[str, Any]]:
    """Two cluster processes at once."""
    return "second_cluster_process", {}


HARDWARE_XIDS = (48, 64, 74, 79, 95, 119, 140)
OWN_XIDS = (13, 31)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of a run with bad GPUs and windows, in seconds: what is drawn from."""

    run: tuple[int, ...]
    last_job: float
    last_fault: float
    lead: tuple[float, float]
    window: tuple[float, float]


SHORT = Lengths((300, 600, 900), 600, 1200, (120, 900), (600, 1200))
AS_IN_LIFE = Lengths((300, 900, 1800), 2400, 4000, (300, 2400), (3600, 7200))


def health_plot_of(seed: int, lengths: Lengths = SHORT) -> Plot:
    """A run with bad GPUs, silent exporters and maintenance windows: an hour, or hours with windows as in life."""
    dice = Random(f"health-{seed}")
    nodes = dice.choice((6, 8))
    names = [f"gpu-{number:05d}" for number in range(nodes)]
    jobs = tuple(_long_job(dice, number, nodes, lengths) for number in range(dice.randint(4, 6)))
    return Plot(
        seed=seed,
        nodes=nodes,
        nodes_per_leaf=2,
        nominal=nodes * 8,
        jobs=jobs,
        acts=(),
        faults=tuple(_health_fault(dice, names, lengths) for _ in range(dice.randint(3, 6))),
        windows=tuple(_window(dice, names, lengths) for _ in range(dice.choice((1, 1, 2)))),
        health=True,
    )


def _long_job(dice: Random, number: int, nodes: int, lengths: Lengths) -> JobPlan:
    replicas = dice.choice((1, 2, 2, nodes // 2))
    fields: dict[str, Any] = {
        "name": f"job-{number}", "tenant": dice.choice(("research", "vision")), "queue": "train",
        "image": "registry.example/train:1", "gpus_per_replica": dice.choice((4, 8, 8)),
        "replicas": replicas, "cpu_per_replica": "8", "memory_per_replica": "64Gi",
        "max_runtime_seconds": 7200, "grace_seconds": 10, "external_id": f"chaos-{number}",
    }  # fmt: skip
    if replicas > 1 and dice.random() < 0.4:
        fields["min_replicas"] = replicas - 1
    if dice.random() < 0.7:
        fields["checkpoint"] = {"interval_seconds": 300, "grace_seconds": 20}
    notes = {"run-seconds": str(dice.choice(lengths.run)), "log-lines": "3",
             "on-sigterm": "checkpoint"}  # fmt: skip
    fields["annotations"] = {f"sim.muster.dev/{name}": text for name, text in notes.items()}
    return JobPlan(dice.uniform(0, lengths.last_job), fields, "succeeded")


def _health_fault(dice: Random, names: list[str], lengths: Lengths) -> Fault:
    at, seconds = dice.uniform(60, lengths.last_fault), dice.uniform(60, 600)
    node = dice.choice((BUSY, dice.choice(names)))
    gpu = dice.randrange(8)
    kind, parameters = dice.choice(
        (
            ("gpu_xid", {"gpu": gpu, "code": dice.choice(HARDWARE_XIDS)}),
            ("gpu_xid", {"gpu": gpu, "code": dice.choice(HARDWARE_XIDS)}),
            ("gpu_xid", {"gpu": gpu, "code": dice.choice(HARDWARE_XIDS), "report": True}),
            ("gpu_xid", {"gpu": gpu, "code": dice.choice(OWN_XIDS)}),
            ("gpu_ecc", {"gpu": gpu, "double": 1}),
            ("gpu_heat", {"gpu": gpu}),
            ("exporter_down", {}),
            ("plugin_stopped", {}),
            ("node_reboot", {}),
            ("node_condition", {"type": "GPUMissing"}),
        )
    )
    return Fault(at, kind, seconds, {"node": node, **parameters})


def _window(dice: Random, names: list[str], lengths: Lengths) -> WindowPlan:
    at = dice.uniform(0, 600)
    starts = at + dice.uniform(*lengths.lead)
    first = dice.randrange(0, len(names), 2)
    return WindowPlan(
        at, starts, starts + dice.uniform(*lengths.window), tuple(names[first : first + 2]),
        dice.choice(("finish", "checkpoint", "evict")),
        dice.choice(("checkpointable", "never")),
    )  # fmt: skip
