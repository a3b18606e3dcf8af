"""When an attempt runs, stops and ends, and why (DESIGN section 4). Pure; called by `tick`.

`decide` looks at one attempt's rows, at its nodes and at the clock, and says the next step and
when to look again. It never looks at Kubernetes: what pods tell is in the rows by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from queues.lifecycle import EndedBy
from scheduler.reconcile.ledger import AttemptLife, PlacementLife
from scheduler.reconcile.story import DELETED_BY_OTHERS, End, is_waiting_error

OUT_SECONDS = 60
LOST_SECONDS = 300
WAITING_ERROR_SECONDS = 60
START_LIMIT_SECONDS = 20 * 60
LONGEST_START_SECONDS = 2 * 3600
BIND_SECONDS = 30
MOST_TRIES = 5


@dataclass(frozen=True, slots=True)
class NodeStanding:
    """A node as far as its pods are concerned: not ready since when, or no longer there."""

    not_ready_since: datetime | None = None
    exists: bool = True


WELL = NodeStanding()


@dataclass(frozen=True, slots=True)
class Run:
    """Every pod has started: the job runs."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop what still runs, with grace; the attempt ends with `cause` when all has stopped. `suspects`:
    nodes where a pod did not start while its siblings did. `elsewhere`: a start that failed is nobody's
    known fault, and tried again."""

    cause: EndedBy
    message: str
    grace_seconds: int
    refused: bool = False
    suspects: tuple[str, ...] = ()
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Conclude:
    """Nothing of the attempt runs any more: it ends."""

    ended_by: EndedBy
    message: str
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Recreate:
    """A pod went before all had started: make it again under the next name."""

    placement_id: int


Step = Run | Stop | Conclude | Recreate


@dataclass(frozen=True, slots=True)
class Decision:
    """`steps` to take now; `unknown_since` as it should stand; `due` when to look again."""

    steps: tuple[Step, ...]
    unknown_since: datetime | None
    due: datetime | None
    check_start: bool = False


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What else a decision needs: nodes by name, whether calls for the attempt are under way,
    until when images are known to be pulled, whether they are known not to be, the time."""

    nodes: Mapping[str, NodeStanding]
    now: datetime
    busy: bool = False
    pulling_until: datetime | None = None
    not_pulling: bool = False

    def standing(self, node: str) -> NodeStanding:
        """How a node stands; one that was never seen is not there."""
        return self.nodes.get(node, NodeStanding(exists=False))


def decide(attempt: AttemptLife, around: Circumstances) -> Decision:
    """The next step of an attempt. An ended one takes none."""
    if attempt.ended_at is not None:
        return Decision((), None, None)
    unknown_since = _unknown_since(attempt, around)
    if attempt.stop_cause:
        steps, due = _while_stopping(attempt, around)
        return Decision(steps, unknown_since, _earliest(due, _node_due(attempt, around)))
    step = _first_step(attempt, around)
    if step is not None:
        return Decision((step,), unknown_since, None)
    # A moment that has passed asks for nothing by itself: what it waits for will be told.
    ahead = (due for due in _own_dues(attempt, around) if due is not None and due > around.now)
    due = _earliest(_node_due(attempt, around), *ahead)
    return Decision((), unknown_since, due, check_start=_start_is_overdue(attempt, around))


def _first_step(attempt: AttemptLife, around: Circumstances) -> Step | None:
    """The first rule that applies, in the order in which rules win."""
    rules: tuple[Callable[[AttemptLife, Circumstances], Step | None], ...] = (
        _success,
        _lost_node,
        _bad_end,
        _time_limit,
        # Whatever a start took: what runs is not stopped for it (an adopted gang was placed long ago).
        _all_started,
        _waiting_errors,
        _half_bound,
        _too_long_a_start,
        _vanished_before_start,
    )
    for rule in rules:
        step = rule(attempt, around)
        if step is not None:
            return step
    return None


def _success(attempt: AttemptLife, around: Circumstances) -> Step | None:
    deciding = [p for p in attempt.placements if p.role == attempt.decides]
    if not deciding or not all(p.succeeded for p in deciding):
        return None
    return Stop(EndedBy.SUCCEEDED, "", attempt.grace_seconds)


