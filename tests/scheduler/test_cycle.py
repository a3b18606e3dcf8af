"""The loop on rows: gangs placed whole, seats taken once, verdicts per class, cycles only when needed."""

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.common import log
from controlplane.common.models import Event
from queues.lifecycle import EndedBy, Phase
from queues.models import Attempt, Cluster, Estimate, Job, Placement, Quota, Verdict
from queues.services.attempts import end_attempt
from scheduler.apply.fence import HeldLease, LeaseLostError
from scheduler.apply.plan import Told, apply_plan
from scheduler.apply.release import release_placements
from scheduler.apply.spoken import Spoken
from scheduler.apply.starts import PlanOutdatedError, commit_start
from scheduler.core.planner import plan
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.loop.lease import acquire
from scheduler.models import Alert, ClusterState, Lease, Node, Seat
from scheduler.snapshot.warm import WarmSnapshot
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World, nodes_of

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]


@pytest.fixture
def world() -> World:
    return rows.make_world(12, nodes_per_leaf=12)


@pytest.fixture
def loop(world: World) -> ClusterLoop:
    return ClusterLoop(world.cluster.pk, world.cluster.name, "worker")


def run_until_idle(loop: ClusterLoop, now: datetime = NOW) -> int:
    """Tick until nothing is left to do; returns how many cycles it took."""
    for cycles in range(20):
        if loop.tick(now) is not Tick.CYCLED:
            return cycles
    raise AssertionError("the loop never rests")


def finish(job: Job, now: datetime = NOW) -> None:
    """End the job's attempt as the cluster process does when every pod has succeeded."""
    attempt = Attempt.objects.get(job=job, ended_at__isnull=True)
    with log.writing():
        end_attempt(attempt, ended_by=EndedBy.SUCCEEDED, message="", exit_code=0, now=now)
        release_placements(attempt.placements.all(), now)


def phase_of(job: Job) -> str:
    return str(Job.objects.values_list("phase", flat=True).get(pk=job.pk))


def test_gang_is_placed_whole_with_attempt_placements_and_seats(
    world: World, loop: ClusterLoop
) -> None:
    job = rows.add_job(world, replicas=8, topology_level="leaf", topology_mode="required")
    run_until_idle(loop)
    job.refresh_from_db()
    attempt = job.attempts.get()
    assert (job.phase, job.attempt_number, attempt.number) == ("placed", 1, 1)
    assert (attempt.asked_level, attempt.achieved_level) == ("leaf", "leaf")
    assert attempt.flavor == world.flavor
    placements = list(attempt.placements.all())
    assert [p.rank for p in placements] == list(range(8))
    assert len({p.node for p in placements}) == 8
    assert placements[0].domains == {"leaf": "leaf-00", "spine": "spine-00"}
    assert placements[3].pod_name == f"{job.job8}-1-main-3-1"
    assert Seat.objects.filter(placement__attempt=attempt).count() == 64


def test_of_two_gangs_for_twelve_nodes_one_runs_and_the_other_holds_nothing(
    world: World, loop: ClusterLoop
) -> None:
    first, second = rows.add_jobs(world, 2, replicas=8)
    run_until_idle(loop)
    assert (phase_of(first), phase_of(second)) == ("placed", "pending")
    assert not Placement.objects.filter(attempt__job=second).exists()
    second.refresh_from_db()
    assert second.reason_code == "waiting_for_nodes"
    verdict = Verdict.objects.get(class_key=second.class_key)
    assert verdict.reasons[0]["numbers"]["needed_gpus"] == 64
    assert verdict.reasons[0]["numbers"]["free_gpus"] == 32
    finish(first)
    run_until_idle(loop)
    assert (phase_of(first), phase_of(second)) == ("finished", "placed")
    assert len(nodes_of(second)) == 8
    assert not Verdict.objects.exists()


