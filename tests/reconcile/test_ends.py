"""When an attempt runs, stops and ends, and why: DESIGN section 4, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from queues.lifecycle import EndedBy
from scheduler.reconcile.ends import (
    BIND_SECONDS,
    LONGEST_START_SECONDS,
    LOST_SECONDS,
    MOST_TRIES,
    OUT_SECONDS,
    START_LIMIT_SECONDS,
    WAITING_ERROR_SECONDS,
    Circumstances,
    Conclude,
    Decision,
    NodeStanding,
    Recreate,
    Run,
    Stop,
    decide,
)
from scheduler.reconcile.ledger import AttemptLife, PlacementLife
from tests.reconcile.lives import NOW, at, attempt, ended, placement, running, starting

WELL = NodeStanding()


def around(seconds: float = 100, **changes: Any) -> Circumstances:
    nodes = {f"n{i}": WELL for i in range(4)} | changes.pop("nodes", {})
    return Circumstances(nodes=nodes, now=at(seconds), **changes)


def stop_of(decision: Decision) -> Stop:
    (step,) = decision.steps
    assert isinstance(step, Stop)
    return step


def test_running_attempt_without_a_limit_needs_nothing() -> None:
    assert decide(attempt(running(0), running(1)), around()) == Decision((), None, None)


def test_ended_attempt_takes_no_step() -> None:
    over = attempt(ended(0), ended_at=at(60), stop_cause="succeeded")
    assert decide(over, around()).steps == ()


def test_gang_runs_when_every_pod_has_started() -> None:
    assert decide(starting(running(0), running(1)), around(5)).steps == (Run(),)
    assert decide(starting(running(0), placement(1)), around(5)).steps == ()


def test_replica_that_ended_before_the_last_started_counts_as_started() -> None:
    assert decide(starting(ended(0), running(1)), around(5)).steps == (Run(),)


def test_deciding_role_that_succeeds_stops_the_rest() -> None:
    server = running(2, role="server")
    step = stop_of(decide(attempt(ended(0), ended(1), server), around()))
    assert step.cause is EndedBy.SUCCEEDED


def test_success_needs_every_deciding_replica() -> None:
    assert decide(attempt(ended(0), running(1)), around()).steps == ()


def test_role_named_by_decides_decides() -> None:
    worker = ended(1, role="worker")
    waits = attempt(ended(0), running(1, role="worker"), decides="worker")
    assert decide(waits, around()).steps == ()
    done = decide(attempt(running(0), worker, decides="worker"), around())
    assert stop_of(done).cause is EndedBy.SUCCEEDED


def test_first_failure_decides_and_names_replica_node_and_code() -> None:
    first = ended(1, 3, ended_at=at(40), end_reason="Error", message="CUDA error")
    later = ended(0, 1, ended_at=at(41))
    step = stop_of(decide(attempt(later, first, running(2)), around()))
    assert step.cause is EndedBy.FAILED
    assert step.message == "replica main-1 on n1 exited with 3: CUDA error"


def test_out_of_memory_is_named() -> None:
    step = stop_of(decide(attempt(ended(0, 137, end_reason="OOMKilled")), around()))
    assert "exited with 137 (OOMKilled)" in step.message


def test_failure_of_another_role_decides_too() -> None:
    step = stop_of(decide(attempt(running(0), ended(1, 2, role="server")), around()))
    assert step.cause is EndedBy.FAILED


@pytest.mark.parametrize(
    ("reason", "code", "cause"),
    [
        ("OutOfnvidia.com/gpu", None, EndedBy.PLACEMENT_MISS),
        ("OutOfcpu", None, EndedBy.PLACEMENT_MISS),
        ("UnexpectedAdmissionError", None, EndedBy.PLACEMENT_MISS),
        ("TopologyAffinityError", None, EndedBy.PLACEMENT_MISS),
        ("Evicted", None, EndedBy.NODE_FAILURE),
        ("Terminated", None, EndedBy.NODE_FAILURE),
        ("Deleted", None, EndedBy.NODE_FAILURE),
        ("DeadlineExceeded", None, EndedBy.TIMED_OUT),
        ("StartError", 128, EndedBy.START_FAILED),
        ("Error", 1, EndedBy.FAILED),
    ],
)
def test_end_of_a_pod_has_its_cause(reason: str, code: int | None, cause: EndedBy) -> None:
    step = stop_of(decide(attempt(ended(0, code, end_reason=reason), running(1)), around()))
    assert step.cause is cause


def test_infrastructure_is_blamed_before_the_programs_that_fail_of_it() -> None:
    crashed = ended(0, 1, ended_at=at(40))
    deleted = ended(1, None, ended_at=at(45), end_reason="Deleted")
    step = stop_of(decide(attempt(crashed, deleted), around()))
    assert step.cause is EndedBy.NODE_FAILURE
    assert "was deleted, not by Muster" in step.message


def test_exit_beside_a_node_that_is_not_ready_is_no_failure_of_the_job() -> None:
    shaky = {"n1": NodeStanding(not_ready_since=at(95))}
    step = stop_of(decide(attempt(ended(0, 1), running(1)), around(nodes=shaky)))
    assert step.cause is EndedBy.NODE_FAILURE
    assert "n1" in step.message


def test_pod_gone_while_running_is_a_node_failure() -> None:
    gone = ended(0, None, end_reason="Gone", gone_at=at(50))
    assert stop_of(decide(attempt(gone, running(1)), around())).cause is EndedBy.NODE_FAILURE


def test_pod_gone_before_all_started_is_made_again() -> None:
    gone = placement(0, ended_at=at(4), end_reason="Gone", gone_at=at(4))
    waits = starting(gone, placement(1))
    assert decide(waits, around(5)).steps == (Recreate(100),)
    assert decide(waits, around(5, busy=True)).steps == ()


def test_pod_that_goes_again_and_again_is_a_placement_miss() -> None:
    gone = placement(0, ended_at=at(4), end_reason="Gone", gone_at=at(4), try_number=MOST_TRIES)
    assert stop_of(decide(starting(gone), around(5))).cause is EndedBy.PLACEMENT_MISS


def test_time_limit_stops_and_is_due_before() -> None:
    limited = attempt(running(0), max_runtime_seconds=600)
    assert decide(limited, around(601)).due == at(602)
    step = stop_of(decide(limited, around(602)))
    assert (step.cause, step.grace_seconds) == (EndedBy.TIMED_OUT, 30)


def test_node_is_unknown_after_a_minute_and_lost_after_five() -> None:
    nodes = {"n1": NodeStanding(not_ready_since=at(100))}
    gang = attempt(running(0), running(1))
    before = decide(gang, around(100 + OUT_SECONDS - 1, nodes=nodes))
    assert (before.steps, before.unknown_since) == ((), None)
    assert before.due == at(100 + OUT_SECONDS)
    unknown = decide(gang, around(100 + OUT_SECONDS, nodes=nodes))
    assert (unknown.steps, unknown.unknown_since) == ((), at(100))
    assert unknown.due == at(100 + LOST_SECONDS)
    lost = stop_of(decide(gang, around(100 + LOST_SECONDS, nodes=nodes)))
    assert lost.cause is EndedBy.NODE_FAILURE


def test_node_of_a_replica_that_has_ended_does_not_matter() -> None:
    nodes = {"n0": NodeStanding(not_ready_since=NOW)}
    decision = decide(attempt(ended(0), running(1)), around(1000, nodes=nodes))
    assert (decision.steps, decision.unknown_since) == ((), None)


def test_deleted_node_ends_the_attempt_at_once() -> None:
    step = stop_of(decide(attempt(running(0), running(9)), around(10)))
    assert step.cause is EndedBy.NODE_FAILURE
    assert "n9 no longer exists" in step.message


def waiting(replica: int, reason: str, since: float, **changes: Any) -> PlacementLife:
    return placement(
        replica, waiting_reason=reason, waiting_since=at(since), message="no such tag", **changes
    )


def test_image_that_no_pod_can_pull_fails_the_job_after_a_minute() -> None:
    stuck = starting(waiting(0, "ErrImagePull", 10), waiting(1, "ImagePullBackOff", 12))
    early = decide(stuck, around(10 + WAITING_ERROR_SECONDS - 1))
    assert early.steps == ()
    assert early.due == at(10 + WAITING_ERROR_SECONDS)
    step = stop_of(decide(stuck, around(10 + WAITING_ERROR_SECONDS)))
    assert step.cause is EndedBy.START_FAILED
    assert "no such tag" in step.message


def test_image_that_fails_on_one_node_only_is_no_fault_of_the_job() -> None:
    partly = starting(waiting(0, "ErrImagePull", 10), running(1))
    step = stop_of(decide(partly, around(80)))
    assert step.cause is EndedBy.PLACEMENT_MISS
    assert "n0" in step.message
    assert step.suspects == ("n0",)


def test_siblings_that_are_still_pulling_are_waited_for() -> None:
    undecided = starting(waiting(0, "ErrImagePull", 10), waiting(1, "ContainerCreating", 10))
    decision = decide(undecided, around(80))
    assert decision.steps == ()
    assert decision.due is None or decision.due > at(80)


def test_start_that_takes_too_long_is_asked_about_then_ended() -> None:
    slow = starting(running(0), waiting(1, "ContainerCreating", 1))
    assert decide(slow, around(60)).due == at(START_LIMIT_SECONDS)
    asked = decide(slow, around(START_LIMIT_SECONDS))
    assert (asked.steps, asked.check_start) == ((), True)
    pulling = around(START_LIMIT_SECONDS, pulling_until=at(START_LIMIT_SECONDS + 60))
    assert decide(slow, pulling).steps == ()
    assert decide(slow, pulling).due == at(START_LIMIT_SECONDS + 60)
    step = stop_of(decide(slow, around(START_LIMIT_SECONDS, not_pulling=True)))
    assert step.cause is EndedBy.START_FAILED
    assert "main-1" in step.message
    assert step.suspects == (), "one of two says nothing"
    most = starting(running(0), running(2), waiting(1, "ContainerCreating", 1))
    late = stop_of(decide(most, around(START_LIMIT_SECONDS, not_pulling=True)))
    assert late.suspects == ("n1",)


def test_gang_that_runs_is_not_stopped_for_a_long_start() -> None:
    adopted = starting(running(0), running(1))
    late = around(START_LIMIT_SECONDS + 1, not_pulling=True)
    assert decide(adopted, late).steps == (Run(),)


def test_pulling_extends_a_start_by_two_hours_at_most() -> None:
    slow = starting(waiting(0, "ContainerCreating", 1))
    for_ever = around(LONGEST_START_SECONDS, pulling_until=at(LONGEST_START_SECONDS + 60))
    assert stop_of(decide(slow, for_ever)).cause is EndedBy.START_FAILED


def test_gang_bound_in_part_is_rolled_back_after_thirty_seconds() -> None:
    half = starting(placement(0), placement(1, bound_at=None), phase="placed")
    assert decide(half, around(10)).due == at(BIND_SECONDS)
    assert stop_of(decide(half, around(BIND_SECONDS))).cause is EndedBy.PLACEMENT_MISS


def stopping(*placements: PlacementLife, cause: str = "cancelled", **changes: Any) -> AttemptLife:
    return attempt(
        *placements, stop_cause=cause, stop_requested_at=at(60), phase="stopping", **changes
    )


def test_stopping_attempt_concludes_when_nothing_runs() -> None:
    assert decide(stopping(ended(0), running(1)), around()).steps == ()
    done = decide(stopping(ended(0, 143), ended(1, 143), message="by ravi"), around())
    assert done.steps == (Conclude(EndedBy.CANCELLED, "by ravi", None),)


def test_stopping_attempt_waits_for_calls_under_way() -> None:
    never = stopping(placement(0, pod_uid="", created_at=None, bound_at=None))
    assert decide(never, around(busy=True)).steps == ()
    assert decide(never, around()).steps == (Conclude(EndedBy.CANCELLED, "", None),)


def test_exit_code_is_that_of_the_first_replica_to_fail_by_itself() -> None:
    failed = ended(1, 3, ended_at=at(50))
    stopped = ended(0, 143, ended_at=at(50), delete_sent_at=at(50))
    (step,) = decide(stopping(stopped, failed, cause="failed"), around()).steps
    assert isinstance(step, Conclude)
    assert step.exit_code == 3


def test_success_has_exit_code_zero() -> None:
    (step,) = decide(stopping(ended(0), cause="succeeded"), around()).steps
    assert isinstance(step, Conclude)
    assert step.exit_code == 0


def test_pods_on_a_lost_node_are_not_waited_for_once_they_were_told() -> None:
    nodes = {"n0": NodeStanding(not_ready_since=NOW)}
    told = stopping(running(0, delete_sent_at=at(60)), cause="node_failure")
    assert decide(told, around(LOST_SECONDS - 1, nodes=nodes)).steps == ()
    assert decide(told, around(LOST_SECONDS - 1, nodes=nodes)).due == at(LOST_SECONDS)
    assert len(decide(told, around(LOST_SECONDS, nodes=nodes)).steps) == 1
    untold = stopping(running(0), cause="node_failure")
    assert decide(untold, around(LOST_SECONDS, nodes=nodes)).steps == ()