def _lost_node(attempt: AttemptLife, around: Circumstances) -> Step | None:
    for placement in _unfinished(attempt):
        standing = around.standing(placement.node)
        if not standing.exists:
            message = f"node {placement.node} no longer exists ({_named(placement)} was on it)"
            return Stop(EndedBy.NODE_FAILURE, message, attempt.grace_seconds)
        since = standing.not_ready_since
        if since is not None and around.now >= since + timedelta(seconds=LOST_SECONDS):
            message = f"node {placement.node} has not been ready for {LOST_SECONDS} s"
            return Stop(EndedBy.NODE_FAILURE, message, attempt.grace_seconds)
    return None


def _bad_end(attempt: AttemptLife, around: Circumstances) -> Step | None:
    """The first replica that ended badly decides, unless the infrastructure is seen to be at
    fault: when a node or a pod goes, the programs beside it fail of it within moments."""
    bad = [p for p in attempt.placements if p.ended_at is not None and not p.succeeded]
    if attempt.started_at is None:
        # Gone before all had started: `_vanished_before_start` makes it again.
        bad = [p for p in bad if not _vanished(p)]
    if not bad:
        return None
    first = min(bad, key=lambda p: (p.ended_at or around.now, p.rank))
    blamed = next((p for p in bad if p.end in _INFRASTRUCTURE), None)
    if blamed is not None:
        return _stop_for(attempt, blamed)
    shaky = next((p for p in _unfinished(attempt) if _is_shaky(p, around)), None)
    if shaky is not None and first.end is End.EXIT:
        message = (
            f"{_named(first)} exited with {first.exit_code} while node {shaky.node}, which "
            f"holds {_named(shaky)}, was not ready"
        )
        return Stop(EndedBy.NODE_FAILURE, message, attempt.grace_seconds)
    return _stop_for(attempt, first)


_INFRASTRUCTURE = frozenset({End.REFUSED, End.LOST})
_CAUSES = {
    End.EXIT: EndedBy.FAILED,
    End.REFUSED: EndedBy.PLACEMENT_MISS,
    End.LOST: EndedBy.NODE_FAILURE,
    End.DEADLINE: EndedBy.TIMED_OUT,
    End.NOT_STARTED: EndedBy.START_FAILED,
}


def _stop_for(attempt: AttemptLife, placement: PlacementLife) -> Stop:
    end = placement.end or End.LOST
    return Stop(_CAUSES[end], _end_message(placement, end), attempt.grace_seconds)


def _end_message(placement: PlacementLife, end: End) -> str:
    where = f"{_named(placement)} on {placement.node}"
    told = f": {placement.message}" if placement.message else ""
    if end is End.EXIT:
        reason = "" if placement.end_reason in ("", "Error") else f" ({placement.end_reason})"
        return f"{where} exited with {placement.exit_code}{reason}{told}"
    if end is End.REFUSED:
        return f"the kubelet refused {where}: {placement.end_reason}{told}"
    if end is End.DEADLINE:
        return f"{where} ran past its deadline{told}"
    if end is End.NOT_STARTED:
        return f"the command of {where} cannot be run{told}"
    if placement.end_reason == DELETED_BY_OTHERS:
        return f"the pod of {where} was deleted, not by Muster{told}"
    return f"{where} was lost: {placement.end_reason or 'its pod is gone'}{told}"


def _is_shaky(placement: PlacementLife, around: Circumstances) -> bool:
    standing = around.standing(placement.node)
    return not standing.exists or standing.not_ready_since is not None


def _time_limit(attempt: AttemptLife, around: Circumstances) -> Step | None:
    ends_at = time_limit_at(attempt)
    if ends_at is None or around.now < ends_at:
        return None
    message = f"the time limit of {attempt.max_runtime_seconds} s was reached"
    return Stop(EndedBy.TIMED_OUT, message, attempt.grace_seconds)


def time_limit_at(attempt: AttemptLife) -> datetime | None:
    """When the attempt's limit is reached; None without a limit or before it runs."""
    if attempt.started_at is None or attempt.max_runtime_seconds is None:
        return None
    return attempt.started_at + timedelta(seconds=attempt.max_runtime_seconds)


