"""Every reason code, from rows through the loop to the API and the job's page, with its numbers in a sentence.

The planner's own fixtures are in tests/core/reason_cases.py; here the same situations are rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape

from queues import reasons
from queues.models import (
    Attempt,
    Cluster,
    Job,
    JobDependency,
    Queue,
    Quota,
    UserLimit,
)
from queues.services.attempts import mark_running
from scheduler.core.reasons import REASON_NUMBERS, ReasonCode
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.models import ClusterState, MaintenanceWindow
from tenants.models import Cohort, User
from tests.scheduler import rows
from tests.scheduler.people import add_people, client, payload
from tests.scheduler.rows import NOW, World

pytestmark = pytest.mark.django_db
ALL = [f"gpu-{number:05d}" for number in range(8)]


@dataclass(slots=True)
class Scene:
    """Eight nodes in two leaves, and what a case needs of them."""

    world: World
    now: datetime = NOW + timedelta(minutes=5)

    def settle(self) -> None:
        loop = ClusterLoop(self.world.cluster.pk, self.world.cluster.name, "worker")
        while loop.tick(self.now) is Tick.CYCLED:
            pass
        loop.stop()

    def waits(self, tenant: str = "research", **asked: Any) -> Job:
        return rows.add_job(self.world, tenant, **asked)

    def runs(self, tenant: str = "research", **asked: Any) -> Job:
        """A job that runs since an hour before."""
        job = rows.add_job(self.world, tenant, **asked)
        self.settle()
        since = self.now - timedelta(hours=1)
        attempt = Attempt.objects.get(job=job)
        Attempt.objects.filter(pk=attempt.pk).update(placed_at=since)
        attempt.refresh_from_db()
        mark_running(attempt, now=since)
        return job

    def queue(self, **changes: Any) -> None:
        Queue.objects.filter(tenant__slug="research").update(**changes)

    def cluster(self, **changes: Any) -> None:
        Cluster.objects.update(**changes)

    def nodes(self, *names: str, **changes: Any) -> None:
        for name in names:
            rows.change_node(self.world, name, **changes)

    def window(self, start_minutes: int, **changes: Any) -> None:
        MaintenanceWindow.objects.create(
            **{
                "title": "work",
                "cluster": self.world.cluster,
                "kind": "maintenance",
                "starts_at": self.now + timedelta(minutes=start_minutes),
                "ends_at": self.now + timedelta(hours=5),
                "nodes": {"names": ALL},
                "crossing": "checkpointable",
                "running_jobs": "finish",
                "created_by": "ines",
                "created_at": self.now,
                "changed_by": "ines",
                "changed_at": self.now,
            }
            | changes
        )


Build = Callable[[Scene], Job]
CASES: dict[str, Build] = {}


def case(code: str) -> Callable[[Build], Build]:
    def keep(build: Build) -> Build:
        CASES[code] = build
        return build

    return keep


@case("cluster_unreachable")
def _unreachable(scene: Scene) -> Job:
    ClusterState.objects.update(watch="unreachable")
    return scene.waits()


@case("cluster_paused")
def _paused(scene: Scene) -> Job:
    scene.cluster(mode="paused")
    return scene.waits()


@case("cluster_observing")
def _observing(scene: Scene) -> Job:
    scene.cluster(mode="observe")
    return scene.waits()


@case("queue_held")
def _held(scene: Scene) -> Job:
    scene.queue(state="held")
    return scene.waits()


@case("waiting_for_dependency")
def _dependency(scene: Scene) -> Job:
    needed, job = scene.runs(), scene.waits()
    JobDependency.objects.create(job=job, on=needed, condition="succeeded")
    return job


@case("begin_time")
def _begin(scene: Scene) -> Job:
    return scene.waits(begin_at=scene.now + timedelta(hours=2))


@case("backoff")
def _backoff(scene: Scene) -> Job:
    return scene.waits(backoff_until=scene.now + timedelta(minutes=3))


@case("refused_by_kubernetes")
def _refused(scene: Scene) -> Job:
    until = scene.now + timedelta(minutes=3)
    return scene.waits(backoff_until=until, refused_message="exceeded quota: pods")


@case("exceeds_quota_for_ever")
def _never_quota(scene: Scene) -> Job:
    Quota.objects.update(nominal=4)
    return scene.waits(replicas=2)


@case("exceeds_cluster_for_ever")
def _never_cluster(scene: Scene) -> Job:
    return scene.waits(replicas=9)


@case("waiting_for_preempted")
def _preempted(scene: Scene) -> Job:
    scene.runs(replicas=8, priority=100)
    return scene.waits(replicas=2, priority=500)


@case("higher_priority_ahead")
def _strict(scene: Scene) -> Job:
    scene.queue(backfill_order="none")
    scene.runs(replicas=2)
    scene.waits(replicas=8)
    return scene.waits()


@case("user_limit")
def _user_limit(scene: Scene) -> Job:
    scene.runs(replicas=2)
    UserLimit.objects.create(
        tenant=scene.world.queues["research"].tenant,
        user=scene.world.users["research"],
        flavor=scene.world.flavor,
        limit=16,
    )
    return scene.waits()


@case("waiting_for_quota")
def _quota(scene: Scene) -> Job:
    Quota.objects.update(nominal=16)
    Quota.objects.filter(tenant__slug="vision").update(lending_limit=0)
    Quota.objects.filter(tenant__slug="research").update(nominal=24)
    scene.runs(replicas=2)
    return scene.waits(replicas=2)


@case("waiting_for_fair_share")
def _fair(scene: Scene) -> Job:
    shared = Cohort.objects.get()
    Cohort.objects.update(order="fair_share")
    rows.add_tenant(scene.world, "pool", "paul", shared, 16)
    Quota.objects.exclude(tenant__slug="pool").update(nominal=0)
    scene.runs("vision", replicas=2)
    Queue.objects.update(min_runtime_seconds=86_400)
    return scene.waits(replicas=1)


@case("waiting_for_driver")
def _driver(scene: Scene) -> Job:
    scene.nodes(*ALL[:2], cuda="12.8")
    return scene.waits(replicas=3, min_cuda="12.8")


@case("unhealthy_nodes")
def _unhealthy(scene: Scene) -> Job:
    scene.nodes(*ALL[:6], out_causes=[{"code": "not_ready", "numbers": {}}])
    return scene.waits(replicas=4)


@case("waiting_for_nodes")
def _nodes(scene: Scene) -> Job:
    scene.runs(replicas=6)
    return scene.waits(replicas=4)


@case("waiting_for_topology")
def _topology(scene: Scene) -> Job:
    for name in (ALL[0], ALL[4]):
        rows.add_foreign_pod(scene.world, name, gpus=8)
    return scene.waits(replicas=4, topology_level="leaf", topology_mode="required")


@case("waiting_for_reservation")
def _reservation(scene: Scene) -> Job:
    scene.window(-5, kind="reserved", admits={"tenants": ["vision"], "queues": [], "jobs": []})
    return scene.waits()


@case("waiting_for_maintenance")
def _maintenance(scene: Scene) -> Job:
    scene.window(30)
    return scene.waits(max_runtime_seconds=7200)


@case("waiting_for_booking")
def _booking(scene: Scene) -> Job:
    scene.runs(replicas=4, max_runtime_seconds=7200)
    scene.waits(replicas=8, max_runtime_seconds=7200)
    return scene.waits(max_runtime_seconds=86_400)


@pytest.fixture
def scene() -> Scene:
    made = Scene(rows.make_world(8, nodes_per_leaf=4))
    add_people(made.world)
    return made


def page_of(address: str) -> str:
    """As ravi sees it, in English."""
    person = Client()
    person.force_login(User.objects.get(username="ravi"))
    answer = person.get(address, headers={"accept-language": "en"})
    return answer.content.decode()


def test_every_code_has_a_case() -> None:
    told_elsewhere = {"queue_closed", "not_yet_considered"}  # below
    assert set(CASES) | told_elsewhere == {code.value for code in ReasonCode}


@pytest.mark.parametrize("code", CASES)
def test_reason_is_told_with_its_numbers_in_api_and_page(scene: Scene, code: str) -> None:
    job = CASES[code](scene)
    scene.settle()
    answer = client("ravi").get(f"/api/v1/jobs/{job.pk}/").json()
    told = answer["reason"]
    assert told["code"] == code, told
    assert set(REASON_NUMBERS[ReasonCode(code)]) <= set(told["numbers"])
    # The sentence is the one with numbers, not what is said without.
    assert told["message"] != reasons.sentence(code, {}) or not told["numbers"]
    assert "{" not in told["message"]
    assert code in {reason["code"] for reason in answer["reasons"]}
    page = page_of(f"/jobs/{job.pk}/")
    assert escape(told["message"]) in page or told["message"] in page


def test_a_job_that_nobody_has_looked_at_says_so(scene: Scene) -> None:
    job = scene.waits(reason_code="not_yet_considered")
    answer = client("ravi").get(f"/api/v1/jobs/{job.pk}/").json()
    assert answer["reason"]["code"] == "not_yet_considered"
    assert answer["reason"]["message"] in page_of(f"/jobs/{job.pk}/")


def test_closed_queue_refuses_with_its_code(scene: Scene) -> None:
    """A closed queue takes no jobs, so none waits for it: who submits or simulates is told."""
    scene.queue(state="closed")
    for address in ("jobs/", "jobs/simulate/"):
        answer = client("ravi").post(f"/api/v1/{address}", payload(), format="json")
        assert answer.status_code == 422
        (fault,) = answer.json()["errors"]
        assert (fault["pointer"], fault["code"]) == ("/queue", "queue_closed")
    assert "No queue takes your jobs" in page_of("/jobs/new/")
