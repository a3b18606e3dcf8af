"""Evictions: one order per attempt, carried out at the right moment, withdrawn while nobody was told, told to both."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from controlplane.common import log
from controlplane.common.errors import ConflictError
from controlplane.common.models import Event
from queues.lifecycle import EndedBy
from queues.models import Attempt, Job, Placement
from queues.services.attempts import end_attempt, mark_running
from scheduler.apply.release import release_placements
from scheduler.loop.cycle import ClusterLoop
from scheduler.models import Eviction
from scheduler.services.evictions import (
    carry_out_evictions,
    deadline_of,
    order_eviction,
    withdraw_eviction,
)
from tenants.models import Membership, PlatformRole, TenantRole
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]


@pytest.fixture
def world() -> World:
    return rows.make_world(12, nodes_per_leaf=12)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def running(world: World, tenant: str = "research", **asked: Any) -> Attempt:
    """A job that was placed by the loop and runs since NOW."""
    job = rows.add_job(world, tenant, **asked)
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    loop.tick(NOW)
    loop.stop()
    attempt = Attempt.objects.get(job=job)
    mark_running(attempt, now=NOW)
    return attempt


def order(attempt: Attempt, now: datetime = NOW, **changes: Any) -> Eviction:
    asked = {"rule": "priority", "message": "room for another", "ordered_by": "scheduler"}
    return order_eviction(attempt, **(asked | changes), now=now)


def leave(attempt: Attempt, now: datetime, ended_by: EndedBy = EndedBy.PREEMPTED) -> None:
    attempt.refresh_from_db()
    end_attempt(attempt, ended_by=ended_by, message="", exit_code=None, now=now)
    release_placements(attempt.placements.all(), now)


def kinds_of(job: Job | str) -> list[str]:
    found = Event.objects.filter(job=getattr(job, "pk", job), kind__startswith="eviction.")
    return list(found.order_by("seq").values_list("kind", flat=True))


def test_order_is_signalled_and_closed_when_the_attempt_has_left(world: World) -> None:
    attempt = running(world, replicas=2)
    order(attempt, after(100))
    told = carry_out_evictions(world.cluster, after(100))
    attempt.refresh_from_db()
    assert [each.attempt_id for each in told] == [attempt.pk]
    assert (attempt.stop_cause, attempt.job.phase) == ("preempted", "stopping")
    assert Job.objects.get(pk=attempt.job_id).preemptions == 1
    assert carry_out_evictions(world.cluster, after(101)) == []
    leave(attempt, after(130))
    carry_out_evictions(world.cluster, after(131))
    eviction = Eviction.objects.get()
    assert (eviction.ended_at, eviction.withdrawn_at) == (after(130), None)
    assert eviction.lost_gpu_seconds == 16 * 100
    assert Job.objects.get(pk=attempt.job_id).phase == "pending"
    assert kinds_of(attempt.job_id) == [
        "eviction.ordered",
        "eviction.signalled",
        "eviction.ended",
    ]


def test_repeated_order_is_the_same_order(world: World) -> None:
    attempt = running(world)
    first = order(attempt)
    assert order(attempt, after(5), rule="maintenance") == first
    assert Eviction.objects.count() == 1
    assert kinds_of(attempt.job_id) == ["eviction.ordered"]


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ("reclaim", "preempted"),
        ("fair_share", "preempted"),
        ("shrink", "resize"),
        ("grow", "resize"),
        ("maintenance", "maintenance"),
        ("drain", "maintenance"),
        ("health", "node_failure"),
    ],
)
def test_rule_decides_what_the_attempt_ends_by(world: World, rule: str, cause: str) -> None:
    attempt = running(world)
    order(attempt, rule=rule)
    carry_out_evictions(world.cluster, NOW)
    attempt.refresh_from_db()
    assert attempt.stop_cause == cause
    for_others = rule in ("reclaim", "fair_share", "shrink")
    assert Job.objects.get(pk=attempt.job_id).preemptions == int(for_others)


def test_waits_for_the_reported_checkpoint(world: World) -> None:
    attempt = running(world)
    order(attempt, after(10), rule="maintenance", wait_for_checkpoint=True, latest_at=after(900))
    assert carry_out_evictions(world.cluster, after(600)) == []
    Attempt.objects.filter(pk=attempt.pk).update(last_checkpoint_at=after(601))
    assert len(carry_out_evictions(world.cluster, after(602))) == 1
    # One second of one node since the checkpoint is all that is lost.
    assert Eviction.objects.get().lost_gpu_seconds == 8


def test_waits_for_the_checkpoint_that_the_interval_promises(world: World) -> None:
    attempt = running(world, checkpoint_interval_seconds=300, checkpoint_grace_seconds=20)
    order(attempt, after(310), rule="drain", wait_for_checkpoint=True)
    assert carry_out_evictions(world.cluster, after(619)) == []
    assert len(carry_out_evictions(world.cluster, after(620))) == 1


def test_waits_no_longer_than_told_and_not_at_all_for_a_job_that_never_saves(world: World) -> None:
    attempt = running(world)
    order(attempt, rule="maintenance", wait_for_checkpoint=True, latest_at=after(60))
    assert carry_out_evictions(world.cluster, after(59)) == []
    assert len(carry_out_evictions(world.cluster, after(60))) == 1
    other = running(world)
    order(other, rule="drain", wait_for_checkpoint=True)
    assert len(carry_out_evictions(world.cluster, NOW)) == 1


def test_sooner_order_takes_the_place_of_one_that_waits(world: World) -> None:
    attempt = running(world)
    waiting = order(attempt, rule="maintenance", wait_for_checkpoint=True, latest_at=after(900))
    drawn_in = order(attempt, rule="drain", wait_for_checkpoint=True, latest_at=after(300))
    assert (drawn_in, drawn_in.latest_at) == (waiting, after(300))
    now = order(attempt, after(5), rule="health")
    waiting.refresh_from_db()
    assert now != waiting
    assert waiting.withdrawn_at == after(5)
    assert len(carry_out_evictions(world.cluster, after(5))) == 1


def test_withdrawn_until_the_pods_are_told_and_not_after(world: World) -> None:
    attempt = running(world)
    eviction = order(attempt)
    withdraw_eviction(eviction, message="its preemptor was cancelled", now=after(1))
    withdraw_eviction(eviction, message="again", now=after(2))
    assert carry_out_evictions(world.cluster, after(3)) == []
    assert eviction.withdrawn_at == after(1)
    again = order(attempt, after(4))
    carry_out_evictions(world.cluster, after(4))
    with pytest.raises(ConflictError):
        withdraw_eviction(again, message="too late", now=after(5))


def test_job_that_ends_by_itself_was_not_evicted(world: World) -> None:
    attempt = running(world)
    order(attempt, rule="maintenance", wait_for_checkpoint=True, latest_at=after(900))
    leave(attempt, after(100), EndedBy.SUCCEEDED)
    carry_out_evictions(world.cluster, after(101))
    eviction = Eviction.objects.get()
    assert (eviction.withdrawn_at, eviction.ended_at) == (after(100), None)


def test_attempt_that_stops_or_has_ended_takes_no_order(world: World) -> None:
    attempt = running(world)
    leave(attempt, after(10), EndedBy.SUCCEEDED)
    with pytest.raises(ConflictError):
        order(attempt, after(11))


def test_failing_fence_leaves_no_trace(world: World) -> None:
    attempt = running(world)
    order(attempt)

    def lost() -> None:
        raise RuntimeError("the lease is lost")

    with pytest.raises(RuntimeError):
        carry_out_evictions(world.cluster, after(1), lost)
    attempt.refresh_from_db()
    assert (attempt.stop_cause, Eviction.objects.get().signalled_at) == ("", None)


def test_deadline_is_that_of_the_notice(world: World) -> None:
    attempt = running(world, checkpoint_interval_seconds=600, checkpoint_grace_seconds=120)
    eviction = order(attempt)
    assert deadline_of(eviction) is None
    carry_out_evictions(world.cluster, after(7))
    told = Eviction.objects.select_related("attempt__job").get()
    assert deadline_of(told) == after(127)


# --- who sees what ---


def client(world: World, tenant: str) -> APIClient:
    user = world.users[tenant]
    Membership.objects.get_or_create(
        tenant=world.queues[tenant].tenant,
        user=user,
        defaults={"role": TenantRole.VIEWER, "created_at": NOW},
    )
    found = APIClient()
    found.force_login(user)
    return found


@pytest.fixture
def reclaimed(world: World) -> Eviction:
    """Vision takes back what research has borrowed; of research's other jobs one was spared."""
    victim, spared = running(world, replicas=2), running(world)
    preemptor = rows.add_job(world, "vision", name="secret-plan")
    return order(
        victim,
        after(100),
        rule="reclaim",
        preemptor=preemptor,
        numbers={"flavor": "h100", "preemptor_used_gpus": 3, "victim_used_gpus": 24},
        refused=[(spared.job_id, "preemption_budget")],
    )


