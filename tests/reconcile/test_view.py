"""The view believes complete lists and DELETED events alone, and tells what has changed once."""

from __future__ import annotations

from dataclasses import replace

from scheduler.kube.watching import Changed, Gone, Listed
from scheduler.reconcile.view import ClusterView
from tests.reconcile.lives import at, pod
from tests.reconcile.test_node_rows import node

KEY = ("job_1", 1)


def drained(view: ClusterView) -> set[str]:
    return set(view.take_changes(1000).pods)


def test_view_is_synced_once_both_kinds_were_listed() -> None:
    view = ClusterView()
    view.take_node(Listed((node("a"),), at(0)))
    assert not view.synced
    view.take_pod(Listed((), at(0)))
    assert view.synced


def test_list_drops_what_is_not_in_it() -> None:
    view = ClusterView()
    view.take_pod(Listed((pod(0), pod(1)), at(0)))
    assert drained(view) == {"u0", "u1"}
    view.take_pod(Listed((pod(1),), at(10)))
    assert drained(view) == {"u0"}
    assert [p.uid for p in view.pods_of(KEY)] == ["u1"]
    assert view.pods_on("n0") == []


def test_same_version_is_no_change() -> None:
    view = ClusterView()
    view.take_pod(Changed(pod(0)))
    drained(view)
    view.take_pod(Changed(pod(0)))
    view.take_pod(Listed((pod(0),), at(1)))
    assert drained(view) == set()


def test_changed_pod_moves_between_indexes() -> None:
    view = ClusterView()
    view.take_pod(Changed(pod(0, node=None)))
    assert view.pods_on("n0") == []
    view.take_pod(Changed(pod(0, version="2")))
    assert [p.uid for p in view.pods_on("n0")] == ["u0"]
    view.take_pod(Gone(pod(0, version="3")))
    assert view.pods_on("n0") == []
    assert view.pods_of(KEY) == []


def test_pod_created_after_a_list_began_survives_it() -> None:
    view = ClusterView()
    view.note_created(pod(0), at(10))
    view.take_pod(Listed((), at(5)))
    assert "u0" in view.pods
    view.take_pod(Listed((), at(11)))
    assert "u0" not in view.pods


def test_late_answer_to_a_create_does_not_revive_a_pod() -> None:
    view = ClusterView()
    view.take_pod(Changed(pod(0, version="2")))
    view.take_pod(Gone(pod(0, version="3")))
    view.note_created(pod(0), at(10))
    assert view.pods == {}


def test_answer_to_a_create_does_not_set_a_pod_back() -> None:
    view = ClusterView()
    view.take_pod(Changed(pod(0, version="9", phase="Running")))
    view.note_created(pod(0), at(1))
    assert view.pods["u0"].phase == "Running"


def test_changes_come_in_portions_and_can_be_given_back() -> None:
    view = ClusterView()
    view.take_pod(Listed(tuple(pod(n) for n in range(5)), at(0)))
    first = view.take_changes(2)
    assert len(first.pods) == 2
    view.give_back(first)
    assert len(drained(view)) == 5


def test_nodes_come_and_go() -> None:
    view = ClusterView()
    view.take_node(Listed((node("a"), node("b")), at(0)))
    view.take_changes(10)
    view.take_node(Listed((replace(node("b"), version="2"),), at(1)))
    assert set(view.take_changes(10).nodes) == {"a", "b"}
    view.take_node(Gone(node("b")))
    assert view.nodes == {}


def test_foreign_pods_belong_to_no_attempt() -> None:
    view = ClusterView()
    view.take_pod(Changed(pod(0, labels={})))
    assert view.take_changes(10).pods == {"u0": None}
