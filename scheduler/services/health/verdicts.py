"""Findings → states of GPUs and nodes, and what a node's state is to the planner. The only writer of `Node.health`.

A GPU's state moves by `scheduler.health.states`; an operator's override holds until it expires. A node's health is the
worst of its GPUs' and of its own, except that a node that shrinks, or that the budget leaves in, is suspect.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.common import log
from scheduler.health.conditions import blocks_of, is_shared, takes_whole_node
from scheduler.health.findings import RANK, Finding, Grade
from scheduler.health.states import GRAVITY, NEXT_STEP, OUT, Happening, State, after, worst
from scheduler.models import Gpu, Node
from scheduler.services.health.scene import NodeScene, Scene
from scheduler.services.health.timeline import HEALTH, Hit, Line, write_lines

HAPPENING = {Grade.SUSPECT: Happening.SUSPECTED, Grade.UNHEALTHY: Happening.CONDEMNED}
# Steps on the way back: what the node is out for stays its cause until it is well.
STEPS = frozenset({Happening.EMPTIED, Happening.REPAIRED})


@dataclass(frozen=True, slots=True)
class News:
    """A finding that changes something, the GPU that it is about (None: the node), the jobs that it has met."""

    finding: Finding
    gpu: Gpu | None
    hits: Sequence[Hit] = field(default_factory=tuple)


def take_in(scene: Scene, node: NodeScene, news: Iterable[News], now: datetime) -> bool:
    """Move states as the findings say and write the timeline. True when any state moved."""
    moved = False
    lines: list[Line] = []
    for each in news:
        before, state = _state_of(node, each.gpu), _moved(node, each, now)
        moved = moved or before != state
        lines.append(_line(each, before, state))
    write_lines(scene.cluster, node.name, lines, now)
    return moved


def _line(news: News, before: State, state: State) -> Line:
    overridden = news.gpu is not None and bool(news.gpu.override_state)
    moved = before != state
    return Line(
        kind="state" if moved else "signal",
        gpu=news.gpu.uuid if news.gpu else news.finding.uuid,
        before=before if moved else "",
        after=state if moved else "",
        finding=news.finding,
        action="an operator's word holds" if overridden else "",
        next_step=news.finding.action or NEXT_STEP[state],
        jobs=[hit.answer(evicted=False) for hit in news.hits],
    )


def _state_of(node: NodeScene, gpu: Gpu | None) -> State:
    return State(gpu.state if gpu else node.watch.state)


def _moved(node: NodeScene, news: News, now: datetime) -> State:
    """The state after the finding; the row in memory has it too, saved by the caller."""
    finding, before = news.finding, _state_of(node, news.gpu)
    happening = HAPPENING.get(finding.grade)
    if happening is None or (news.gpu is not None and is_overridden(news.gpu, now)):
        return before
    state = after(before, happening)
    if state == before:
        return before
    if news.gpu is not None:
        set_gpu(news.gpu, state, finding.cause, finding.evidence, now, step=finding.action)
    else:
        set_watch(node, state, finding.cause, finding.evidence, now)
    return state


def is_overridden(gpu: Gpu, now: datetime) -> bool:
    """Whether an operator's word still holds."""
    return bool(gpu.override_state) and (gpu.override_until is None or gpu.override_until > now)


def set_gpu(
    gpu: Gpu, state: State, cause: str, evidence: str, now: datetime, *, step: str = ""
) -> None:
    """Write a GPU's state."""
    gpu.state, gpu.since = state, now
    gpu.cause, gpu.evidence = cause[:200], evidence
    gpu.next_step = (step or NEXT_STEP[state])[:200]
    gpu.save(update_fields=["state", "since", "cause", "evidence", "next_step"])


def set_watch(node: NodeScene, state: State, cause: str, evidence: str, now: datetime) -> None:
    """Write the state that a node is in by itself."""
    watch = node.watch
    watch.state, watch.since = state, now
    watch.cause, watch.evidence = cause[:200], evidence
    watch.save()
    node.is_new = False


