"""Preemption through rows: victims leave with provenance, the room is kept, the preemptor starts on it, nobody else."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from controlplane.common.models import Event
from queues.lifecycle import EndedBy
from queues.models import Attempt, Job, Quota, Verdict
from queues.selectors.jobs import with_job_parts
from queues.selectors.waiting import waiting_of
from queues.services.attempts import end_attempt, mark_running, stop_attempt
from queues.services.jobs import cancel_job
from scheduler.apply.fence import HeldLease, LeaseLostError
from scheduler.apply.release import release_placements
from scheduler.core.planner import plan
from scheduler.loop.cycle import OPTIONS, ClusterLoop, Tick
from scheduler.loop.preemption import Preemption
from scheduler.models import Booking, Eviction, Hold, Lease
from scheduler.snapshot.warm import WarmSnapshot, differences
from tenants.access import Actor
from tenants.models import Cohort
from tests.scheduler import rows
from tests.scheduler.people import add_people
from tests.scheduler.rows import NOW, World, nodes_of

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]


class Story:
    """A loop, a clock, and a cluster process that does what rows ask for. Warm is compared with cold all along."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = NOW
        self.loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
        self.warm = WarmSnapshot(world.cluster.pk, world.cluster.name)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.settle()

    def settle(self) -> None:
        for _ in range(20):
            if self.loop.tick(self.now) is not Tick.CYCLED:
                break
        else:
            raise AssertionError("the loop never rests")
        self.compare()

    def compare(self) -> None:
        self.warm.refresh()
        cold = WarmSnapshot(self.world.cluster.pk, self.world.cluster.name)
        cold.refresh()
        at = self.now.timestamp()
        assert differences(self.warm.snapshot(at), cold.snapshot(at)) == []

    def started(self, tenant: str = "research", count: int = 1, **asked: Any) -> list[Job]:
        """Jobs that run since now."""
        jobs = rows.add_jobs(self.world, count, tenant, **asked)
        self.settle()
        for attempt in Attempt.objects.filter(job__in=jobs):
            mark_running(attempt, now=self.now)
        return jobs

    def pods_go(self, job: Job) -> None:
        """The stopping attempt's pods are seen gone."""
        attempt = Attempt.objects.get(job=job, ended_at__isnull=True)
        end_attempt(
            attempt,
            ended_by=EndedBy(attempt.stop_cause),
            message=attempt.message,
            exit_code=None,
            now=self.now,
        )
        release_placements(attempt.placements.all(), self.now)

    def phase(self, job: Job) -> str:
        return str(Job.objects.values_list("phase", flat=True).get(pk=job.pk))


@pytest.fixture
def story() -> Iterator[Story]:
    world = rows.make_world(8, nodes_per_leaf=8)
    told = Story(world)
    yield told
    told.compare()


def test_higher_priority_of_the_same_tenant_gets_the_room_of_a_lower_one(story: Story) -> None:
    low = story.started(count=4, replicas=2, priority=100)
    story.wait(700)
    high = rows.add_job(story.world, replicas=2, priority=900)
    story.settle()
    eviction = Eviction.objects.get()
    victim = next(job for job in low if job.pk == eviction.attempt.job_id)
    assert (eviction.rule, eviction.preemptor_id) == ("priority", high.pk)
    assert eviction.lost_gpu_seconds == 16 * 700
    assert eviction.numbers["victim_priority"] == 100
    assert {why for _job, why in eviction.refused} == {"not_needed"}
    assert (story.phase(victim), story.phase(high)) == ("stopping", "pending")
    held = Hold.objects.get()
    assert held.job_id == high.pk
    assert sum(row[1] for row in held.nodes) == 16
    victims_nodes = set(nodes_of(victim))
    story.now += timedelta(seconds=5)
    story.pods_go(victim)
    story.settle()
    assert (story.phase(high), story.phase(victim)) == ("placed", "pending")
    assert set(nodes_of(high)) == victims_nodes
    assert not Hold.objects.exists()
    eviction.refresh_from_db()
    assert eviction.ended_at is not None
    assert Job.objects.get(pk=victim.pk).preemptions == 1


