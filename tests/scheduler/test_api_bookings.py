"""Bookings over REST, and what an explanation says of a booking and of evictions."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from queues.models import Attempt, Job
from queues.services.attempts import mark_running
from scheduler.whatif.server import Whatif
from tests.scheduler import rows
from tests.scheduler.people import add_people, client
from tests.scheduler.rows import World, settle

pytestmark = pytest.mark.django_db(transaction=True)
ADDRESS = "/api/v1/clusters/demo/bookings/"


@pytest.fixture
def world() -> World:
    made = rows.make_world(8, nodes_per_leaf=4)
    add_people(made)
    return made


def full_for_an_hour(world: World, minutes_ago: int = 20, **asked: Any) -> list[Job]:
    """Two gangs on all nodes, running for a while."""
    jobs = rows.add_jobs(world, 2, replicas=4, max_runtime_seconds=3600, **asked)
    settle(world)
    since = timezone.now() - timedelta(minutes=minutes_ago)
    for attempt in Attempt.objects.all():
        Attempt.objects.filter(pk=attempt.pk).update(placed_at=since)
        attempt.refresh_from_db()
        mark_running(attempt, now=since)
    return jobs


def test_bookings_are_listed_for_who_may_see_the_jobs(world: World) -> None:
    full_for_an_hour(world)
    mine = rows.add_job(world, replicas=8, max_runtime_seconds=600)
    theirs = rows.add_job(world, "vision", replicas=2, max_runtime_seconds=600)
    settle(world)

    def listed(name: str, query: str = "") -> list[dict[str, Any]]:
        answer = client(name).get(ADDRESS + query)
        assert answer.status_code == 200, answer.json()
        found: list[dict[str, Any]] = answer.json()["results"]
        return found

    (told,) = listed("ravi")
    assert (told["job"], told["name"], told["tenant"]) == (mine.pk, mine.name, "research")
    assert (told["queue"], told["cluster"], told["flavor"]) == ("train", "demo", "h100")
    assert told["gpus"] == 64
    assert len(told["nodes"]) == 8
    assert told["nodes"][0] == {"node": "gpu-00000", "gpus": 8}
    assert told["starts_at"] < told["until"]
    assert {each["job"] for each in listed("sam")} == {mine.pk, theirs.pk}
    assert [each["job"] for each in listed("sam", "?tenant=vision")] == [theirs.pk]
    assert [each["job"] for each in listed("mei")] == [theirs.pk]
    assert listed("mei", "?tenant=research") == []
    assert mine.pk not in client("mei").get(ADDRESS).content.decode()
    assert client("ravi").get("/api/v1/clusters/nowhere/bookings/").status_code == 404


def test_list_of_bookings_takes_as_many_queries_for_many_as_for_few(world: World) -> None:
    full_for_an_hour(world)
    world.queues["research"].bookings = 20
    world.queues["research"].save()

    def queries() -> int:
        asking = client("ravi")
        with CaptureQueriesContext(connection) as made:
            assert asking.get(ADDRESS).status_code == 200
        return len(made)

    rows.add_job(world, replicas=8, max_runtime_seconds=600)
    settle(world)
    few = queries()
    rows.add_jobs(world, 8, replicas=8, max_runtime_seconds=600)
    settle(world)
    assert len(client("ravi").get(ADDRESS).json()["results"]) == 9
    assert queries() == few


def test_explanation_bears_the_booking_of_a_waiting_job(world: World, whatif: Whatif) -> None:
    full_for_an_hour(world)
    job = rows.add_job(world, replicas=8, max_runtime_seconds=600)
    settle(world)
    told = client("ravi").get(f"/api/v1/jobs/{job.pk}/explain/").json()
    (listed,) = client("ravi").get(ADDRESS).json()["results"]
    assert told["booking"] == listed
    assert told["evictions"] == []
    page = client("ravi").get(f"/jobs/{job.pk}/explain/").content.decode()
    assert "8 nodes" in page


def test_explanation_bears_evictions_of_both_sides(world: World, whatif: Whatif) -> None:
    """By whom, by which rule, at what numbers and cost, and who was spared."""
    full_for_an_hour(world, priority=100)
    high = rows.add_job(world, replicas=2, priority=900)
    settle(world)
    told = client("ravi").get(f"/api/v1/jobs/{high.pk}/explain/").json()
    assert told["reason"]["code"] == "waiting_for_preempted"
    (eviction,) = told["evictions"]
    assert eviction["rule"] == "priority"
    assert eviction["preemptor"]["job"] == high.pk
    assert eviction["numbers"]["victim_priority"] == 100
    assert eviction["lost_gpu_hours"] > 10
    assert [spared["why"] for spared in eviction["refused"]] == ["not_needed"]
    victim = client("ravi").get(f"/api/v1/jobs/{eviction['job']['job']}/explain/").json()
    assert victim["evictions"] == [eviction]
    assert victim["reason"] is None