def happens(
    scene: Scene,
    node: NodeScene,
    happening: Happening,
    cause: str,
    now: datetime,
    actor: str = HEALTH,
) -> bool:
    """Something happens to a node as a whole and to its GPUs that are not well. True when anything moved.

    cause: what the timeline's line says. The node keeps what it is out for while it is emptied and repaired.
    """
    lines = []
    before = State(node.watch.state)
    state = after(before, happening)
    if state != before:
        set_watch(node, state, *_told_by(node, happening, state, cause), now)
        lines.append(Line("return" if state is State.HEALTHY else "state", before=before, after=state,
                          cause=cause, next_step=NEXT_STEP[state], actor=actor))  # fmt: skip
    for gpu in node.gpus.values():
        was = State(gpu.state)
        becomes = after(was, happening)
        if becomes == was or is_overridden(gpu, now):
            continue
        kept = (gpu.cause or cause, gpu.evidence) if becomes is not State.HEALTHY else ("", "")
        set_gpu(gpu, becomes, *kept, now)
        lines.append(Line("state", gpu=gpu.uuid, before=was, after=becomes, cause=cause,
                          next_step=NEXT_STEP[becomes]))  # fmt: skip
    write_lines(scene.cluster, node.name, lines, now)
    return bool(lines)


def _told_by(node: NodeScene, happening: Happening, state: State, cause: str) -> tuple[str, str]:
    """(cause, evidence) of a node in its next state."""
    if state is State.HEALTHY:
        return "", ""
    watch = node.watch
    if watch.cause and (happening in STEPS or watch.cause == cause[:200]):
        return watch.cause, watch.evidence
    return cause, ""


def settle_node(scene: Scene, node: NodeScene, now: datetime) -> bool:
    """Write what the node's health is to the planner, if that changed; True then."""
    state, closed, cause = planner_view(node)
    row = node.row
    if (row.health, row.health_closed, row.health_cause) == (state, closed, cause):
        return False
    changes = {"health": state, "health_closed": closed, "health_cause": cause}
    if row.health != state:
        changes["health_since"] = now
    with log.writing():
        Node.objects.filter(pk=row.pk).update(**changes)
        log.record(
            log.NewEvent(
                kind="node.health",
                at=now,
                cluster=scene.cluster.name,
                node=row.name,
                actor="health",
                message=cause,
                numbers={"what": "node", "before": row.health, "after": state, "closed": closed},
            )
        )
    for name, value in changes.items():
        setattr(row, name, value)
    return True


def planner_view(node: NodeScene) -> tuple[str, bool, str]:
    """(state, closed to new pods, cause) of a node."""
    own, cause = State(node.watch.state), node.watch.cause
    worst_gpu = max(node.gpus.values(), key=lambda gpu: GRAVITY[State(gpu.state)], default=None)
    if node.watch.out_since is not None or own is State.JOINING:
        return own, True, cause
    states = [own, *(State(gpu.state) for gpu in node.gpus.values())]
    state = worst(states)
    if worst_gpu is not None and GRAVITY[State(worst_gpu.state)] > GRAVITY[own]:
        cause = f"GPU {worst_gpu.index}: {worst_gpu.cause or worst_gpu.state}"[:200]
    blocks = blocks_of(node.row.labels)
    closed = bool(blocks) or own in OUT
    if state in OUT:
        closed = closed or _closes(node)
        # Still in: shrunk, proposed only, or beyond the budget. Its jobs run on, and a person is asked.
        state = State.SUSPECT
    if blocks and state is State.HEALTHY:
        cause = blocks[0].cause
    return state, closed, "" if state is State.HEALTHY and not blocks else cause


def _closes(node: NodeScene) -> bool:
    bad = sum(State(gpu.state) in OUT for gpu in node.gpus.values())
    row = node.row
    return takes_whole_node(
        bad, row.gpus_capacity, row.gpus_allocatable, shared=is_shared(row.labels)
    )


def says_more(finding: Finding, gpu: Gpu | None, node: NodeScene) -> bool:
    """Whether a finding that lasts has to be taken in again: its state has been left meanwhile."""
    state = _state_of(node, gpu)
    wanted = {Grade.SUSPECT: State.SUSPECT, Grade.UNHEALTHY: State.UNHEALTHY}.get(finding.grade)
    return wanted is not None and GRAVITY[state] < GRAVITY[wanted]


def gravest_first(news: Iterable[News]) -> list[News]:
    """In the order in which to act."""
    return sorted(news, key=lambda each: -RANK[each.finding.grade])