def test_seats_are_the_lowest_free_ones_and_come_back(world: World, loop: ClusterLoop) -> None:
    small = rows.add_job(world, gpus_per_replica=2)
    run_until_idle(loop)
    other = rows.add_job(world, gpus_per_replica=4)
    run_until_idle(loop)
    assert nodes_of(small) == nodes_of(other)
    taken = Seat.objects.order_by("index").values_list("index", flat=True)
    assert list(taken.all()) == [0, 1, 2, 3, 4, 5]
    finish(small)
    assert list(taken.all()) == [2, 3, 4, 5]
    again = rows.add_job(world, gpus_per_replica=4)
    run_until_idle(loop)
    assert nodes_of(again) == nodes_of(other)
    assert list(taken.all()) == list(range(8))


def test_released_twice_is_released_once(world: World, loop: ClusterLoop) -> None:
    rows.add_job(world, replicas=2)
    run_until_idle(loop)
    placements = list(Placement.objects.all())
    assert release_placements(placements, NOW) == 2
    assert release_placements(placements, NOW) == 0
    assert Event.objects.filter(kind="placement.released").count() == 1


def test_idle_tick_costs_one_query_and_writes_nothing(world: World, loop: ClusterLoop) -> None:
    rows.add_jobs(world, 3, replicas=8)
    run_until_idle(loop)
    before = log.latest_seq()
    # What follows a burst of changes a second later is done by then.
    assert loop.tick(NOW + timedelta(seconds=1)) is Tick.IDLE
    with CaptureQueriesContext(connection) as queries:
        assert loop.tick(NOW + timedelta(seconds=2)) is Tick.IDLE
    assert len(queries) == 1
    assert log.latest_seq() == before


def test_waiting_verdict_is_never_older_than_ten_seconds(world: World, loop: ClusterLoop) -> None:
    rows.add_jobs(world, 2, replicas=8)
    for second in range(60):
        loop.tick(NOW + timedelta(seconds=second))
        considered_at = ClusterState.objects.get().considered_at
        assert considered_at is not None
        assert NOW + timedelta(seconds=second) - considered_at < timedelta(seconds=10)


def test_cluster_of_which_nothing_is_heard_starts_nothing_until_its_process_is_back(
    world: World, loop: ClusterLoop
) -> None:
    ClusterState.objects.update(heard_at=NOW)
    loop.tick(NOW + timedelta(seconds=30))
    assert ClusterState.objects.get().watch == "live"
    loop.tick(NOW + timedelta(seconds=36))
    assert ClusterState.objects.get().watch == "unreachable"
    job = rows.add_job(world)
    loop.tick(NOW + timedelta(seconds=37))
    job.refresh_from_db()
    assert (job.phase, job.reason_code) == ("pending", "cluster_unreachable")
    told = Event.objects.filter(kind="cluster.watch")
    assert [event.actor for event in told] == ["scheduler"]
    with log.writing():
        ClusterState.objects.update(watch="live", heard_at=NOW + timedelta(seconds=40))
        log.record(log.NewEvent(kind="cluster.watch", at=NOW, cluster="demo"))
    loop.tick(NOW + timedelta(seconds=45))
    assert phase_of(job) == "placed"


def test_begin_time_and_backoff_end_without_an_event(world: World, loop: ClusterLoop) -> None:
    later = rows.add_job(world, begin_at=NOW + timedelta(seconds=20))
    resting = rows.add_job(world, backoff_until=NOW + timedelta(seconds=10))
    run_until_idle(loop)
    reasons = Job.objects.order_by("pk").values_list("reason_code", flat=True)
    assert list(reasons) == ["begin_time", "backoff"]
    loop.tick(NOW + timedelta(seconds=9))
    assert (phase_of(later), phase_of(resting)) == ("pending", "pending")
    loop.tick(NOW + timedelta(seconds=10))
    assert (phase_of(later), phase_of(resting)) == ("pending", "placed")
    loop.tick(NOW + timedelta(seconds=20))
    assert phase_of(later) == "placed"


