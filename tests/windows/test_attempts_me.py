"""The checkpoint protocol over REST: who a token is, what a job says and hears, and what follows from it."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from controlplane.common.models import Event
from queues.lifecycle import EndedBy
from queues.models import Attempt
from queues.services.attempts import end_attempt, token_of
from scheduler.models import NodeReport
from scheduler.selectors.notices import notice_of
from scheduler.services.evictions import (
    carry_out_evictions,
    open_eviction,
    order_eviction,
    withdraw_eviction,
)
from tenants.throttling import buckets
from tests.scheduler import rows
from tests.scheduler.people import add_people, client
from tests.scheduler.rows import World
from tests.windows.builders import run_gang

pytestmark = pytest.mark.django_db
ME = "/api/v1/attempts/me/"
SAVING: dict[str, Any] = {
    "checkpoint_interval_seconds": 600,
    "checkpoint_grace_seconds": 60,
    "grace_seconds": 30,
}


@pytest.fixture
def world() -> World:
    buckets.clear()
    made = rows.make_world(8, nodes_per_leaf=4)
    add_people(made)
    return made


def gang(world: World, **asked: Any) -> Attempt:
    started = timezone.now() - timedelta(seconds=100)
    return run_gang(world, [4, 5], now=started, **(SAVING | asked))


def pod(attempt: Attempt) -> APIClient:
    made = APIClient()
    made.credentials(HTTP_AUTHORIZATION=f"Bearer {token_of(attempt.job_id, attempt.number)}")
    return made


def post(attempt: Attempt, call: str, **sent: Any) -> Any:
    return pod(attempt).post(f"{ME}{call}/", sent, format="json")


def order(attempt: Attempt, **changes: Any) -> None:
    now = timezone.now()
    wanted: dict[str, Any] = {
        "rule": "maintenance",
        "message": "window",
        "ordered_by": "window 1",
        "now": now,
    }
    order_eviction(attempt, **(wanted | changes))


def test_only_the_token_of_a_running_attempt_opens_the_door(world: World) -> None:
    attempt = gang(world)
    assert pod(attempt).get(f"{ME}notice/").json() == {"notice": None}
    nobody = APIClient()
    assert nobody.get(f"{ME}notice/").status_code == 401
    assert client("ravi").get(f"{ME}notice/").status_code == 401
    for token in ("mat_" + "0" * 64, "mat_", "mst_x", "", "é"):
        nobody.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
        assert nobody.get(f"{ME}notice/").status_code == 401
    for path in ("jobs/", f"jobs/{attempt.job_id}/", "nodes/", "tenants/research/secrets/"):
        assert pod(attempt).get(f"/api/v1/{path}").status_code == 401
    end_attempt(attempt, ended_by=EndedBy.FAILED, message="", exit_code=1, now=timezone.now())
    assert pod(attempt).get(f"{ME}notice/").status_code == 401


def test_a_heartbeat_is_kept_for_its_replica_and_is_no_event(world: World) -> None:
    attempt = gang(world)
    seen = Event.objects.count()
    assert post(attempt, "heartbeat", replica=1, step=7).json() == {"notice": None}
    placements: dict[int, Any] = {each.replica: each for each in attempt.placements.all()}
    assert placements[0].heartbeat_at is None
    assert placements[1].heartbeat_step == 7
    first = placements[1].heartbeat_at
    post(attempt, "heartbeat", replica=1, step=7)
    assert attempt.placements.get(replica=1).heartbeat_at == first
    post(attempt, "heartbeat", replica=1, role="main", step=8)
    later: Any = attempt.placements.get(replica=1)
    assert later.heartbeat_at > first
    assert Event.objects.count() == seen


@pytest.mark.parametrize(
    ("call", "sent", "pointer"),
    [
        ("heartbeat", {}, "/replica"),
        ("heartbeat", {"replica": 2}, "/replica"),
        ("heartbeat", {"replica": -1}, "/replica"),
        ("heartbeat", {"replica": "0"}, "/replica"),
        ("heartbeat", {"replica": 0, "role": "head"}, "/replica"),
        ("heartbeat", {"replica": 0, "step": 2**63}, "/step"),
        ("checkpoint", {}, "/step"),
        ("checkpoint", {"step": 1, "at": "yesterday"}, "/at"),
        ("checkpoint", {"step": 1, "at": "2099-01-01T00:00:00Z"}, "/at"),
        ("checkpoint", {"step": 1, "at": "2001-01-01T00:00:00Z"}, "/at"),
        ("checkpoint", {"step": 1, "uri": "x" * 1025}, "/uri"),
        ("checkpoint", {"step": 1, "url": "x"}, "/url"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(
    world: World, call: str, sent: dict[str, Any], pointer: str
) -> None:
    attempt = gang(world)
    answer = post(attempt, call, **sent)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    attempt.refresh_from_db()
    assert attempt.last_checkpoint_at is None
    assert not attempt.placements.filter(heartbeat_at__isnull=False).exists()


def test_a_checkpoint_is_kept_and_an_older_one_changes_nothing(world: World) -> None:
    attempt = gang(world)
    answer = post(attempt, "checkpoint", step=12, uri="s3://runs/12")
    assert (answer.status_code, answer.json()["step"]) == (200, 12)
    old = (timezone.now() - timedelta(seconds=50)).isoformat()
    assert post(attempt, "checkpoint", step=11, at=old).json()["step"] == 12
    attempt.refresh_from_db()
    assert (attempt.last_checkpoint_step, attempt.checkpoint_uri) == (12, "s3://runs/12")
    event = Event.objects.get(kind="attempt.checkpoint")
    assert (event.job, event.tenant, event.numbers["step"]) == (attempt.job_id, "research", 12)


def test_an_eviction_follows_the_report_at_once(world: World) -> None:
    attempt = gang(world, checkpoint_notice="poll")
    late = timezone.now() + timedelta(hours=1)
    order(attempt, wait_for_checkpoint=True, latest_at=late)
    notice = pod(attempt).get(f"{ME}notice/").json()["notice"]
    assert notice["kind"] == "maintenance"
    carry_out_evictions(world.cluster, timezone.now())
    attempt.refresh_from_db()
    assert attempt.stop_cause == ""
    assert post(attempt, "heartbeat", replica=0).json()["notice"] == notice
    post(attempt, "checkpoint", step=99)
    carry_out_evictions(world.cluster, timezone.now())
    attempt.refresh_from_db()
    assert attempt.stop_cause == "maintenance"


def test_without_a_report_the_stop_comes_when_the_save_should_be_written(world: World) -> None:
    attempt = gang(world)
    order(attempt, wait_for_checkpoint=True)
    # The start was 100 s ago: the save at 600 s is written by 660 s.
    carry_out_evictions(world.cluster, timezone.now() + timedelta(seconds=550))
    attempt.refresh_from_db()
    assert attempt.stop_cause == ""
    carry_out_evictions(world.cluster, timezone.now() + timedelta(seconds=565))
    attempt.refresh_from_db()
    assert attempt.stop_cause == "maintenance"


@pytest.mark.parametrize("notice", ["signal", "poll", "file"])
def test_who_asked_to_be_told_hears_before_the_stop_others_with_it(
    world: World, notice: str
) -> None:
    attempt = gang(world, checkpoint_notice=notice)
    now = timezone.now()
    order(attempt, rule="priority", wait_for_checkpoint=True, latest_at=now + timedelta(minutes=9))
    told: Any = notice_of(attempt, now)
    if notice == "signal":
        assert told is None
    else:
        assert (told.kind, told.deadline) == ("preemption", now + timedelta(minutes=9))
    carry_out_evictions(world.cluster, now + timedelta(minutes=9))
    attempt.refresh_from_db()
    signalled: Any = notice_of(attempt, now + timedelta(minutes=9))
    assert signalled.deadline == now + timedelta(minutes=9, seconds=30)


def test_an_order_that_is_withdrawn_takes_its_notice_with_it(world: World) -> None:
    attempt = gang(world, checkpoint_notice="poll")
    order(attempt, wait_for_checkpoint=True, latest_at=timezone.now() + timedelta(hours=1))
    assert pod(attempt).get(f"{ME}notice/").json()["notice"] is not None
    eviction: Any = open_eviction(attempt)
    withdraw_eviction(eviction, message="no", now=timezone.now())
    assert pod(attempt).get(f"{ME}notice/").json() == {"notice": None}


def test_the_time_limit_is_told_in_time_for_a_checkpoint(world: World) -> None:
    attempt: Any = gang(world, max_runtime_seconds=3600)
    end = attempt.started_at + timedelta(seconds=3600)
    assert notice_of(attempt, end - timedelta(seconds=181)) is None
    told: Any = notice_of(attempt, end - timedelta(seconds=180))
    assert (told.kind, told.deadline) == ("time_limit", end)


def test_a_job_reports_a_node_of_its_own(world: World) -> None:
    attempt = gang(world)
    answer = post(attempt, "report", kind="xid", code=79, replica="main-1", message="fell off")
    assert answer.status_code == 201, answer.json()
    assert answer.json()["node"] == "gpu-00005"
    assert NodeReport.objects.get().node == "gpu-00005"
    assert post(attempt, "report", kind="xid", code=79, replica="main-9").status_code == 422


def test_one_job_cannot_flood(world: World, settings: Any) -> None:
    settings.RATE_LIMITS = settings.RATE_LIMITS | {"attempt": (60, 3)}
    attempt, other = gang(world), run_gang(world, [0], now=timezone.now())
    codes = [post(attempt, "heartbeat", replica=0).status_code for _ in range(4)]
    assert codes == [200, 200, 200, 429]
    assert post(other, "heartbeat", replica=0).status_code == 200
