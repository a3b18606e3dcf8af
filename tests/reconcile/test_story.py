"""What a pod tells, and what of it is kept in placement rows."""

from __future__ import annotations

from datetime import datetime

import pytest

from scheduler.kube.seen import PodSeen
from scheduler.reconcile.ledger import AttemptLife
from scheduler.reconcile.placements import RowChanges, fresh_try, take_pods
from scheduler.reconcile.story import End, end_of, tell
from tests.reconcile.lives import (
    NOW,
    at,
    attempt,
    container,
    ended,
    placement,
    pod,
    running,
    starting,
)


@pytest.mark.parametrize(
    ("reason", "exit_code", "end"),
    [
        ("Completed", 0, End.EXIT),
        ("Error", 1, End.EXIT),
        ("OOMKilled", 137, End.EXIT),
        ("OutOfpods", None, End.REFUSED),
        ("UnexpectedAdmissionError", None, End.REFUSED),
        ("DeadlineExceeded", None, End.DEADLINE),
        ("StartError", 128, End.NOT_STARTED),
        ("Evicted", None, End.LOST),
        ("", None, End.LOST),
        ("Unknown", 255, End.LOST),
        ("ContainerStatusUnknown", 137, End.LOST),
    ],
)
def test_row_tells_the_end_again(reason: str, exit_code: int | None, end: End) -> None:
    assert end_of(reason, exit_code) is end


def test_waiting_pod_tells_what_it_waits_for() -> None:
    story = tell(pod(0, container("waiting", reason="ErrImagePull", message="no such tag")), NOW)
    assert (story.waiting_reason, story.waiting_message) == ("ErrImagePull", "no such tag")
    assert story.end is None
    assert story.started_at is None


def test_container_that_is_stuck_says_more_than_one_that_waits_its_turn() -> None:
    first = container("waiting", name="setup", init=True, reason="ImagePullBackOff")
    main = container("waiting", reason="PodInitializing")
    assert tell(pod(0, first, main), NOW).waiting_reason == "ImagePullBackOff"


def test_exit_has_code_and_times() -> None:
    done = container("terminated", exit_code=3, reason="Error", started_at=at(1), finished_at=at(9))
    story = tell(pod(0, done, phase="Failed"), at(20))
    assert (story.end, story.exit_code, story.reason) == (End.EXIT, 3, "Error")
    assert (story.started_at, story.ended_at) == (at(1), at(9))


def test_failed_init_container_is_the_pods_exit() -> None:
    setup = container("terminated", name="setup", init=True, exit_code=2, finished_at=at(4))
    story = tell(pod(0, setup, container("waiting"), phase="Failed"), at(5))
    assert (story.end, story.exit_code) == (End.EXIT, 2)


@pytest.mark.parametrize("reason", ["OutOfnvidia.com/gpu", "Evicted", "DeadlineExceeded"])
def test_what_the_kubelet_says_counts_before_exit_codes(reason: str) -> None:
    killed = container("terminated", exit_code=137, reason="Error", finished_at=at(4))
    story = tell(pod(0, killed, phase="Failed", reason=reason), at(5))
    assert story.end is end_of(reason, None)
    assert story.exit_code is None


@pytest.mark.parametrize(("reason", "code"), [("Unknown", 255), ("ContainerStatusUnknown", 137)])
def test_pod_whose_node_was_rebooted_under_it_is_lost_and_has_no_exit_code(
    reason: str, code: int
) -> None:
    unseen = container("terminated", exit_code=code, reason=reason, finished_at=at(4))
    life = attempt(running(0), running(1))
    story = tell(pod(0, unseen, phase="Failed"), at(5))
    assert (story.end, story.exit_code, story.reason) == (End.LOST, None, reason)
    take(life, pod(0, unseen, phase="Failed"))
    row = life.placements[0]
    assert (row.end, row.exit_code, row.end_reason) == (End.LOST, None, reason)


def test_disrupted_pod_is_lost() -> None:
    killed = container("terminated", exit_code=143, finished_at=at(4))
    gone = pod(0, killed, phase="Failed", disruption="DeletionByTaintManager")
    assert tell(gone, at(5)).end is End.LOST


