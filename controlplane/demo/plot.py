"""What happens in the demo, as a stream of acts. Pure: a seed in, moments and acts out.

Mostly jobs of one to four nodes, as in real clusters; now and then a gang of a whole leaf, which has to wait. One team
borrows what the other does not use, and gives it back when that one comes. A window is soon; a GPU fails now and
then, and is repaired. Run times are minutes in life and seconds here.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"


@dataclass(frozen=True, slots=True)
class Scene:
    """One submission. after_seconds: since the one before. user: who submits."""

    after_seconds: float
    user: str
    job: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something breaks in the simulated cluster (docs/simcluster.md). node: which an operator gives back later."""

    after_seconds: float
    kind: str
    node: str
    parameters: dict[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class Repair:
    """An operator says that the node is repaired."""

    after_seconds: float
    node: str


@dataclass(frozen=True, slots=True)
class Work:
    """A maintenance window that an operator makes."""

    after_seconds: float
    title: str
    leaf: str
    begins_in_minutes: int
    minutes: int


Act = Scene | Fault | Repair | Work


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of job that a team runs. run_seconds: shortest and longest. weight: how often, beside the others."""

    name: str
    weight: int
    replicas: tuple[int, ...]
    gpus: int
    run_seconds: tuple[int, int]
    model: str = H100
    extra: dict[str, Any] = field(default_factory=dict)


LEAF = {"topology": {"level": "leaf", "mode": "required"}}
CHECKPOINTS = {"checkpoint": {"interval_seconds": 60, "grace_seconds": 10, "notice": "signal"}}
KINDS = (
    Kind("pretrain-7b", 10, (8,), 8, (90, 240), extra=LEAF | CHECKPOINTS),
    Kind("finetune", 30, (1, 2, 2, 4), 8, (40, 150), extra=CHECKPOINTS),
    Kind("sweep", 30, (1,), 8, (20, 90)),
    Kind("eval", 20, (1,), 4, (15, 60), extra={"priority": "low"}),
    Kind("notebook-export", 8, (1,), 1, (10, 40)),
    Kind("distill", 12, (1, 2), 8, (30, 120), model=A100),
)
# A gang of sixteen nodes that must sit in one leaf: a leaf has sixteen, so all of it must be free.
WHOLE_LEAF = Kind("pretrain-70b", 0, (16,), 8, (120, 180), extra=LEAF | CHECKPOINTS)
TEAMS = {"research": ("ravi", "olivia"), "vision": ("mei",)}
FULL_HOUSE = 34  # submissions at once at the start, so that the map is busy from the first minute
PAUSE_SECONDS = 3.0
WHOLE_LEAF_EVERY = 45
# Beyond what vision owns: it borrows. A little later research wants its own, and is given it.
BORROWERS = Kind("pretrain-vit", 0, (8,), 8, (300, 600), extra=CHECKPOINTS)
OWNERS = Kind("pretrain-13b", 0, (8,), 8, (90, 150), extra=CHECKPOINTS)
BORROW_EVERY, BORROWING, COMING_BACK = 90, 5, 4
# Submissions between the two: by then what was borrowed runs.
LENT_FOR = 30
WORK_EVERY = 400
FAULT_EVERY, REPAIR_AFTER_SECONDS = 60, 60.0
FATAL, HARMLESS = 79, 31
FIRST_FAULT = FULL_HOUSE + 12
NODES = 64


def acts(seed: int) -> Iterator[Act]:
    """The story, without end. The same seed tells the same story."""
    dice = random.Random(f"acts {seed}")
    for number, scene in enumerate(scenes(seed), start=1):
        yield scene
        if number % WORK_EVERY == FULL_HOUSE:
            leaf = f"leaf-{dice.randrange(4):02d}"
            yield Work(0.0, "New driver", leaf, begins_in_minutes=12, minutes=10)
        if number % BORROW_EVERY == FULL_HOUSE + 5:
            yield from (_scene(dice, 0.5, "vision", BORROWERS) for _ in range(BORROWING))
        if number % BORROW_EVERY == FULL_HOUSE + 5 + LENT_FOR:
            yield from (_scene(dice, 0.5, "research", OWNERS) for _ in range(COMING_BACK))
        if number % FAULT_EVERY == FIRST_FAULT % FAULT_EVERY and number >= FIRST_FAULT:
            yield from _failing_gpu(dice)


def _failing_gpu(dice: random.Random) -> Iterator[Act]:
    """Every third is an error of the program, which takes nothing out."""
    node, gpu = f"gpu-{dice.randrange(NODES):05d}", dice.randrange(8)
    code = HARMLESS if dice.random() < 1 / 3 else FATAL
    told = {"node": node, "gpu": gpu, "code": code, "report": True}
    yield Fault(1.0, "gpu_xid", node, told, REPAIR_AFTER_SECONDS)
    if code == FATAL:
        yield Repair(REPAIR_AFTER_SECONDS + 5, node)


def scenes(seed: int) -> Iterator[Scene]:
    """Only the submissions, without end."""
    dice = random.Random(seed)
    number = 0
    while True:
        number += 1
        after = 0.0 if number <= FULL_HOUSE else dice.expovariate(1 / PAUSE_SECONDS)
        if number % WHOLE_LEAF_EVERY == FULL_HOUSE + 1:
            yield _scene(dice, after, "research", WHOLE_LEAF)
            continue
        kind = dice.choices(KINDS, [k.weight for k in KINDS])[0]
        yield _scene(dice, after, dice.choice(list(TEAMS)), kind)


def _scene(dice: random.Random, after: float, tenant: str, kind: Kind) -> Scene:
    run = dice.randint(*kind.run_seconds)
    fails = dice.random() < 0.06
    job: dict[str, Any] = {
        "name": f"{kind.name}-{dice.randrange(16**4):04x}",
        "tenant": tenant,
        "queue": "train",
        "image": f"registry.example/{tenant}/{kind.name}:{dice.randint(1, 40)}",
        "command": ["torchrun"],
        "args": [f"{kind.name.replace('-', '_')}.py"],
        "replicas": dice.choice(kind.replicas),
        "gpus_per_replica": kind.gpus,
        "gpu_model": [kind.model],
        "max_runtime_seconds": run * 2,
        "annotations": {
            "sim.muster.dev/run-seconds": str(run // 3 if fails else run),
            "sim.muster.dev/exit-code": "1" if fails else "0",
            "sim.muster.dev/log-lines": str(dice.randint(20, 200)),
        },
    }
    return Scene(after, dice.choice(TEAMS[tenant]), job | kind.extra)
