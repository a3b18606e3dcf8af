"""One small case per reason code: a snapshot in which the job `j` waits for exactly that reason.

For tests of every room: the planner's own (`test_reasons.py`), and those of sentences, answers and pages, which take
the numbers from here. `reason_for(code)` plans the case and gives the dominant reason with its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from scheduler.core.inputs.cluster import ClusterMode, Node, OutCause, WindowKind
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.quotas import Cohort, OrderPolicy, Queue, QueueState, UserLimit
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.planner import DEFAULT_OPTIONS
from scheduler.core.reasons import Reason, ReasonCode
from scheduler.core.whatif import simulate
from tests.core.builders import (
    NOW,
    ask,
    fabric,
    gang,
    job,
    planned,
    role,
    running,
    snapshot,
    tenant,
)
from tests.core.test_bookings import busy, sized, window


@dataclass(frozen=True)
class ReasonCase:
    """A snapshot and options under which `j` waits. `asked`: the job is not in the snapshot but would be submitted
    to it (a closed queue takes none)."""

    snapshot: Snapshot
    options: Options = DEFAULT_OPTIONS
    asked: WaitingJob | None = None


def reason_for(code: ReasonCode) -> Reason:
    """The dominant reason of `j` in the code's case, as the planner tells it."""
    case = CASES[code]
    if case.asked is not None:
        told = simulate(case.snapshot, case.asked, case.options).reason
    else:
        told = planned(case.snapshot, case.options).reason_of("j")
    assert told is not None, code
    return told


NODES = fabric(1, 2, 4)
ALL = tuple(n.name for n in NODES)
ONE = snapshot(NODES, gang("j", 1))


def cluster(**changes: Any) -> Snapshot:
    return replace(ONE, cluster=replace(ONE.cluster, **changes))


def own(**changes: Any) -> Snapshot:
    return snapshot(NODES, replace(gang("j", 1), **changes))


def nodes_out(*names: str) -> tuple[Node, ...]:
    return tuple(replace(n, outs=(OutCause.UNHEALTHY,)) if n.name in names else n for n in NODES)


def fair() -> Snapshot:
    tenants = (tenant("t", 0, "co"), tenant("b", 0, "co"), tenant("pool", 8, "co"))
    held = running("r", (ALL[0], 8), wanted=ask(role(), tenant="b", queue="b/train"))
    cohorts = (Cohort("co", order=OrderPolicy.FAIR_SHARE),)
    return replace(ONE, tenants=tenants, cohorts=cohorts, running=(held,))


def strict() -> Snapshot:
    held = busy("r", 500.0, ALL[0])
    jobs = (gang("first", 8, age=5), gang("j", 1))
    queues = (Queue("t/train", "t", backfill=False),)
    return snapshot(NODES, *jobs, running=(held,), queues=queues)


def preempting() -> Snapshot:
    low = ask(role(8), priority=100, max_runtime_seconds=90_000.0)
    held = running("r", *((n, 8) for n in ALL), wanted=low, placed_at=NOW - 9_000)
    return snapshot(NODES, gang("j", 1), running=(held,))


HALF = busy("r", 1_000.0, *ALL[:4])

SNAPSHOTS = {
    ReasonCode.CLUSTER_UNREACHABLE: cluster(reachable=False),
    ReasonCode.CLUSTER_PAUSED: cluster(mode=ClusterMode.PAUSED),
    ReasonCode.CLUSTER_OBSERVING: cluster(mode=ClusterMode.OBSERVE),
    ReasonCode.QUEUE_HELD: replace(ONE, queues=(Queue("t/train", "t", QueueState.HELD),)),
    ReasonCode.WAITING_FOR_DEPENDENCY: own(depends_on=("job_x", "job_y")),
    ReasonCode.BEGIN_TIME: own(begin_at=NOW + 5),
    ReasonCode.BACKOFF: own(backoff_until=NOW + 5),
    ReasonCode.REFUSED_BY_KUBERNETES: own(refused_until=NOW + 5, refused_message="quota"),
    ReasonCode.EXCEEDS_QUOTA_FOR_EVER: replace(ONE, tenants=(tenant(nominal=4),)),
    ReasonCode.EXCEEDS_CLUSTER_FOR_EVER: snapshot(NODES, gang("j", 9)),
    ReasonCode.WAITING_FOR_PREEMPTED: preempting(),
    ReasonCode.HIGHER_PRIORITY_AHEAD: strict(),
    ReasonCode.USER_LIMIT: replace(
        ONE, running=(HALF,), user_limits=(UserLimit("t", "u", "h100", 32),)
    ),
    ReasonCode.WAITING_FOR_QUOTA: replace(ONE, running=(HALF,), tenants=(tenant(nominal=36),)),
    ReasonCode.WAITING_FOR_FAIR_SHARE: fair(),
    ReasonCode.WAITING_FOR_DRIVER: snapshot(NODES, job("j", ask(role(), min_cuda=(12, 8)))),
    ReasonCode.UNHEALTHY_NODES: snapshot(nodes_out(*ALL), gang("j", 1)),
    ReasonCode.WAITING_FOR_NODES: snapshot(NODES, gang("j", 5), running=(HALF,)),
    ReasonCode.WAITING_FOR_TOPOLOGY: snapshot(
        NODES, gang("j", 4, level="leaf"), running=(busy("r", 9.0, ALL[0], ALL[4]),)
    ),
    ReasonCode.WAITING_FOR_RESERVATION: replace(
        ONE, windows=(window(0, 900, *ALL, kind=WindowKind.RESERVED),)
    ),
    ReasonCode.WAITING_FOR_MAINTENANCE: replace(ONE, windows=(window(60, 900, *ALL),)),
    ReasonCode.WAITING_FOR_BOOKING: snapshot(
        NODES, sized("head", 8, 500, 9), sized("j", 1, 9_999), running=(HALF,)
    ),
}

CASES = {code: ReasonCase(given) for code, given in SNAPSHOTS.items()} | {
    ReasonCode.QUEUE_CLOSED: ReasonCase(
        replace(snapshot(NODES), queues=(Queue("t/train", "t", QueueState.CLOSED),)),
        asked=gang("j", 1),
    ),
    ReasonCode.NOT_YET_CONSIDERED: ReasonCase(
        snapshot(NODES, gang("a", 1, age=1), gang("j", 1)), Options(max_starts=1)
    ),
}
"""A case for every code that there is."""
