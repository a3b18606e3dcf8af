"""A quota cut under what runs is told, to the tenant in API and page, and stops nobody."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from controlplane.common import log
from queues.models import Job, Quota
from scheduler.loop.cycle import ClusterLoop, Tick
from tenants.models import User
from tests.scheduler import rows
from tests.scheduler.people import add_people, client
from tests.scheduler.rows import NOW

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]


def alerts_of(name: str, state: str = "open") -> list[dict[str, Any]]:
    found = client(name).get("/api/v1/alerts/").json()["results"]
    return [each for each in found if each["kind"] == "over_admission" and each["state"] == state]


def test_quota_cut_under_running_jobs_is_reported_and_stops_nobody() -> None:
    world = rows.make_world(8, nodes_per_leaf=4, quota=64)
    add_people(world)
    Quota.objects.update(borrowing_limit=0)
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")

    def settle(seconds: int) -> None:
        while loop.tick(NOW + timedelta(seconds=seconds)) is Tick.CYCLED:
            pass

    def quota(nominal: int) -> None:
        with log.writing():
            Quota.objects.filter(tenant__slug="research").update(nominal=nominal)
            log.record(log.NewEvent(kind="quota.changed", at=NOW, tenant="research"))

    running = rows.add_job(world, replicas=4)
    settle(0)
    waiting = rows.add_job(world, replicas=5)
    quota(16)
    settle(1)
    running.refresh_from_db()
    assert running.phase == "placed"
    (told,) = alerts_of("olivia")
    assert told["tenant"] == "research"
    assert told["numbers"] == {"name": "research", "flavor": "h100", "gpus": 16}
    assert "16" in str(told["message"])
    assert alerts_of("ravi") == [told]
    assert alerts_of("mei") == []
    # What waits can never run now, which is another answer than waiting for others to end.
    assert Job.objects.get(pk=waiting.pk).reason_code == "exceeds_quota_for_ever"
    person = Client()
    person.force_login(User.objects.get(username="olivia"))
    assert "h100" in person.get("/alerts/").content.decode()
    quota(64)
    settle(2)
    assert alerts_of("olivia") == []
    assert Job.objects.get(pk=waiting.pk).reason_code == "waiting_for_quota"
