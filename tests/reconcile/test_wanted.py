"""What has to be done to Kubernetes follows from rows and view, and stops when it is done."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from scheduler.kube.manifests import NOTICE_ANNOTATION
from scheduler.kube.seen import PodSeen
from scheduler.reconcile.ledger import AttemptLife
from scheduler.reconcile.wanted import (
    Action,
    Bind,
    CheckStart,
    Delete,
    KeepLog,
    Launch,
    Notify,
    Pods,
    RemoveObjects,
    Wants,
    wants_of,
)
from tests.reconcile.lives import at, attempt, container, ended, placement, pod, running, starting


def wants(
    life: AttemptLife, *pods: PodSeen, now: float = 100, kept: tuple[int, ...] = (), **more: Any
) -> Wants:
    seen = {p.uid: p for p in pods}
    return wants_of(life, Pods(seen, frozenset(kept), **({"may_start": True} | more)), at(now))


def actions(life: AttemptLife, *pods: PodSeen, **more: Any) -> tuple[Action, ...]:
    return wants(life, *pods, **more).actions


def unmade(replica: int) -> Any:
    return placement(replica, pod_uid="", created_at=None, bound_at=None)


def test_gang_is_launched_while_any_pod_is_missing() -> None:
    life = starting(placement(0, bound_at=None), unmade(1), phase="placed")
    assert actions(life, pod(0, node=None)) == (Launch(life.key),)


def test_nothing_is_bound_before_all_are_created() -> None:
    life = starting(placement(0, bound_at=None), unmade(1), phase="placed")
    assert not [a for a in actions(life, pod(0, node=None)) if isinstance(a, Bind)]


def test_created_gang_is_bound_together_with_uids() -> None:
    life = starting(placement(0, bound_at=None), placement(1, bound_at=None), phase="placed")
    (bind,) = actions(life, pod(0, node=None), pod(1, node=None))
    assert isinstance(bind, Bind)
    assert [(b.pod.uid, b.node) for b in bind.bindings] == [("u0", "n0"), ("u1", "n1")]


def test_gang_with_a_pod_gone_is_not_bound() -> None:
    gone = placement(1, bound_at=None, gone_at=at(5), ended_at=at(5))
    assert actions(starting(placement(0, bound_at=None), gone), pod(0, node=None)) == ()


def test_pods_of_the_default_scheduler_are_left_to_it() -> None:
    life = starting(placement(0, bound_at=None), phase="placed")
    assert actions(life, pod(0, node=None, scheduler="default-scheduler")) == ()


def test_nothing_starts_while_the_cluster_is_paused() -> None:
    assert actions(starting(unmade(0), phase="placed"), may_start=False) == ()


def test_running_gang_wants_nothing() -> None:
    assert wants(attempt(running(0)), pod(0, phase="Running")) == Wants(())


def test_overdue_start_is_asked_about() -> None:
    life = starting(running(0), placement(1))
    (check,) = actions(life, pod(0), pod(1), check_start=True)
    assert isinstance(check, CheckStart)
    assert [p.uid for p in check.pods] == ["u1"]


def test_overdue_start_without_any_pod_is_asked_about_too() -> None:
    launch, check = actions(starting(unmade(0), phase="placed"), check_start=True)
    assert isinstance(launch, Launch)
    assert isinstance(check, CheckStart)
    assert check.pods == ()


def stopping(*placements: Any, cause: str = "cancelled", **changes: Any) -> AttemptLife:
    return attempt(*placements, stop_cause=cause, stop_requested_at=at(90), **changes)


def test_stop_ends_what_runs_with_grace_and_keeps_its_log() -> None:
    life = stopping(running(0), ended(1, 1), stop_grace_seconds=7)
    (delete,) = actions(life, pod(0), pod(1), kept=(101,))
    assert isinstance(delete, Delete)
    assert (delete.pod.uid, delete.grace_seconds, delete.running) == ("u0", 7, True)
    assert delete.log is not None


def test_delete_is_sent_once() -> None:
    assert actions(stopping(running(0, delete_sent_at=at(91))), pod(0)) == ()


def test_pod_that_is_not_there_is_not_deleted() -> None:
    assert actions(stopping(running(0))) == ()


def test_job_that_reads_its_notice_has_time_to_save() -> None:
    life = stopping(
        running(0),
        cause="preempted",
        checkpoint_notice="file",
        checkpoint_grace_seconds=60,
        max_runtime_seconds=None,
    )
    before = wants(life, pod(0, phase="Running"), now=100)
    (notify,) = before.actions
    assert isinstance(notify, Notify)
    assert json.loads(notify.notice) == {
        "kind": "preemption",
        "deadline": "2026-11-29T12:02:30Z",
    }
    assert before.due == at(150)
    noted = pod(0, phase="Running", annotations={NOTICE_ANNOTATION: notify.notice})
    assert actions(life, noted, now=149) == ()
    (delete,) = actions(life, noted, now=150)
    assert isinstance(delete, Delete)


def test_job_that_says_that_it_has_saved_is_ended_at_once() -> None:
    more: dict[str, Any] = {
        "cause": "preempted",
        "checkpoint_notice": "poll",
        "checkpoint_grace_seconds": 60,
    }
    told = stopping(running(0), **more)
    asked = told.stop_requested_at
    assert asked is not None
    assert not any(isinstance(a, Delete) for a in actions(told, pod(0)))
    for saved_after in (timedelta(seconds=-30), timedelta(seconds=5)):
        saved = stopping(running(0), **more, last_checkpoint_at=asked + saved_after)
        assert isinstance(actions(saved, pod(0))[0], Delete)
    long_ago = stopping(running(0), **more, last_checkpoint_at=asked - timedelta(seconds=61))
    assert not any(isinstance(a, Delete) for a in actions(long_ago, pod(0)))


def test_notice_of_an_order_comes_and_goes() -> None:
    life = attempt(running(0), checkpoint_notice="file", max_runtime_seconds=None)
    (notify,) = actions(life, pod(0, phase="Running"), notice="soon")
    assert isinstance(notify, Notify)
    told = pod(0, phase="Running", annotations={NOTICE_ANNOTATION: "soon"})
    assert actions(life, told, notice="soon") == ()
    (withdrawn,) = actions(life, told)
    assert isinstance(withdrawn, Notify)
    assert withdrawn.notice == ""


def test_job_that_is_signalled_is_ended_at_once() -> None:
    life = stopping(running(0), cause="preempted", checkpoint_grace_seconds=60)
    assert isinstance(actions(life, pod(0))[0], Delete)


def test_time_limit_is_noted_before_it_is_reached() -> None:
    life = attempt(
        running(0),
        max_runtime_seconds=600,
        checkpoint_notice="file",
        checkpoint_grace_seconds=60,
    )
    assert wants(life, pod(0), now=500).due == at(542)
    (notify,) = actions(life, pod(0), now=542)
    assert isinstance(notify, Notify)
    assert json.loads(notify.notice)["kind"] == "time_limit"


def over(*placements: Any, **changes: Any) -> AttemptLife:
    columns = {"ended_at": at(60), "stop_cause": "succeeded", "phase": "finished"}
    return attempt(*placements, **(columns | {"service_created_at": None} | changes))


def test_finished_pods_go_after_an_hour() -> None:
    done = pod(0, phase="Succeeded")
    early = wants(over(ended(0)), done, kept=(100,))
    assert early == Wants((), at(50 + 3600))
    (delete,) = actions(over(ended(0)), done, kept=(100,), now=3650)
    assert isinstance(delete, Delete)
    assert delete.log is None


def test_service_and_secret_go_with_the_attempt() -> None:
    life = over(ended(0), service_created_at=at(0))
    (remove,) = actions(life, pod(0, phase="Succeeded"), kept=(100,))
    assert remove == RemoveObjects(life.key, "muster-research", "j12345678-1")


def test_log_is_kept_when_a_pod_has_ended() -> None:
    (keep,) = actions(attempt(ended(0, 1), running(1)), pod(0, phase="Failed"), pod(1))
    assert isinstance(keep, KeepLog)
    assert (keep.log.role, keep.log.replica, keep.lost) == ("main", 0, "")


def test_log_of_a_lost_replica_says_when_and_where() -> None:
    lost = ended(0, None, end_reason="Evicted", gone_at=at(50))
    (keep,) = actions(attempt(lost, running(1)), pod(1))
    assert isinstance(keep, KeepLog)
    assert keep.lost == "[muster] main-0 was lost on n0 at 2026-11-29T12:00:50Z: Evicted"


def test_older_tries_are_removed() -> None:
    stray = pod(0, uid="old", name="j12345678-1-main-0-0")
    (delete,) = actions(attempt(running(0)), pod(0), stray)
    assert isinstance(delete, Delete)
    assert delete.pod.uid == "old"
    ending = pod(0, uid="old", name="j12345678-1-main-0-0", deleting_since=at(1))
    assert actions(attempt(running(0)), pod(0), ending) == ()


def test_pod_about_to_be_adopted_is_no_stray() -> None:
    assert actions(starting(unmade(0)), pod(0), may_start=False) == ()


def test_unfinished_pod_of_an_ended_attempt_is_ended() -> None:
    life = over(running(0))
    (delete,) = actions(life, pod(0, container("running"), phase="Running"))
    assert isinstance(delete, Delete)