@pytest.mark.slow
def test_thousands_of_jobs_in_fifty_classes_cost_rows_per_class_not_per_job(
    world: World, loop: ClusterLoop
) -> None:
    blocker = rows.add_job(world, replicas=12)
    run_until_idle(loop)
    for number in range(50):
        rows.add_jobs(world, 60, replicas=12, gpus_per_replica=8, priority=100 + number)
    run_until_idle(loop)
    assert Verdict.objects.count() == 50
    assert not Job.objects.filter(phase="pending", class_key="").exists()
    assert Event.objects.filter(kind__in=["job.reason", "jobs.reason"]).count() == 50

    # A node less: every class's numbers move, no job's class or dominant reason does.
    versions = dict(Job.objects.values_list("pk", "reason_since"))
    before = log.latest_seq()
    rows.add_foreign_pod(world, "gpu-00000", gpus=0)
    finish(blocker)
    rows.add_job(world, replicas=5, priority=900)
    with CaptureQueriesContext(connection) as queries:
        run_until_idle(loop)
    writes = [q["sql"] for q in queries if q["sql"].startswith(("UPDATE", "INSERT", "DELETE"))]
    assert not [sql for sql in writes if 'UPDATE "queues_job"' in sql and "reason_code" in sql][1:]
    assert len(writes) < 60
    said = Event.objects.filter(seq__gt=before, kind__in=["job.reason", "jobs.reason"])
    assert said.count() <= 1
    assert dict(Job.objects.filter(pk__in=versions).values_list("pk", "reason_since")) == versions
    verdict = Verdict.objects.order_by("class_key")[0]
    assert verdict.reasons[0]["numbers"]["free_nodes"] == 7


def test_change_of_the_dominant_reason_is_told_once_per_class(
    world: World, loop: ClusterLoop
) -> None:
    rows.add_job(world, "vision", replicas=11)
    rows.add_job(world, replicas=1)
    run_until_idle(loop)
    rows.add_jobs(world, 100, replicas=2)
    run_until_idle(loop)
    before = log.latest_seq()
    with log.writing():
        Quota.objects.filter(tenant__slug="research").update(nominal=16, borrowing_limit=0)
        log.record(log.NewEvent(kind="quota.changed", at=NOW, tenant="research"))
    run_until_idle(loop)
    event = Event.objects.filter(seq__gt=before).exclude(kind="quota.changed").get()
    assert (event.kind, event.tenant, event.numbers["jobs"]) == ("jobs.reason", "research", 100)
    codes = set(Job.objects.filter(phase="pending").values_list("reason_code", flat=True))
    assert codes == {event.numbers["code"]} == {"waiting_for_quota"}


def test_job_that_was_cancelled_meanwhile_is_skipped_and_the_next_starts(
    world: World, loop: ClusterLoop
) -> None:
    first, second = rows.add_jobs(world, 2, replicas=4)
    lease, snapshot, made = _planned(world)
    Job.objects.filter(pk=first.pk).update(phase="finished", outcome="cancelled", finished_at=NOW)
    applied = apply_plan(lease, snapshot, made, Told(Spoken(), {}), NOW)
    assert (applied.outdated, applied.started) == ([first.pk], [second.pk])
    assert not Attempt.objects.filter(job=first).exists()


def _planned(world: World):
    lease = acquire(world.cluster.pk, "worker")
    assert lease is not None
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    snapshot = warm.snapshot(NOW.timestamp())
    return lease, snapshot, plan(snapshot)


def _job_changed(world: World) -> None:
    Job.objects.update(version=5)


def _job_held(world: World) -> None:
    Job.objects.update(phase="held")


def _node_gone(world: World) -> None:
    Node.objects.update(gone_at=NOW)


def _node_out(world: World) -> None:
    Node.objects.update(out_causes=[{"code": "not_ready", "numbers": {}}])


def _node_cordoned(world: World) -> None:
    Node.objects.update(cordon_wanted=True)


def _gpu_lost(world: World) -> None:
    Node.objects.update(gpus_allocatable=7)