def _waiting_errors(attempt: AttemptLife, around: Circumstances) -> Step | None:
    """An error that waiting does not cure is the job's fault when it hits every pod of a role,
    and a placement miss where siblings have started."""
    if attempt.started_at is not None:
        return None
    for role in sorted({p.role for p in attempt.placements}):
        pods = [p for p in attempt.placements if p.role == role]
        stuck = [p for p in pods if p.waiting_since and is_waiting_error(p.waiting_reason)]
        first = min((p.waiting_since for p in stuck if p.waiting_since), default=None)
        if first is None or around.now < first + timedelta(seconds=WAITING_ERROR_SECONDS):
            continue
        worst = min(stuck, key=lambda p: (p.waiting_since or around.now, p.rank))
        told = f"{worst.waiting_reason}: {worst.message}".rstrip(": ")
        if len(stuck) == len(pods):
            return Stop(EndedBy.START_FAILED, f"{_named(worst)}: {told}", attempt.grace_seconds)
        if any(p.started_at is not None for p in pods):
            message = f"{_named(worst)} does not start on {worst.node}, others did: {told}"
            suspects = tuple(sorted({p.node for p in stuck}))
            return Stop(EndedBy.PLACEMENT_MISS, message, attempt.grace_seconds, suspects=suspects)
    return None


def _half_bound(attempt: AttemptLife, around: Circumstances) -> Step | None:
    """A gang that is bound in part holds GPUs for nothing: not for longer than 30 s."""
    due = _half_bound_until(attempt)
    if due is None or around.now < due:
        return None
    waiting = sum(p.bound_at is None for p in attempt.placements)
    message = (
        f"{waiting} of {len(attempt.placements)} pods could not be bound within {BIND_SECONDS} s"
    )
    return Stop(EndedBy.PLACEMENT_MISS, message, attempt.grace_seconds)


def _half_bound_until(attempt: AttemptLife) -> datetime | None:
    bound = [p.bound_at for p in attempt.placements if p.bound_at is not None]
    if attempt.started_at is not None or not bound or len(bound) == len(attempt.placements):
        return None
    return min(bound) + timedelta(seconds=BIND_SECONDS)


def _too_long_a_start(attempt: AttemptLife, around: Circumstances) -> Step | None:
    limit = _start_limit_at(attempt, around)
    if limit is None or around.now < limit:
        return None
    longest = attempt.placed_at + timedelta(seconds=LONGEST_START_SECONDS)
    if around.now < longest and not around.not_pulling:
        return None  # whether images are being pulled has to be asked first: `check_start`
    waiting = next((p for p in _unfinished(attempt) if p.started_at is None), None)
    told = f"; {_named(waiting)} waits: {waiting.waiting_reason}" if waiting else ""
    seconds = int((around.now - attempt.placed_at).total_seconds())
    message = f"not all pods had started after {seconds} s{told}"
    return Stop(
        EndedBy.START_FAILED,
        message,
        attempt.grace_seconds,
        suspects=_alone_in_not_starting(attempt),
        elsewhere=True,
    )


def _alone_in_not_starting(attempt: AttemptLife) -> tuple[str, ...]:
    """Nodes where bound pods have not started, if most of their siblings have; none otherwise."""
    slow = [p for p in _unfinished(attempt) if p.started_at is None and p.bound_at is not None]
    started = sum(p.started_at is not None for p in attempt.placements)
    return tuple(sorted({p.node for p in slow})) if started > len(slow) else ()


def _start_limit_at(attempt: AttemptLife, around: Circumstances) -> datetime | None:
    if attempt.started_at is not None:
        return None
    usual = attempt.placed_at + timedelta(seconds=START_LIMIT_SECONDS)
    longest = attempt.placed_at + timedelta(seconds=LONGEST_START_SECONDS)
    return min(longest, max(usual, around.pulling_until or usual))


def _start_is_overdue(attempt: AttemptLife, around: Circumstances) -> bool:
    limit = _start_limit_at(attempt, around)
    return limit is not None and around.now >= limit


