"""What happens in the demo, as a stream of submissions. Pure: a seed in, moments and jobs out.

Mostly jobs of one to four nodes, as in real clusters; now and then a gang of a whole leaf, which has to wait.
Run times are minutes in life and seconds here.
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


def scenes(seed: int) -> Iterator[Scene]:
    """The story, without end. The same seed tells the same story."""
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
