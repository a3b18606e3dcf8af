"""POST what-if/: any change is previewed by the planner, applied as previewed, and refused when the plan has moved."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from queues.models import Attempt, Job, Quota
from queues.services.attempts import mark_running
from scheduler.models import Drain, MaintenanceWindow
from scheduler.whatif.server import Whatif
from tests.scheduler import rows
from tests.scheduler.people import add_people, client, payload
from tests.scheduler.rows import World, nodes_of, settle

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world() -> World:
    made = rows.make_world(8, nodes_per_leaf=4)
    add_people(made)
    return made


def running(world: World, count: int = 1, tenant: str = "research", **asked: Any) -> list[Job]:
    jobs = rows.add_jobs(world, count, tenant, **asked)
    settle(world)
    for attempt in Attempt.objects.filter(job__in=jobs):
        mark_running(attempt, now=timezone.now() - timedelta(hours=1))
    return jobs


def ask(name: str, *changes: dict[str, Any], plan_id: str = "", status: int = 200) -> Any:
    address = "/api/v1/what-if/" + (f"?plan_id={plan_id}" if plan_id else "")
    body = {"cluster": "demo", "changes": list(changes)}
    answer = client(name).post(address, body, format="json")
    assert answer.status_code == status, answer.content
    return answer.json()


def test_drain_tells_who_leaves_where_they_go_and_what_is_lost(
    world: World, whatif: Whatif
) -> None:
    (job,) = running(world, replicas=2)
    drain = {
        "kind": "drain",
        "nodes": {"names": nodes_of(job)[:1]},
        "running_jobs": "checkpoint",
        "reason": "fans",
    }
    found = ask("ines", drain)
    assert found["evicted"] == [{"job": job.pk}]
    assert found["starts"] == [{"job": job.pk}]
    assert found["lost_gpu_hours"] == pytest.approx(16, abs=0.5)
    assert found["applied"] is False
    assert not Drain.objects.exists()
    made = ask("ines", drain, plan_id=found["plan_id"])
    assert made["applied"] is True
    assert Drain.objects.get().node.name == nodes_of(job)[0]


def test_plan_that_has_moved_is_refused_with_the_new_one(world: World, whatif: Whatif) -> None:
    (job,) = running(world, replicas=2)
    drain = {
        "kind": "drain",
        "nodes": {"names": nodes_of(job)},
        "running_jobs": "evict",
        "reason": "fans",
    }
    found = ask("ines", drain)
    (other,) = running(world, replicas=6)
    refused = ask("ines", drain, plan_id=found["plan_id"], status=409)
    assert refused["code"] == "plan_changed"
    assert refused["plan_id"] != found["plan_id"]
    assert refused["evicted"] == [{"job": job.pk}]
    assert refused["starts"] == []
    assert not Drain.objects.exists()
    assert other.pk
    ask("ines", drain, plan_id=refused["plan_id"])
    assert Drain.objects.count() == 2


def test_lost_and_added_nodes_are_tried_and_never_made_so(world: World, whatif: Whatif) -> None:
    (job,) = running(world, replicas=8)
    waiting = rows.add_job(world, replicas=2)
    settle(world)
    lost = ask("ines", {"kind": "lose", "nodes": {"names": [nodes_of(job)[0]]}})
    assert lost["evicted"] == [{"job": job.pk}]
    added = {"kind": "add", "like": "gpu-00000", "count": 2}
    found = ask("ines", added)
    assert found["starts"] == [{"job": waiting.pk}]
    refused = ask("ines", added, plan_id=found["plan_id"], status=422)
    assert refused["errors"][0]["pointer"] == "/changes/0/kind"
    # Both at once: what is lost is made up for.
    both = ask(
        "ines",
        {"kind": "lose", "nodes": {"names": [nodes_of(job)[0]]}},
        {"kind": "add", "like": "gpu-00005", "count": 1},
    )
    assert both["starts"] == [{"job": job.pk}]


def test_window_tells_whose_start_it_delays(world: World, whatif: Whatif) -> None:
    now = timezone.now().replace(microsecond=0)
    job = rows.add_job(world, replicas=8, max_runtime_seconds=7200)
    window = {
        "title": "new switches",
        "starts_at": (now + timedelta(hours=1)).isoformat(),
        "ends_at": (now + timedelta(hours=3)).isoformat(),
        "nodes": {"domains": [{"level": "leaf", "name": "leaf-01"}]},
    }
    found = ask("ines", {"kind": "window", "window": window})
    assert found["waits_longer"] == [{"job": job.pk}]
    made = ask("ines", {"kind": "window", "window": window}, plan_id=found["plan_id"])
    assert made["applied"]
    assert MaintenanceWindow.objects.get().title == "new switches"


def test_quotas_and_a_job_together(world: World, whatif: Whatif) -> None:
    """A job that waits for quota starts when the quota comes with it; applied, both are there."""
    Quota.objects.update(nominal=8, borrowing_limit=0)
    submit = {"kind": "submit", "job": payload(replicas=2)}
    alone = ask("ravi", submit)
    assert alone["submitted"][0]["verdict"] == "never"
    assert alone["submitted"][0]["reason"]["code"] == "exceeds_quota_for_ever"
    quotas = {
        "kind": "quotas",
        "tenant": "research",
        "quotas": {"flavors": [{"flavor": "h100", "nominal": 64}]},
    }
    found = ask("admin", quotas, submit)
    assert found["submitted"] == [
        {
            "change": 1,
            "verdict": "starts_now",
            "reason": None,
            "starts_at": found["submitted"][0]["starts_at"],
        }
    ]
    ask("admin", quotas, submit, plan_id=found["plan_id"])
    assert Quota.objects.get(tenant__slug="research").nominal == 64
    assert Job.objects.get().phase == "pending"


def test_other_tenants_jobs_are_counted_not_named(world: World, whatif: Whatif) -> None:
    """Ravi's job of high priority evicts nobody of vision's; what he may not see stays hidden."""
    (theirs,) = running(world, tenant="vision", replicas=4)
    Quota.objects.filter(tenant__slug="vision").update(nominal=0)
    Quota.objects.filter(tenant__slug="research").update(nominal=64)
    Attempt.objects.update(placed_at=timezone.now() - timedelta(hours=2))
    rows.touch(theirs)
    found = ask("ravi", {"kind": "submit", "job": payload(replicas=8)})
    assert theirs.pk not in str(found)
    assert found["evicted"] in ([{"hidden": 1}], [])


def test_what_is_wrong_is_named_by_its_place_and_changes_nothing(
    world: World, whatif: Whatif
) -> None:
    def pointers(name: str, *changes: dict[str, Any]) -> set[str]:
        refused = ask(name, *changes, status=422)
        return {fault["pointer"] for fault in refused["errors"]}

    assert pointers("ines", {"kind": "explode"}) == {"/changes/0/kind"}
    assert pointers("ines", {"kind": "add", "like": "gpu-99999"}) == {"/changes/0/like"}
    assert pointers("ravi", {"kind": "submit", "job": payload(replicas=0)}) == {
        "/changes/0/job/replicas"
    }
    assert pointers("ravi", {"kind": "submit"}) == {"/changes/0/job"}
    assert pointers("ines", {"kind": "lose", "nodes": {"names": ["gpu-99999"]}, "x": 1}) >= {
        "/changes/0/x"
    }
    assert pointers("ines") == {"/changes"}


def test_each_kind_asks_for_its_own_right(world: World, whatif: Whatif) -> None:
    drain = {"kind": "drain", "nodes": {"names": ["gpu-00000"]}, "reason": "x"}
    ask("ravi", drain, status=403)
    ask("ravi", {"kind": "add", "like": "gpu-00000"}, status=403)
    ask("ravi", {"kind": "window", "window": {}}, status=403)
    quotas = {"kind": "quotas", "tenant": "vision", "quotas": {}}
    ask("ravi", quotas, status=404)
