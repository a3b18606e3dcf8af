"""What would let a waiting job start: one thing changed at a time, each change tried by the planner. Pure.

Called by `explain`, when somebody asks and for the first jobs in line before anybody does. The planner tries each
change on the state that the job itself met (`Options.probe`), and tells the best three that work.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scheduler.core.explain.variants import CHECKPOINT
from scheduler.core.inputs.cluster import NODE_LEVEL
from scheduler.core.inputs.jobs import Ask, WaitingJob
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.outputs import Counterfactual, Plan
from scheduler.core.planner import plan
from scheduler.core.reasons import OWN_REASONS, Number, Reason, ReasonCode
from scheduler.core.whatif import SimulationVerdict

Json = dict[str, Any]
# Whatever is asked, these keep the job: nothing is tried then.
NOTHING_HELPS = OWN_REASONS | {
    ReasonCode.CLUSTER_UNREACHABLE,
    ReasonCode.CLUSTER_PAUSED,
    ReasonCode.CLUSTER_OBSERVING,
    ReasonCode.QUEUE_HELD,
    ReasonCode.QUEUE_CLOSED,
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A change that works, as fields of the job's contract. starts_at: the plan's moment when it starts now."""

    change: Mapping[str, Any]
    starts_now: bool
    starts_at: float | None

    def as_json(self) -> Json:
        """As the door tells it."""
        verdict = SimulationVerdict.STARTS_NOW if self.starts_now else SimulationVerdict.QUEUED
        return {"change": dict(self.change), "verdict": verdict.value, "starts_at": self.starts_at}


def reasons_of(made: Plan, job: str) -> tuple[Reason, ...]:
    """All reasons of a waiting job, its own first."""
    own = made.own_reasons.get(job)
    key = made.classes.get(job)
    of_class = made.verdicts[key].reasons if key is not None and key in made.verdicts else ()
    return (own, *of_class) if own is not None else of_class


def can_help(reasons: Sequence[Reason]) -> bool:
    """Whether another ask could make a difference at all."""
    return bool(reasons) and not any(reason.code in NOTHING_HELPS for reason in reasons)


def trials_of(
    snapshot: Snapshot,
    jobs: Collection[WaitingJob],
    models: Mapping[str, str],
    options: Options,
    memo: Memo,
) -> dict[str, tuple[Trial, ...]]:
    """For each of some waiting jobs the changes that work, the best first. One plan for all.

    models: model label by flavor.
    """
    made = plan(snapshot, replace(options, probe=frozenset(job.id for job in jobs)), memo)
    return {
        job.id: tuple(
            Trial(change, found.starts_now, found.estimated_start)
            for found in made.counterfactuals.get(job.id, ())
            if (change := _in_contract(found, job.ask, models)) is not None
        )
        for job in jobs
    }


# --- the planner's words in those of the contract ---


def _in_contract(
    found: Counterfactual, ask: Ask, models: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """None where the contract has no word for it."""
    ((name, value),) = found.change.items()
    if name == "gpu_model":
        model = models.get(str(value))
        return {"gpu_model": [model]} if model else None
    if name == "topology.level":
        return {"topology": _topology(ask, value)}
    if name == "topology.slice":
        return {"topology": _without_slice(ask)}
    if name == "checkpoint.interval_seconds":
        grace = _whole(CHECKPOINT.grace_seconds)
        return {"checkpoint": {"interval_seconds": _whole(value), "grace_seconds": grace}}
    if name == "node_selector":
        changed: Json = {"node_selector": {}} if ask.node_selector else {}
        return changed | ({"exclude_nodes": []} if ask.exclude_nodes else {})
    return {name: value if isinstance(value, bool | None) else _whole(value)}


def _topology(ask: Ask, level: Number) -> Json:
    """A wider required level with the old one preferred; without a level the old one is only preferred."""
    asked = next(role.topology for role in ask.roles if role.topology.required is not None)
    before = asked.preferred or asked.required
    if level is None:
        return {"level": before, "mode": "preferred"}
    prefers = None if before == NODE_LEVEL else before
    return {"level": level, "mode": "required", "preferred_level": prefers}


def _without_slice(ask: Ask) -> Json:
    asked = next(role.topology for role in ask.roles if role.topology.slice is not None)
    mode = "required" if asked.required else "preferred"
    return {"level": asked.required or asked.preferred, "mode": mode, "slice": None}


def _whole(value: Number) -> int:
    return int(value) if isinstance(value, int | float) else 0