def test_reason_of_the_preemptor_bears_its_numbers(story: Story) -> None:
    add_people(story.world)
    story.started(count=4, replicas=2, priority=100)
    story.wait(700)
    high = rows.add_job(story.world, replicas=2, priority=900)
    story.settle()
    job = with_job_parts(Job.objects.filter(pk=high.pk)).get()
    assert job.reason_code == "waiting_for_preempted"
    said = waiting_of(Actor(user=story.world.users["research"]), [job])[job.pk].dominant
    assert (said.numbers["stopping_jobs"], said.numbers["freed_gpus"]) == (1, 16)
    assert "1 jobs are saving and leaving" in said.sentence


def test_room_is_kept_while_the_last_victim_is_still_saving(story: Story) -> None:
    low = story.started(count=2, replicas=4, priority=100, grace_seconds=60)
    story.wait(700)
    high = rows.add_job(story.world, replicas=8, priority=900)
    story.settle()
    assert [story.phase(job) for job in low] == ["stopping", "stopping"]
    story.pods_go(low[0])
    small = rows.add_job(story.world, replicas=1, priority=500)
    story.wait(5)
    assert (story.phase(high), story.phase(small)) == ("pending", "pending")
    story.pods_go(low[1])
    story.settle()
    assert story.phase(high) == "placed"
    assert story.phase(small) == "pending"


def test_lent_quota_is_taken_back_and_never_more(story: Story) -> None:
    Quota.objects.update(nominal=32)
    borrowing = story.started("research", 4, replicas=2)
    story.wait(700)
    rows.add_job(story.world, "vision", replicas=4)
    story.settle()
    assert Eviction.objects.filter(rule="reclaim").count() == 2
    assert {e.numbers["victim_tenant"] for e in Eviction.objects.all()} == {"research"}
    gone = [job for job in borrowing if story.phase(job) == "stopping"]
    for job in gone:
        story.pods_go(job)
    story.settle()
    again = rows.add_job(story.world, "vision", replicas=1)
    story.wait(700)
    assert story.phase(again) == "pending"
    assert Eviction.objects.count() == 2


def test_minimum_run_time_and_the_budget_protect(story: Story) -> None:
    story.started(count=4, replicas=2, priority=100)
    rows.add_job(story.world, replicas=2, priority=900)
    story.settle()
    assert not Eviction.objects.exists()
    Job.objects.update(preemptions=3)
    story.loop.forget()
    story.warm = WarmSnapshot(story.world.cluster.pk, story.world.cluster.name)
    story.warm.refresh()
    story.wait(700)
    assert not Eviction.objects.exists()


def test_preemptor_that_is_cancelled_before_anybody_was_told_withdraws(story: Story) -> None:
    add_people(story.world)
    low = story.started(count=4, replicas=2, priority=100)
    story.wait(700)
    high = rows.add_job(story.world, replicas=2, priority=900)
    assert story.loop.tick(story.now) is Tick.CYCLED
    assert Eviction.objects.get().signalled_at is None
    cancel_job(Actor(user=story.world.users["research"]), high, "", story.now)
    story.settle()
    assert Eviction.objects.get().withdrawn_at == story.now
    assert [story.phase(job) for job in low] == ["running"] * 4
    assert not Hold.objects.exists()


def test_preemptor_that_is_cancelled_after_the_signal_lets_it_complete(story: Story) -> None:
    add_people(story.world)
    story.started(count=4, replicas=2, priority=100)
    story.wait(700)
    high = rows.add_job(story.world, replicas=2, priority=900)
    story.settle()
    cancel_job(Actor(user=story.world.users["research"]), high, "", story.now)
    story.settle()
    eviction = Eviction.objects.get()
    assert (eviction.withdrawn_at, eviction.ended_at) == (None, None)
    assert not Hold.objects.exists()
    story.pods_go(eviction.attempt.job)
    story.settle()
    eviction.refresh_from_db()
    assert eviction.ended_at == story.now