def _vanished_before_start(attempt: AttemptLife, around: Circumstances) -> Step | None:
    if attempt.started_at is not None or around.busy:
        return None
    placement = next((p for p in attempt.placements if _vanished(p)), None)
    if placement is None:
        return None
    if placement.try_number >= MOST_TRIES:
        message = f"{_named(placement)} was deleted {MOST_TRIES} times before all had started"
        return Stop(EndedBy.PLACEMENT_MISS, message, attempt.grace_seconds)
    return Recreate(placement.id)


def _vanished(placement: PlacementLife) -> bool:
    """True for a pod that was deleted under us: its end is no word of its own."""
    return placement.gone_at is not None and placement.end is End.LOST


def _all_started(attempt: AttemptLife, around: Circumstances) -> Step | None:
    if attempt.started_at is not None or not attempt.placements:
        return None
    return Run() if all(p.started_at is not None for p in attempt.placements) else None


def _while_stopping(
    attempt: AttemptLife, around: Circumstances
) -> tuple[tuple[Step, ...], datetime | None]:
    """Conclude once nothing runs that anybody could still stop."""
    if around.busy or any(not _has_stopped(p, around) for p in attempt.placements):
        return (), None
    cause = EndedBy(attempt.stop_cause)
    return (Conclude(cause, attempt.message, exit_code_of(attempt, cause)),), None


def _has_stopped(placement: PlacementLife, around: Circumstances) -> bool:
    if not placement.pod_uid or placement.ended_at is not None or placement.gone_at is not None:
        return True
    standing = around.standing(placement.node)
    if not standing.exists:
        return True
    since = standing.not_ready_since
    # The kubelet of a lost node confirms nothing: its seats stay taken, the job goes on.
    return (
        since is not None
        and placement.delete_sent_at is not None
        and around.now >= since + timedelta(seconds=LOST_SECONDS)
    )


def exit_code_of(attempt: AttemptLife, cause: EndedBy) -> int | None:
    """The job's exit code: 0 for success, that of the first replica to fail, else none."""
    if cause is EndedBy.SUCCEEDED:
        return 0
    if cause not in (EndedBy.FAILED, EndedBy.START_FAILED):
        return None
    # Kubernetes' times are whole seconds: what we ended ourselves may bear the same one.
    own = [p for p in attempt.placements if p.delete_sent_at is None]
    failed = [(p.ended_at, p.rank, p.exit_code) for p in own if p.exit_code]
    return min((f for f in failed if f[0] is not None), default=(None, 0, None))[2]


def _unknown_since(attempt: AttemptLife, around: Circumstances) -> datetime | None:
    since = [
        standing.not_ready_since
        for placement in _unfinished(attempt)
        if (standing := around.standing(placement.node)).not_ready_since is not None
    ]
    first = min((s for s in since if s is not None), default=None)
    if first is None or around.now < first + timedelta(seconds=OUT_SECONDS):
        return None
    return first


def _node_due(attempt: AttemptLife, around: Circumstances) -> datetime | None:
    """The next moment at which a node that is not ready becomes unknown, then lost."""
    dues = []
    for placement in _unfinished(attempt):
        since = around.standing(placement.node).not_ready_since
        for seconds in (OUT_SECONDS, LOST_SECONDS):
            if since is not None and around.now < since + timedelta(seconds=seconds):
                dues.append(since + timedelta(seconds=seconds))
    return min(dues, default=None)


def _own_dues(attempt: AttemptLife, around: Circumstances) -> Iterable[datetime | None]:
    yield time_limit_at(attempt)
    yield _half_bound_until(attempt)
    yield _start_limit_at(attempt, around)
    if attempt.started_at is None:
        for placement in attempt.placements:
            if placement.waiting_since and is_waiting_error(placement.waiting_reason):
                yield placement.waiting_since + timedelta(seconds=WAITING_ERROR_SECONDS)


def _unfinished(attempt: AttemptLife) -> list[PlacementLife]:
    return [p for p in attempt.placements if p.ended_at is None and p.gone_at is None]


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((m for m in moments if m is not None), default=None)


def _named(placement: PlacementLife) -> str:
    return f"replica {placement.role}-{placement.replica}"
