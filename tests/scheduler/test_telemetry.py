"""The installation's numbers for Prometheus: right, bounded, cheap, and there when the database is not."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from queues.models import Job, Placement
from scheduler.models import ClusterState, ForeignPod, Lease, Node, Seat
from scheduler.selectors import telemetry
from scheduler.selectors.telemetry import KEPT_SECONDS, Installation
from scheduler.services.alerts import AlertFacts, raise_alert
from tenants.models import OutboxMessage
from tests.factories import (
    NOW,
    later,
    make_cluster,
    make_flavor,
    make_job,
    make_member,
    make_queue,
    make_tenant,
    make_user,
    place_job,
    run_job,
)

pytestmark = pytest.mark.django_db
Numbers = dict[tuple[str, ...], float]


def scraped(now: datetime = NOW) -> dict[str, Numbers]:
    """Value by metric and label values, in the order of the labels' names."""
    registry = CollectorRegistry()
    registry.register(Installation(clock=lambda: now))
    found: dict[str, Numbers] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = tuple(value for _name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def a_node(name: str, **changes: Any) -> Node:
    cluster = make_cluster()
    told = {"gpus_capacity": 8, "gpus_allocatable": 8, "ready": True, "observed_at": NOW} | changes
    return Node.objects.create(
        cluster=cluster, name=name, uid=name, flavor=make_flavor(cluster), **told
    )


def a_busy_world() -> None:
    queue = make_queue(make_tenant("research"))
    ravi = make_member(queue.tenant)
    for reason, number in (("waiting_for_quota", 3), ("waiting_for_topology", 2)):
        for _ in range(number):
            make_job(queue, ravi, reason_code=reason)
    run_job(make_job(queue, ravi, replicas=2))
    placed = place_job(make_job(queue, ravi), first_node=2)
    Placement.objects.filter(attempt=placed).update(bound_at=NOW + timedelta(seconds=4))
    Job.objects.filter(pk=make_job(queue, ravi).pk).update(
        phase="finished", outcome="succeeded", finished_at=NOW
    )
    for number in range(4):
        a_node(f"gpu-{number:05d}")
    a_node("gpu-00004", ready=False, out_causes=[{"code": "not_ready", "numbers": {}}])
    ForeignPod.objects.create(
        cluster=queue.cluster,
        uid="f",
        namespace="x",
        name="f",
        node="gpu-00003",
        gpus=2,
        seen_at=NOW,
    )
    seats = Placement.objects.get(attempt=placed)
    node = Node.objects.get(name=seats.node)
    Seat.objects.bulk_create(Seat(node=node, index=i, placement=seats) for i in range(8))
    ClusterState.objects.create(
        cluster=queue.cluster, watch="live", heard_at=NOW - timedelta(seconds=3),
        considered_at=NOW - timedelta(seconds=1), cycle_ms=42,
    )  # fmt: skip
    Lease.objects.create(cluster=queue.cluster, holder="a", token=3, expires_at=later(9))
    raise_alert(AlertFacts("gpu_fault", cluster=queue.cluster, node="gpu-00001"), NOW)
    OutboxMessage.objects.create(
        way="mail", kind="x", message_id="m", dedupe_key="m", user=make_user("ines"),
        created_at=NOW - timedelta(seconds=90), next_attempt_at=NOW,
    )  # fmt: skip


def test_numbers_are_those_of_the_rows() -> None:
    a_busy_world()
    numbers = scraped()
    assert numbers["muster_database_up"] == {(): 1}
    assert numbers["muster_jobs"] == {
        ("demo", "pending"): 5, ("demo", "running"): 1, ("demo", "placed"): 1,
    }  # fmt: skip
    assert numbers["muster_jobs_waiting"] == {
        ("demo", "waiting_for_quota"): 3, ("demo", "waiting_for_topology"): 2,
    }  # fmt: skip
    assert numbers["muster_bind_seconds"] == {("demo", q): 4 for q in ("0.5", "0.95", "1.0")}
    assert numbers["muster_watch_age_seconds"] == {("demo",): 3}
    assert numbers["muster_cycle_age_seconds"] == {("demo",): 1}
    assert numbers["muster_last_cycle_seconds"] == {("demo",): 0.042}
    assert numbers["muster_lease_expires_in_seconds"] == {("demo",): 9}
    assert numbers["muster_watch_state"][("demo", "live")] == 1
    assert sum(numbers["muster_watch_state"].values()) == 1
    assert numbers["muster_gpus"] == {
        ("demo", "h100", "used"): 8, ("demo", "h100", "foreign"): 2,
        ("demo", "h100", "free"): 22, ("demo", "h100", "out"): 8,
    }  # fmt: skip
    assert sum(numbers["muster_nodes"].values()) == 5
    assert numbers["muster_alerts"] == {("gpu_fault", "critical", "open"): 1}
    assert numbers["muster_outbox_waiting"] == {("mail",): 1, ("webhook",): 0}
    assert numbers["muster_outbox_oldest_seconds"][("mail",)] == 90
    assert numbers["muster_foreign_pods"] == {("demo",): 1}


def test_an_empty_installation_is_scraped_too() -> None:
    assert scraped()["muster_database_up"] == {(): 1}


def test_no_label_tells_tenants_users_jobs_or_nodes_apart() -> None:
    a_busy_world()
    shown = {value for labels in scraped().values() for key in labels for value in key}
    told = ["research", "ravi", "gpu-0", "job_"]
    assert not [value for value in shown if any(value.startswith(word) for word in told)]


def test_a_scrape_costs_as_many_queries_for_many_rows_as_for_few() -> None:
    a_busy_world()
    with CaptureQueriesContext(
        connection,
    ) as few:
        scraped()
    queue = make_queue(make_tenant("vision"))
    for _ in range(20):
        make_job(queue, make_user("mei"))
    for number in range(10, 30):
        a_node(f"gpu-{number:05d}")
    with CaptureQueriesContext(connection) as many:
        scraped()
    assert len(many) == len(few) <= 16


def test_scrapes_in_a_row_ask_the_database_once() -> None:
    seconds = [100.0]
    collector = Installation(clock=lambda: NOW, monotonic=lambda: seconds[0])
    first = list(collector.collect())
    with CaptureQueriesContext(connection) as queries:
        seconds[0] += KEPT_SECONDS - 0.1
        assert list(collector.collect()) == first
    assert len(queries) == 0
    seconds[0] += 0.2
    with CaptureQueriesContext(connection) as queries:
        list(collector.collect())
    assert len(queries) > 0


def test_with_the_database_away_the_scrape_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(telemetry, "_jobs", away)
    assert scraped() == {"muster_database_up": {(): 0}}


def test_the_web_serves_both_its_own_counters_and_the_installations(client: Client) -> None:
    text = client.get("/metrics").content.decode()
    assert "# TYPE muster_http_requests_total counter" in text
    assert "muster_database_up 1.0" in text
