"""Whatever happens, in whatever order, a warm snapshot equals a cold one and the ledger holds.

Random sequences of what people, planner and cluster process do, through the real services, in virtual time. After
every step the warm snapshot is compared with a cold rebuild, and the seats with the placements.
"""

import os
import random
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db.models import Count, F

from controlplane.common import log
from controlplane.common.errors import ApplicationError
from queues.lifecycle import EndedBy
from queues.models import Attempt, Job, Placement, Queue
from queues.services.attempts import end_attempt, mark_running, stop_attempt
from queues.services.catalogue import change_cluster
from queues.services.jobs import (
    cancel_job,
    change_job,
    hold_job,
    release_job,
    requeue_job,
    submit_batch,
)
from queues.services.queues import change_queue
from queues.services.quotas import set_quotas
from scheduler.apply.release import release_placements
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.models import ForeignPod, Node, Seat
from scheduler.services.nodes import cordon_node, uncordon_node
from scheduler.snapshot.warm import WarmSnapshot, differences
from tenants.access import Actor
from tenants.models import User
from tests.scheduler import rows
from tests.scheduler.people import add_people, payload
from tests.scheduler.rows import NOW, World

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]
STEPS = 45


class Chance:
    """One random run: what may happen next, and to whom."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.now = NOW
        self.loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
        self.done: list[str] = []
        self.acts: list[Callable[[], object]] = [
            *[self.submit, self.plan, self.end, self.release] * 3,
            *(self.cancel, self.hold, self.let_go, self.requeue, self.change),
            *(self.start_running, self.node_breaks, self.node_heals, self.cordon, self.uncordon),
            *(self.strangers_come, self.strangers_go, self.quotas, self.queue, self.cluster),
        ]

    def step(self) -> None:
        self.now += timedelta(seconds=self.dice.choice([1, 5, 60, 900]))
        act = self.dice.choice(self.acts)
        self.done.append(act.__name__)
        try:
            act()
        except ApplicationError as refusal:
            self.done[-1] += f" ({refusal.code})"

    def actor(self, name: str) -> Actor:
        return Actor(user=User.objects.get(username=name))

    def job(self, **which: object) -> Job | None:
        found = list(Job.objects.filter(**which).order_by("pk"))
        return self.dice.choice(found) if found else None

    def node(self) -> Node:
        return self.dice.choice(list(Node.objects.select_related("cluster").order_by("name")))

    def submit(self) -> None:
        tenant = self.dice.choice(["research", "vision"])
        needed = self.job(tenant__slug=tenant)
        count = self.dice.choice([1, 2, 5])
        jobs = [
            payload(
                tenant,
                replicas=self.dice.choice([1, 1, 2, 3, 4]),
                gpus_per_replica=self.dice.choice([1, 2, 4, 8]),
                topology={
                    "level": self.dice.choice(["leaf", "spine"]),
                    "mode": self.dice.choice(["required", "preferred"]),
                },
                depends_on=[{"job": needed.pk}] if needed and self.dice.random() < 0.3 else [],
                on_preemption="requeue",
                max_restarts=1,
            )
            for _ in range(count)
        ]
        submit_batch(self.actor("ravi" if tenant == "research" else "mei"), jobs, self.now)

    def plan(self) -> None:
        while self.loop.tick(self.now) is Tick.CYCLED:
            pass

    def attempt(self) -> Attempt | None:
        found = list(Attempt.objects.filter(ended_at__isnull=True).order_by("pk"))
        return self.dice.choice(found) if found else None

    def start_running(self) -> None:
        if (attempt := self.attempt()) is not None:
            mark_running(attempt, now=self.now)

    def end(self) -> None:
        """The attempt ends; its pods may be seen gone at once, or only later."""
        if (attempt := self.attempt()) is None:
            return
        causes = [EndedBy.SUCCEEDED, EndedBy.FAILED, EndedBy.NODE_FAILURE, EndedBy.REQUEUED]
        with log.writing():
            end_attempt(
                attempt,
                ended_by=self.dice.choice(causes),
                message="",
                exit_code=0,
                now=self.now,
            )
            if self.dice.random() < 0.5:
                release_placements(attempt.placements.all(), self.now)

    def release(self) -> None:
        """Some pods are seen gone."""
        held = list(Placement.objects.filter(released_at__isnull=True).order_by("pk"))
        release_placements(self.dice.sample(held, min(len(held), 2)), self.now)

    def cancel(self) -> None:
        if (job := self.job()) is not None:
            cancel_job(self.actor("olivia"), job, "", self.now)

    def hold(self) -> None:
        if (job := self.job(phase="pending")) is not None:
            hold_job(self.actor("admin"), job, "", self.now)

    def let_go(self) -> None:
        if (job := self.job(phase="held")) is not None:
            release_job(self.actor("admin"), job, "", self.now)

    def requeue(self) -> None:
        if (job := self.job(phase="placed")) is not None:
            requeue_job(self.actor("admin"), job, "", self.now)

    def change(self) -> None:
        if (job := self.job(phase="pending")) is not None:
            changes = {"priority": self.dice.choice([100, 300, 500])}
            change_job(self.actor("admin"), job, changes, None, self.now)

    def node_breaks(self) -> None:
        out = [{"code": self.dice.choice(["not_ready", "taint"]), "numbers": {}}]
        rows.change_node(self.world, self.node().name, out_causes=out)

    def node_heals(self) -> None:
        rows.change_node(self.world, self.node().name, out_causes=[])

    def cordon(self) -> None:
        cordon_node(self.actor("ines"), self.node(), "try", self.now)

    def uncordon(self) -> None:
        uncordon_node(self.actor("ines"), self.node(), "try", self.now)

    def strangers_come(self) -> None:
        tenant = self.dice.choice([None, "vision"])
        rows.add_foreign_pod(self.world, self.node().name, gpus=1, tenant=tenant)

    def strangers_go(self) -> None:
        if found := list(ForeignPod.objects.order_by("node", "pk")):
            pod = self.dice.choice(found)
            with log.writing():
                ForeignPod.objects.filter(pk=pod.pk).delete()
                log.record(
                    log.NewEvent(kind="node.usage", at=self.now, cluster="demo", node=pod.node)
                )

    def quotas(self) -> None:
        queue = self.world.queues[self.dice.choice(["research", "vision"])]
        nominal = self.dice.choice([8, 32, 64])
        sent = {"flavors": [{"flavor": "h100", "nominal": nominal}]}
        set_quotas(self.actor("admin"), queue.tenant, sent, None, self.now)

    def queue(self) -> None:
        queues = Queue.objects.select_related("tenant", "cluster").order_by("tenant__slug", "name")
        queue = self.dice.choice(list(queues))
        sent = {"state": self.dice.choice(["open", "open", "held", "closed"])}
        change_queue(self.actor("admin"), queue, sent, None, self.now)

    def cluster(self) -> None:
        sent = {"mode": self.dice.choice(["schedule", "schedule", "schedule", "paused"])}
        change_cluster(self.actor("admin"), self.world.cluster, sent, None, self.now)
        self.world.cluster.refresh_from_db()


def check_ledger() -> None:
    """Seats are those of unreleased placements; no seat twice; every open attempt is whole or is ending."""
    unreleased = Placement.objects.filter(released_at__isnull=True)
    wrong = unreleased.annotate(held=Count("seats")).exclude(held=F("gpus"))
    assert not wrong.exists()
    assert not Seat.objects.filter(placement__released_at__isnull=False).exists()
    pairs = list(Seat.objects.values_list("node_id", "index"))
    assert len(pairs) == len(set(pairs))
    for attempt in Attempt.objects.select_related("job"):
        wanted = sum(role.replicas for role in attempt.job.roles.all())
        assert attempt.placements.count() == wanted
    active = Job.objects.filter(phase__in=["placed", "starting", "running", "stopping"]).count()
    assert Attempt.objects.filter(ended_at__isnull=True).count() == active


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("HISTORIES", "1"))))
def test_warm_equals_cold_after_every_step_of_a_random_history(seed: int) -> None:
    world = rows.make_world(8, nodes_per_leaf=4, quota=64)
    add_people(world)
    chance = Chance(world, seed)
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    # Whatever chance does to queues and the cluster later on: something is placed.
    chance.submit()
    chance.plan()
    for _ in range(STEPS):
        chance.step()
        context = f"seed {seed}, steps {chance.done}"
        warm.refresh()
        cold = WarmSnapshot(world.cluster.pk, world.cluster.name)
        cold.refresh()
        now = chance.now.timestamp()
        found = differences(warm.snapshot(now), cold.snapshot(now))
        assert not found, f"{context}: {found}"
        if chance.done[-1] == "plan" and chance.loop._kept is not None:
            # What the loop believes to have written is what is written.
            assert chance.loop._kept.warm.said == cold.said, context
        check_ledger()
    assert Attempt.objects.exists(), f"seed {seed} placed nothing"


def test_stopping_job_is_told_to_the_planner_with_its_end() -> None:
    world = rows.make_world(4)
    add_people(world)
    job = rows.add_job(world)
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    loop.tick(NOW)
    attempt = Attempt.objects.get(job=job)
    stop_attempt(
        attempt,
        cause=EndedBy.CANCELLED,
        grace_seconds=40,
        message="",
        actor="ravi",
        now=NOW,
    )
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    (running,) = warm.snapshot(NOW.timestamp()).running
    assert (running.stopping, running.stops_by) == (True, NOW.timestamp() + 40)


def test_usage_decays_by_half_in_a_half_life_and_counts_running_jobs() -> None:
    world = rows.make_world(4)
    job = rows.add_job(world, replicas=2)
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    loop.tick(NOW)
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()

    def used(at: datetime) -> dict[str | None, float]:
        usage = warm.snapshot(at.timestamp()).usage
        assert {row.tenant for row in usage} <= {"research"}
        return {row.user: row.gpu_seconds for row in usage}

    assert used(NOW) == {}
    hour = NOW + timedelta(hours=1)
    running = used(hour)
    assert running["ravi"] == running[None] == pytest.approx(16 * 3600, rel=0.01)
    with log.writing():
        attempt = Attempt.objects.get(job=job)
        end_attempt(attempt, ended_by=EndedBy.SUCCEEDED, message="", exit_code=0, now=hour)
        release_placements(attempt.placements.all(), hour)
    warm.refresh()
    assert used(hour)["ravi"] == pytest.approx(running["ravi"], rel=1e-6)
    assert used(hour + timedelta(days=7))["ravi"] == pytest.approx(running["ravi"] / 2, abs=0.1)