def _memory_taken(world: World) -> None:
    for number in range(12):
        rows.add_foreign_pod(world, f"gpu-{number:05d}", gpus=0)
    Node.objects.update(memory_mib=64_500)


def _cpu_short(world: World) -> None:
    Node.objects.update(cpu_millis=7_999)


def _no_pod_left(world: World) -> None:
    Node.objects.update(pods=0)


def _cluster_paused(world: World) -> None:
    Cluster.objects.update(mode="paused")


def _seat_taken(world: World) -> None:
    other = rows.add_job(world, replicas=1)
    attempt = Attempt.objects.create(
        job=other, number=1, cluster=world.cluster, flavor=world.flavor, placed_at=NOW
    )
    for number in range(12):
        placement = Placement.objects.create(
            attempt=attempt,
            role=other.roles.get(),
            replica=number,
            rank=number,
            node=f"gpu-{number:05d}",
            gpus=0,
            cpu_millis=0,
            memory_mib=0,
            pod_name="x",
        )
        node = Node.objects.get(name=placement.node)
        Seat.objects.create(node=node, index=4, placement=placement)


@pytest.mark.parametrize(
    "change",
    [
        _job_changed,
        _job_held,
        _node_gone,
        _node_out,
        _node_cordoned,
        _gpu_lost,
        _memory_taken,
        _cpu_short,
        _no_pod_left,
        _cluster_paused,
        _seat_taken,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_start_that_no_longer_matches_the_rows_leaves_no_trace(world: World, change) -> None:
    job = rows.add_job(world, replicas=3)
    lease, _snapshot, made = _planned(world)
    change(world)
    seats, events = Seat.objects.count(), Event.objects.count()
    with pytest.raises(PlanOutdatedError):
        commit_start(lease, made.starts[0], NOW)
    assert not Attempt.objects.filter(job=job).exists()
    assert Seat.objects.count() == seats
    assert Event.objects.count() == events
    assert phase_of(job) != Phase.PLACED


def test_leader_that_lost_its_lease_commits_nothing(world: World, loop: ClusterLoop) -> None:
    loop.tick(NOW)
    Lease.objects.update(token=99, holder="somebody else")
    job = rows.add_job(world)
    assert loop.tick(NOW + timedelta(seconds=1)) is Tick.NOT_LEADER
    assert phase_of(job) == "pending"
    with pytest.raises(LeaseLostError):
        commit_start(HeldLease(world.cluster.pk, "worker", 1), _planned_start(world), NOW)
    assert not Attempt.objects.exists()


def _planned_start(world: World):
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    return plan(warm.snapshot(NOW.timestamp())).starts[0]


def test_start_refused_by_rows_that_the_log_kept_quiet_about_makes_the_loop_read_all_anew(
    world: World, loop: ClusterLoop
) -> None:
    loop.tick(NOW)
    Node.objects.exclude(name="gpu-00005").update(gpus_allocatable=0)  # no event
    job = rows.add_job(world)
    for second in range(1, 4):
        loop.tick(NOW + timedelta(seconds=second))
    assert nodes_of(job) == ["gpu-00005"]


def test_warm_snapshot_that_has_gone_wrong_is_reported_and_replaced(
    world: World, loop: ClusterLoop, caplog: pytest.LogCaptureFixture
) -> None:
    run_until_idle(loop)
    Node.objects.filter(name="gpu-00003").update(gpus_allocatable=4)  # no event
    loop.tick(NOW + timedelta(minutes=14))
    assert not Event.objects.filter(kind="audit.snapshot_defect").exists()
    loop.tick(NOW + timedelta(minutes=15))
    defect = Event.objects.get(kind="audit.snapshot_defect")
    assert defect.numbers == {"parts": ["nodes"]}
    assert "gpu-00003" in caplog.text
    loop.tick(NOW + timedelta(minutes=31))
    assert Event.objects.filter(kind="audit.snapshot_defect").count() == 1


def test_paused_and_observed_clusters_start_nothing_and_say_so(
    world: World, loop: ClusterLoop
) -> None:
    job = rows.add_job(world)
    for mode, code in (("paused", "cluster_paused"), ("observe", "cluster_observing")):
        with log.writing():
            Cluster.objects.update(mode=mode)
            log.record(log.NewEvent(kind="cluster.changed", at=NOW, cluster="demo"))
        run_until_idle(loop)
        job.refresh_from_db()
        assert (job.phase, job.reason_code) == ("pending", code)


def test_dependency_starts_its_dependent(world: World, loop: ClusterLoop) -> None:
    first, second = rows.add_jobs(world, 2)
    second.dependencies.create(on=first, condition="succeeded")
    run_until_idle(loop)
    second.refresh_from_db()
    assert (second.phase, second.reason_code) == ("pending", "waiting_for_dependency")
    finish(first)
    run_until_idle(loop)
    assert phase_of(second) == "placed"


def test_second_worker_takes_over_when_the_first_stops(world: World, loop: ClusterLoop) -> None:
    other = ClusterLoop(world.cluster.pk, world.cluster.name, "other")
    run_until_idle(loop)
    assert other.tick(NOW) is Tick.NOT_LEADER
    loop.stop()
    job = rows.add_job(world)
    assert other.tick(NOW) is Tick.CYCLED
    assert phase_of(job) == "placed"
    assert loop.tick(NOW) is Tick.NOT_LEADER


def test_waiting_jobs_get_estimates_that_move_only_when_it_matters(
    world: World, loop: ClusterLoop
) -> None:
    running = rows.add_job(world, replicas=12, max_runtime_seconds=3600, grace_seconds=30)
    waiting = rows.add_jobs(world, 3, replicas=8, max_runtime_seconds=1800)
    run_until_idle(loop)
    found = {estimate.job_id: estimate for estimate in Estimate.objects.all()}
    assert set(found) == {job.pk for job in waiting}
    first, second, _third = (found[job.pk].p50 for job in waiting)
    latest, next_latest = (found[job.pk].p90 for job in waiting[:2])
    assert latest is not None
    assert next_latest is not None
    # Without a history: half of them take half of their limit, nearly all at most the whole.
    assert timedelta(minutes=30) <= first - NOW <= timedelta(minutes=35)
    assert timedelta(hours=1) <= latest - NOW <= timedelta(hours=1, minutes=5)
    assert timedelta(minutes=15) <= second - first <= timedelta(minutes=20)
    assert timedelta(minutes=30) <= next_latest - latest <= timedelta(minutes=35)

    rows.add_job(world, replicas=1)
    for seconds in range(1, 40):
        loop.tick(NOW + timedelta(seconds=seconds))
    again = Estimate.objects.get(job=waiting[0])
    assert again.made_at == found[waiting[0].pk].made_at

    finish(running, NOW + timedelta(seconds=60))
    for seconds in range(61, 90):
        loop.tick(NOW + timedelta(seconds=seconds))
    assert phase_of(waiting[0]) == "placed"
    assert not Estimate.objects.filter(job=waiting[0]).exists()
    moved = Estimate.objects.get(job=waiting[1])
    assert moved.p50 < second - timedelta(minutes=20)


def test_use_above_a_quota_that_was_cut_is_told_and_nothing_is_stopped(
    world: World, loop: ClusterLoop
) -> None:
    def cut(nominal: int) -> None:
        with log.writing():
            Quota.objects.update(nominal=nominal, borrowing_limit=0)
            log.record(log.NewEvent(kind="quota.changed", at=NOW))

    job = rows.add_job(world, replicas=4)
    run_until_idle(loop)
    cut(8)
    run_until_idle(loop)
    alert = Alert.objects.get(kind="over_admission", tenant__slug="research")
    assert alert.numbers["gpus"] == 32 - 8
    assert (alert.state, phase_of(job)) == ("open", "placed")
    cut(64)
    run_until_idle(loop)
    alert.refresh_from_db()
    assert alert.state == "resolved"