def test_elastic_surplus_goes_first_and_comes_back_smaller(story: Story) -> None:
    (elastic,) = story.started(replicas=8, min_replicas=4, priority=100)
    story.wait(700)
    high = rows.add_job(story.world, replicas=4, priority=900)
    story.settle()
    eviction = Eviction.objects.get()
    assert (eviction.rule, eviction.keeps_replicas) == ("priority", 4)
    assert Attempt.objects.get(job=elastic).stop_cause == "resize"
    story.pods_go(elastic)
    story.settle()
    assert (story.phase(high), story.phase(elastic)) == ("placed", "placed")
    assert len(nodes_of(elastic)) == 4
    assert set(nodes_of(elastic)) & set(nodes_of(high)) == set()


def test_elastic_job_grows_at_its_checkpoint_when_nobody_waits(story: Story) -> None:
    others = story.started(count=2, replicas=2)
    (elastic,) = story.started(
        replicas=8, min_replicas=2, max_runtime_seconds=86_400, checkpoint_interval_seconds=1800
    )
    assert len(nodes_of(elastic)) == 4
    story.wait(600)
    for job in others:
        attempt = Attempt.objects.get(job=job)
        stop_attempt(
            attempt,
            cause=EndedBy.SUCCEEDED,
            grace_seconds=0,
            message="",
            actor="cluster",
            now=story.now,
        )
        story.pods_go(job)
    story.settle()
    assert not Eviction.objects.exists()
    attempt = Attempt.objects.get(job=elastic)
    Attempt.objects.filter(pk=attempt.pk).update(last_checkpoint_at=story.now)
    rows.touch(elastic)
    story.settle()
    grown = Eviction.objects.get()
    assert (grown.rule, grown.keeps_replicas, grown.preemptor) == ("grow", 8, None)
    story.pods_go(elastic)
    story.settle()
    assert len(nodes_of(elastic)) == 8
    assert Job.objects.get(pk=elastic.pk).preemptions == 0


def test_after_a_node_loss_survivors_keep_node_and_rank(story: Story) -> None:
    (job,) = story.started(replicas=4)
    before = nodes_of(job)
    rows.change_node(
        story.world, before[1], out_causes=[{"code": "not_ready", "numbers": {}}], ready=False
    )
    attempt = Attempt.objects.get(job=job)
    stop_attempt(
        attempt,
        cause=EndedBy.NODE_FAILURE,
        grace_seconds=0,
        message="the node is lost",
        actor="cluster",
        now=story.now,
    )
    story.pods_go(job)
    story.wait(11)
    after = nodes_of(job)
    assert story.phase(job) == "placed"
    assert [node for rank, node in enumerate(after) if rank != 1] == [
        node for rank, node in enumerate(before) if rank != 1
    ]
    assert after[1] not in before


def test_booking_of_a_blocked_job_is_a_row_and_goes_with_its_start(story: Story) -> None:
    running = story.started(count=4, replicas=2, max_runtime_seconds=3600)
    wide = rows.add_job(story.world, replicas=8, max_runtime_seconds=3600)
    story.settle()
    booking = Booking.objects.get()
    assert booking.job_id == wide.pk
    assert 3600 <= (booking.starts_at - NOW).total_seconds() <= 3600 + 120
    assert sum(gpus for _node, gpus in booking.nodes) == 64
    for job in running:
        attempt = Attempt.objects.get(job=job)
        stop_attempt(
            attempt,
            cause=EndedBy.SUCCEEDED,
            grace_seconds=0,
            message="",
            actor="cluster",
            now=story.now,
        )
        story.pods_go(job)
    story.settle()
    assert story.phase(wide) == "placed"
    assert not Booking.objects.exists()


