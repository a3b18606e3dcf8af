"""Rows → snapshot: what the planner is told, and that a warm snapshot equals a cold one."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.common import log
from queues.models import Attempt, Job, JobDependency, Placement, Queue, Quota
from scheduler.core.inputs.cluster import OutCause
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.resources import Amount
from scheduler.models import ClusterState, ForeignPod
from scheduler.snapshot.warm import WarmSnapshot, differences
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]


@pytest.fixture
def world() -> World:
    return rows.make_world(8, nodes_per_leaf=4)


def _cold(world: World) -> Snapshot:
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    return warm.snapshot(NOW.timestamp())


def _begin(world: World, job: Job, nodes: list[str]) -> Attempt:
    with log.writing():
        attempt = Attempt.objects.create(
            job=job, number=1, cluster=world.cluster, flavor=world.flavor, placed_at=NOW
        )
        Job.objects.filter(pk=job.pk).update(phase="placed", version=2)
        role = job.roles.get()
        Placement.objects.bulk_create(
            Placement(
                attempt=attempt,
                role=role,
                replica=rank,
                rank=rank,
                node=node,
                gpus=8,
                cpu_millis=8_000,
                memory_mib=64_000,
                pod_name=f"pod-{rank}",
            )
            for rank, node in enumerate(nodes)
        )
        log.record(rows.job_event("job.phase", job))
    return attempt


def test_waiting_job_arrives_with_all_that_it_asks(world: World) -> None:
    first = rows.add_job(world)
    job = rows.add_job(
        world,
        replicas=4,
        min_replicas=2,
        gpus_per_replica=4,
        topology_level="leaf",
        topology_mode="required",
        tensor_parallel=4,
        priority=700,
        max_runtime_seconds=3600,
        checkpoint_interval_seconds=600,
        checkpoint_grace_seconds=60,
        min_cuda="12.1",
        node_selector={"zone": "a"},
        exclude_nodes=["gpu-00001"],
        begin_at=NOW + timedelta(hours=1),
    )
    JobDependency.objects.create(job=job, on=first, condition="succeeded")
    waiting = {found.id: found for found in _cold(world).waiting}[job.pk]
    ask, role = waiting.ask, waiting.ask.roles[0]
    assert (ask.tenant, ask.queue, ask.user, ask.flavors) == (
        "research",
        "research/train",
        "ravi",
        ("h100",),
    )
    assert (role.replicas, role.least_replicas, role.tensor_parallel) == (4, 2, 4)
    assert role.per_replica == Amount(4, 8_000, 64_000, pods=1)
    assert (role.topology.required, role.topology.preferred) == ("leaf", None)
    assert ask.checkpoint is not None
    assert (ask.checkpoint.interval_seconds, ask.checkpoint.grace_seconds) == (600, 60)
    assert (ask.min_cuda, ask.node_selector) == ((12, 1), (("zone", "a"),))
    assert (ask.exclude_nodes, ask.priority) == (frozenset({"gpu-00001"}), 700)
    assert waiting.depends_on == (first.pk,)
    assert waiting.begin_at == NOW.timestamp() + 3600


def test_job_without_models_may_use_every_flavor_of_its_queue(world: World) -> None:
    job = rows.add_job(world, gpu_model=[rows.H100])
    other = rows.add_job(world, gpu_model=["NVIDIA-A100"])
    flavors = {waiting.id: waiting.ask.flavors for waiting in _cold(world).waiting}
    assert flavors == {job.pk: ("h100",), other.pk: ()}


def test_nodes_are_out_by_observation_and_by_wish(world: World) -> None:
    rows.change_node(world, "gpu-00001", out_causes=[{"code": "not_ready", "numbers": {}}])
    rows.change_node(world, "gpu-00002", cordon_wanted=True)
    rows.change_node(world, "gpu-00003", managed=False)
    rows.change_node(world, "gpu-00004", gone_at=NOW)
    nodes = {node.name: node for node in _cold(world).nodes}
    assert nodes["gpu-00000"].outs == ()
    assert nodes["gpu-00001"].outs == (OutCause.NOT_READY,)
    assert nodes["gpu-00002"].outs == (OutCause.CORDONED,)
    assert nodes["gpu-00003"].outs == (OutCause.UNMANAGED,)
    assert "gpu-00004" not in nodes


def test_strangers_count_on_their_node_and_on_their_tenant(world: World) -> None:
    rows.add_foreign_pod(world, "gpu-00000", gpus=2, tenant="vision")
    rows.add_foreign_pod(world, "gpu-00000", gpus=1)
    snapshot = _cold(world)
    assert snapshot.nodes[0].foreign == Amount(3, 2_000, 2_000, pods=2)
    outside = {tenant.name: tenant.quotas[0].outside for tenant in snapshot.tenants}
    assert outside == {"research": 0, "vision": 2}


def test_seats_of_an_ended_attempt_stay_taken_until_released(world: World) -> None:
    job = rows.add_job(world, replicas=2)
    attempt = _begin(world, job, ["gpu-00000", "gpu-00001"])
    assert [seat.node for seat in _cold(world).running[0].seats] == ["gpu-00000", "gpu-00001"]
    Placement.objects.filter(attempt=attempt, rank=0).update(released_at=NOW)
    Attempt.objects.filter(pk=attempt.pk).update(ended_at=NOW, ended_by="node_failure")
    Job.objects.filter(pk=job.pk).update(phase="pending")
    snapshot = _cold(world)
    assert snapshot.running == ()
    assert [waiting.id for waiting in snapshot.waiting] == [job.pk]
    assert snapshot.nodes[0].foreign == Amount()
    assert snapshot.nodes[1].foreign == Amount(8, 8_000, 64_000, pods=1)


def _node_change(world: World) -> None:
    rows.change_node(world, "gpu-00001", gpus_allocatable=7)


def _node_gone(world: World) -> None:
    rows.change_node(world, "gpu-00001", gone_at=NOW)


def _nodes_new(world: World) -> None:
    rows.add_nodes(world, 2, nodes_per_leaf=4, leaves_per_spine=2, first=8)


def _stranger_comes(world: World) -> None:
    rows.add_foreign_pod(world, "gpu-00003", gpus=4, tenant="vision")


def _strangers_go(world: World) -> None:
    with log.writing():
        ForeignPod.objects.all().delete()
        log.record(log.NewEvent(kind="node.changed", at=NOW, cluster="demo", node="gpu-00000"))


def _jobs_come(world: World) -> None:
    rows.add_jobs(world, 3, "vision", replicas=2)


def _job_goes(world: World) -> None:
    job = Job.objects.filter(phase="pending").order_by("pk")[0]
    with log.writing():
        Job.objects.filter(pk=job.pk).update(
            phase="finished", outcome="succeeded", finished_at=NOW, version=2
        )
        log.record(rows.job_event("job.phase", job))


def _job_starts(world: World) -> None:
    _begin(world, Job.objects.filter(phase="pending").order_by("pk")[1], ["gpu-00002"])


def _quota_changes(world: World) -> None:
    with log.writing():
        Quota.objects.filter(tenant__slug="vision").update(nominal=8)
        log.record(log.NewEvent(kind="quota.changed", at=NOW, tenant="vision"))


def _queue_changes(world: World) -> None:
    with log.writing():
        Queue.objects.filter(tenant__slug="vision").update(state="held")
        log.record(log.NewEvent(kind="queue.changed", at=NOW, tenant="vision"))


def _queue_loses_its_flavor(world: World) -> None:
    with log.writing():
        world.queues["vision"].flavors.clear()
        log.record(log.NewEvent(kind="queue.changed", at=NOW, tenant="vision"))


def _cluster_is_lost(world: World) -> None:
    with log.writing():
        ClusterState.objects.update(watch="unreachable")
        log.record(log.NewEvent(kind="cluster.watch", at=NOW, cluster="demo"))


@pytest.mark.parametrize(
    "change",
    [
        _node_change,
        _node_gone,
        _nodes_new,
        _stranger_comes,
        _strangers_go,
        _jobs_come,
        _job_goes,
        _job_starts,
        _quota_changes,
        _queue_changes,
        _queue_loses_its_flavor,
        _cluster_is_lost,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_warm_snapshot_follows_every_kind_of_change(world: World, change) -> None:
    first, second = rows.add_jobs(world, 2)
    JobDependency.objects.create(job=second, on=first, condition="finished")
    rows.add_job(world, "vision")
    rows.add_foreign_pod(world, "gpu-00000", gpus=1, tenant="research")
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    before = warm.snapshot(NOW.timestamp())
    change(world)
    assert warm.refresh()
    after = warm.snapshot(NOW.timestamp())
    assert differences(before, after)
    assert not differences(after, _cold(world))


def test_nothing_new_costs_one_query_and_keeps_every_object(world: World) -> None:
    rows.add_jobs(world, 20)
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    before = warm.snapshot(NOW.timestamp())
    with CaptureQueriesContext(connection) as queries:
        assert not warm.refresh()
    assert len(queries) == 1
    after = warm.snapshot(NOW.timestamp() + 1)
    assert after.nodes is before.nodes
    assert after.waiting is before.waiting
    assert after.running is before.running
    assert after.tenants is before.tenants
    assert after.queues is before.queues


def test_cold_build_takes_as_many_queries_for_many_as_for_few(world: World) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            _cold(world)
        return len(queries)

    rows.add_jobs(world, 2)
    _begin(world, rows.add_job(world), ["gpu-00000"])
    few = cost()
    rows.add_jobs(world, 200)
    for number in range(5):
        _begin(world, rows.add_job(world), [f"gpu-{number:05d}"])
    assert cost() == few
    assert few <= 28


def test_events_that_change_nothing_here_change_nothing(world: World) -> None:
    job = rows.add_job(world)
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    before = warm.snapshot(NOW.timestamp())
    with log.writing():
        log.record(
            log.NewEvent(kind="node.changed", at=NOW, cluster="other", node="gpu-00001"),
            log.NewEvent(kind="quota.changed", at=NOW, cluster="other"),
            log.NewEvent(kind="node.changed", at=NOW, cluster="demo", node="gpu-00001"),
            log.NewEvent(kind="job.noted", at=NOW, cluster="other", job=job.pk),
        )
    assert not warm.refresh()
    after = warm.snapshot(NOW.timestamp())
    assert (after.nodes, after.waiting) == (before.nodes, before.waiting)
    assert after.nodes is before.nodes
    assert after.revision == before.revision + 4


def test_a_running_gang_of_which_replicas_have_ended_says_so(world: World) -> None:
    job = rows.add_job(world, replicas=4, min_replicas=2, gpus_per_replica=8)
    attempt = _begin(world, job, ["gpu-00000", "gpu-00001", "gpu-00002"])
    (whole,) = _cold(world).running
    assert (len(whole.seats), whole.replicas_ended) == (3, False)
    Placement.objects.filter(attempt=attempt, rank=2).update(released_at=NOW)
    (thinned,) = _cold(world).running
    assert (len(thinned.seats), thinned.replicas_ended) == (2, True)