def only(client: APIClient, query: str = "") -> list[dict[str, Any]]:
    answer = client.get(f"/api/v1/evictions/{query}")
    assert answer.status_code == 200, answer.content
    return list(answer.json()["results"])


def test_victim_sees_its_side_alone(world: World, reclaimed: Eviction) -> None:
    [seen] = only(client(world, "research"))
    assert seen["job"]["job"] == reclaimed.attempt.job_id
    assert seen["preemptor"] == {"hidden": True}
    assert seen["numbers"] == {"flavor": "h100", "victim_used_gpus": 24}
    assert (seen["rule"], seen["state"], seen["gpus"]) == ("reclaim", "ordered", 16)
    assert seen["lost_gpu_hours"] == round(16 * 100 / 3600, 2)
    assert seen["refused"][0]["why"] == "preemption_budget"
    assert "vision" not in str(seen)
    assert "secret-plan" not in str(seen)


def test_preemptor_sees_its_side_alone(world: World, reclaimed: Eviction) -> None:
    [seen] = only(client(world, "vision"))
    assert seen["job"] == {"hidden": True}
    assert seen["preemptor"]["job"] == reclaimed.preemptor_id
    assert seen["numbers"] == {"flavor": "h100", "preemptor_used_gpus": 3}
    assert seen["refused"] == [
        {"hidden": 1, "why": "preemption_budget", "message": "was preempted often enough"}
    ]
    assert reclaimed.attempt.job_id not in str(seen)
    assert only(client(world, "vision"), "?tenant=research") == []
    assert only(client(world, "vision"), f"?job={reclaimed.attempt.job_id}") == []
    assert len(only(client(world, "vision"), f"?job={reclaimed.preemptor_id}&open=true")) == 1


def test_operator_sees_both_and_a_stranger_nothing(world: World, reclaimed: Eviction) -> None:
    stranger = world.users["vision"]
    other = APIClient()
    stranger.platform_role = PlatformRole.OPERATOR
    stranger.save(update_fields=["platform_role"])
    other.force_login(stranger)
    [seen] = only(other, "?rule=reclaim&cluster=demo")
    assert seen["preemptor"]["tenant"] == "vision"
    assert seen["job"]["tenant"] == "research"
    assert len(seen["numbers"]) == 3
    stranger.platform_role = PlatformRole.NONE
    stranger.save(update_fields=["platform_role"])
    assert only(other) == []


def test_order_joins_the_callers_transaction(world: World) -> None:
    attempt = running(world)

    def changes_its_mind() -> None:
        with log.writing():
            order(attempt)
            raise RuntimeError("the caller changed its mind")

    with pytest.raises(RuntimeError):
        changes_its_mind()
    assert not Eviction.objects.exists()
    assert Placement.objects.filter(attempt=attempt, released_at=None).count() == 1