def test_failed_pod_without_containers_is_lost() -> None:
    assert tell(pod(0, phase="Failed"), NOW).end is End.LOST


def take(life: AttemptLife, *pods: PodSeen, now: datetime | None = None) -> RowChanges:
    changes = RowChanges()
    take_pods(life, pods, changes, now or at(30))
    return changes


def test_pod_that_starts_changes_its_row_once() -> None:
    life = starting(placement(0, bound_at=None))
    seen = pod(0, container("running", started_at=at(3)), phase="Running")
    changes = take(life, seen)
    assert changes.columns[100] == {
        "pod_phase": "Running",
        "bound_at": at(30),
        "started_at": at(3),
    }
    assert not take(life, seen).columns


def test_error_is_dated_from_the_first_of_its_names() -> None:
    life = starting(placement(0))
    take(life, pod(0, container("waiting", reason="ErrImagePull", message="no such tag: 9")))
    back_off = container("waiting", reason="ImagePullBackOff", message="Back-off")
    take(life, pod(0, back_off), now=at(50))
    row = life.placements[0]
    assert (row.waiting_reason, row.waiting_since) == ("ImagePullBackOff", at(30))
    assert row.message == "no such tag: 9"
    take(life, pod(0, container("waiting", reason="ContainerCreating")), now=at(60))
    assert life.placements[0].waiting_since == at(60)


def test_pod_that_was_never_recorded_is_adopted() -> None:
    life = starting(placement(0, pod_uid="", created_at=None, bound_at=None))
    take(life, pod(0))
    assert (life.placements[0].pod_uid, life.placements[0].bound_at) == ("u0", at(30))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "another"},
        {"labels": {**pod(0).labels, "muster.dev/try": "2"}},
        {"labels": {**pod(0).labels, "muster.dev/role": "server"}},
    ],
)
def test_pod_of_another_try_is_not_adopted(changes: dict[str, object]) -> None:
    life = starting(placement(0, pod_uid="", created_at=None, bound_at=None))
    take(life, pod(0, **changes))
    assert life.placements[0].pod_uid == ""


def test_pod_that_is_no_longer_there_is_gone() -> None:
    life = attempt(running(0), running(1, delete_sent_at=at(20)), ended(2))
    take(life)
    by_others, by_us, finished = life.placements
    assert (by_others.gone_at, by_others.ended_at, by_others.end_reason) == (
        at(30),
        at(30),
        "Gone",
    )
    assert by_us.end_reason == "Stopped"
    assert (finished.gone_at, finished.ended_at, finished.exit_code) == (at(30), at(50), 0)


def test_exit_of_a_pod_that_others_deleted_is_not_its_own() -> None:
    stopped = container("terminated", exit_code=143, finished_at=at(10), started_at=at(1))
    seen = pod(0, stopped, phase="Failed", deleting_since=at(35), deletion_grace_seconds=30)
    life = attempt(running(0))
    take(life, seen)
    assert (life.placements[0].end_reason, life.placements[0].exit_code) == ("Deleted", None)
    ours = attempt(running(0, delete_sent_at=at(4)))
    take(ours, seen)
    assert ours.placements[0].exit_code == 143


def test_finished_pod_that_others_delete_keeps_its_end() -> None:
    done = container("terminated", exit_code=0, finished_at=at(2), started_at=at(1))
    seen = pod(0, done, phase="Succeeded", deleting_since=at(40), deletion_grace_seconds=30)
    life = attempt(running(0))
    take(life, seen)
    assert life.placements[0].exit_code == 0


def test_pod_bound_elsewhere_is_told() -> None:
    life = starting(placement(0, bound_at=None))
    changes = RowChanges()
    told = take_pods(life, [pod(0, node="n7")], changes, NOW)
    assert told is not None
    assert "n7" in told
    assert life.placements[0].bound_at is None


def test_fresh_try_forgets_the_pod_and_keeps_the_seats() -> None:
    row = placement(0, gone_at=NOW, ended_at=NOW, end_reason="Gone")
    columns = fresh_try(row, "j12345678-1-main-0-2")
    assert (columns["try_number"], columns["pod_uid"], columns["gone_at"]) == (2, "", None)
    assert "released_at" not in columns
    assert "node" not in columns
