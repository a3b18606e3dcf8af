"""Every reason code has a fixture that produces it, with all its numbers."""

from dataclasses import replace

import pytest

from scheduler.core.inputs.cluster import ClusterMode, OutCause, WindowKind
from scheduler.core.inputs.quotas import Cohort, OrderPolicy, Queue, QueueState, UserLimit
from scheduler.core.inputs.snapshot import Options
from scheduler.core.reasons import REASON_NUMBERS, ReasonCode
from scheduler.core.whatif import simulate
from tests.core.builders import (
    NOW,
    ask,
    code_of,
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

NODES = fabric(1, 2, 4)
ALL = tuple(n.name for n in NODES)
ONE = snapshot(NODES, gang("j", 1))


def cluster(**changes):
    return replace(ONE, cluster=replace(ONE.cluster, **changes))


def own(**changes):
    return snapshot(NODES, replace(gang("j", 1), **changes))


def nodes_out(*names):
    return tuple(replace(n, outs=(OutCause.UNHEALTHY,)) if n.name in names else n for n in NODES)


def fair():
    tenants = (tenant("t", 0, "co"), tenant("b", 0, "co"), tenant("pool", 8, "co"))
    held = running("r", (ALL[0], 8), wanted=ask(role(), tenant="b", queue="b/train"))
    cohorts = (Cohort("co", order=OrderPolicy.FAIR_SHARE),)
    return replace(ONE, tenants=tenants, cohorts=cohorts, running=(held,))


def strict():
    held = busy("r", 500.0, ALL[0])
    jobs = (gang("first", 8, age=5), gang("j", 1))
    queues = (Queue("t/train", "t", backfill=False),)
    return snapshot(NODES, *jobs, running=(held,), queues=queues)


def preempting():
    low = ask(role(8), priority=100, max_runtime_seconds=90_000.0)
    held = running("r", *((n, 8) for n in ALL), wanted=low, placed_at=NOW - 9_000)
    return snapshot(NODES, gang("j", 1), running=(held,))


HALF = busy("r", 1_000.0, *ALL[:4])

FIXTURES = {
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


@pytest.mark.parametrize("code", list(FIXTURES))
def test_reason_is_produced_with_its_numbers(code):
    reason = planned(FIXTURES[code]).reason_of("j")
    assert reason is not None
    assert reason.code == code
    assert set(REASON_NUMBERS[code]) <= set(reason.numbers)


def test_closed_queue_is_told_to_a_new_job():
    given = replace(snapshot(NODES), queues=(Queue("t/train", "t", QueueState.CLOSED),))
    reason = simulate(given, gang("j", 1)).reason
    assert reason is not None
    assert reason.code == ReasonCode.QUEUE_CLOSED


def test_job_beyond_the_plans_budget_is_not_yet_considered():
    made = planned(snapshot(NODES, gang("a", 1, age=1), gang("j", 1)), Options(max_starts=1))
    assert code_of(made, "j") == ReasonCode.NOT_YET_CONSIDERED


def test_every_code_has_a_fixture():
    apart = {ReasonCode.QUEUE_CLOSED, ReasonCode.NOT_YET_CONSIDERED}
    assert set(FIXTURES) | apart == set(ReasonCode) == set(REASON_NUMBERS)


def test_all_other_reasons_follow_the_dominant_one():
    held = replace(HALF, ask=replace(HALF.ask, tenant="t"))
    given = snapshot(
        nodes_out(ALL[7]), gang("j", 4), running=(held,), tenants=(tenant(nominal=40),)
    )
    reasons = [str(r.code) for r in next(iter(planned(given).verdicts.values())).reasons]
    assert reasons == ["waiting_for_quota", "waiting_for_nodes", "unhealthy_nodes"]