def test_fair_share_cohort_evicts_for_who_has_less(story: Story) -> None:
    shared = Cohort.objects.get()
    Cohort.objects.update(order="fair_share")
    rows.add_tenant(story.world, "idle", "ida", shared, 32)
    Quota.objects.exclude(tenant__slug="idle").update(nominal=16)
    borrowing = story.started("research", 4, replicas=2)
    story.wait(700)
    wide = rows.add_job(story.world, "vision", replicas=4)
    story.settle()
    assert {e.rule for e in Eviction.objects.all()} == {"fair_share"}
    leaving = [job for job in borrowing if story.phase(job) == "stopping"]
    assert len(leaving) == 2
    for job in leaving:
        story.pods_go(job)
    story.settle()
    assert story.phase(wide) == "placed"
    # Those that left have now less than the others, but not so much less that it would go on for ever.
    story.wait(700)
    assert Eviction.objects.count() == 2


# --- the same plan again, crashes, other leaders ---


def _planned(story: Story) -> tuple[WarmSnapshot, HeldLease]:
    story.started(count=4, replicas=2, priority=100)
    story.now += timedelta(seconds=700)
    rows.add_job(story.world, replicas=2, priority=900)
    warm = WarmSnapshot(story.world.cluster.pk, story.world.cluster.name)
    warm.refresh()
    lease = Lease.objects.get()
    return warm, HeldLease(story.world.cluster.pk, lease.holder, lease.token)


def test_plan_committed_twice_orders_once(story: Story) -> None:
    warm, lease = _planned(story)
    snapshot = warm.snapshot(story.now.timestamp())
    made = plan(snapshot, OPTIONS)
    for _ in range(2):
        Preemption(lease, snapshot, made, story.now).commit([])
    assert (Eviction.objects.count(), Hold.objects.count()) == (1, 1)
    assert Event.objects.filter(kind="eviction.ordered").count() == 1


def test_lost_lease_leaves_neither_eviction_nor_hold(story: Story) -> None:
    warm, lease = _planned(story)
    snapshot = warm.snapshot(story.now.timestamp())
    stale = HeldLease(lease.cluster_id, lease.holder, lease.token - 1)
    with pytest.raises(LeaseLostError):
        Preemption(stale, snapshot, plan(snapshot, OPTIONS), story.now).commit([])
    assert not Eviction.objects.exists()
    assert not Hold.objects.exists()


def test_crash_between_order_and_hold_leaves_neither(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm, lease = _planned(story)
    snapshot = warm.snapshot(story.now.timestamp())

    def crash(*_: object) -> None:
        raise RuntimeError("crash")

    with monkeypatch.context() as patched:
        patched.setattr("scheduler.loop.preemption.write_holds", crash)
        with pytest.raises(RuntimeError):
            Preemption(lease, snapshot, plan(snapshot, OPTIONS), story.now).commit([])
    assert not Eviction.objects.exists()
    story.loop.forget()
    Lease.objects.update(expires_at=None)
    story.settle()
    assert (Eviction.objects.count(), Hold.objects.count()) == (1, 1)


def test_preemptor_that_changed_meanwhile_evicts_nobody(story: Story) -> None:
    warm, lease = _planned(story)
    snapshot = warm.snapshot(story.now.timestamp())
    made = plan(snapshot, OPTIONS)
    Job.objects.filter(priority=900).update(version=9)
    done = Preemption(lease, snapshot, made, story.now).commit([])
    assert (done.ordered, len(done.outdated)) == ([], 1)
    assert not Eviction.objects.exists()


def test_new_leader_goes_on_where_the_old_one_stopped(story: Story) -> None:
    story.started(count=4, replicas=2, priority=100)
    story.wait(700)
    high = rows.add_job(story.world, replicas=2, priority=900)
    story.settle()
    victim = Eviction.objects.get().attempt.job
    story.loop.stop()
    story.loop = ClusterLoop(story.world.cluster.pk, story.world.cluster.name, "other")
    story.wait(2)
    assert (Eviction.objects.count(), Hold.objects.count()) == (1, 1)
    story.pods_go(victim)
    story.settle()
    assert story.phase(high) == "placed"
    assert not Verdict.objects.filter(class_key__startswith="own:").exists()
