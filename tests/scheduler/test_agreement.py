"""What was simulated is what happens: verdict, reason and nodes of a real submission from the same state.

A random history; in each case the what-if's own question is asked, then the same job is submitted and the loop runs.
`AGREEMENT_CASES=500` asks so many (`make chaos` does).
"""

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from controlplane.common import log
from queues.lifecycle import EndedBy
from queues.models import Attempt, Job, Queue, Quota, UserLimit, Verdict
from queues.services.attempts import end_attempt, mark_running
from queues.services.jobs import submit_job
from queues.services.queues import change_queue
from queues.services.validation import validate_job
from scheduler.apply.release import release_placements
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.models import MaintenanceWindow
from scheduler.selectors.asks import waiting_to_json
from scheduler.services.whatif import simulated_job
from scheduler.snapshot.warm import WarmSnapshot
from scheduler.whatif.mirror import Mirror
from scheduler.whatif.questions import ask_simulation
from tenants.access import Actor
from tenants.models import User
from tests.scheduler import rows
from tests.scheduler.people import add_people, payload
from tests.scheduler.rows import NOW, World, nodes_of

pytestmark = pytest.mark.django_db
CASES = int(os.environ.get("AGREEMENT_CASES", "30"))
CASES_A_WORLD = 30


@dataclass(slots=True)
class History:
    """A cluster to which things happen at random, its loop, and a what-if mirror beside it."""

    world: World
    dice: random.Random
    loop: ClusterLoop
    mirror: Mirror
    now: datetime = NOW
    met: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def settle(self) -> None:
        while self.loop.tick(self.now) is Tick.CYCLED:
            pass

    def something_happens(self) -> None:
        """Some seconds pass; a job may run or end, a node may go or come, a queue or quota may change."""
        self.now += timedelta(seconds=self.dice.choice([1, 20, 700, 3600]))
        acts = [self.run, self.end, self.end, self.node, self.quota, self.queue, self.window]
        act = self.dice.choice([*acts, self.user_limit])
        act()
        self.settle()

    def attempts(self) -> list[Attempt]:
        return list(Attempt.objects.filter(ended_at__isnull=True).order_by("pk"))

    def run(self) -> None:
        for attempt in self.attempts():
            if attempt.started_at is None and not attempt.stop_cause:
                mark_running(attempt, now=self.now)

    def end(self) -> None:
        found = self.attempts()
        if not found:
            return
        attempt = self.dice.choice(found)
        with log.writing():
            end_attempt(
                attempt,
                ended_by=EndedBy(attempt.stop_cause or EndedBy.SUCCEEDED),
                message="",
                exit_code=0,
                now=self.now,
            )
            release_placements(attempt.placements.all(), self.now)

    def node(self) -> None:
        name = f"gpu-{self.dice.randrange(12):05d}"
        out = self.dice.choice([[], [], [{"code": "not_ready", "numbers": {}}]])
        rows.change_node(self.world, name, out_causes=out)

    def quota(self) -> None:
        slug = self.dice.choice(["research", "vision"])
        with log.writing():
            Quota.objects.filter(tenant__slug=slug).update(nominal=self.dice.choice([16, 48, 96]))
            log.record(log.NewEvent(kind="quota.changed", at=self.now, tenant=slug))

    def queue(self) -> None:
        queue = Queue.objects.select_related("tenant", "cluster").order_by("pk")[
            self.dice.randrange(2)
        ]
        sent = {"state": self.dice.choice(["open", "open", "open", "held"])}
        change_queue(self.actor("admin"), queue, sent, None, self.now)

    def window(self) -> None:
        """Work on a leaf or two, soon."""
        starts_at = self.now + timedelta(minutes=self.dice.choice([5, 30, 180]))
        leaves = self.dice.choice([["leaf-00"], ["leaf-01", "leaf-02"]])
        with log.writing():
            MaintenanceWindow.objects.create(
                title="work",
                cluster=self.world.cluster,
                kind="maintenance",
                starts_at=starts_at,
                ends_at=starts_at + timedelta(minutes=self.dice.choice([20, 240])),
                nodes={"domains": [{"level": "leaf", "name": name} for name in leaves]},
                crossing=self.dice.choice(["checkpointable", "never"]),
                running_jobs="finish",
                created_by="ines",
                created_at=self.now,
                changed_by="ines",
                changed_at=self.now,
            )
            log.record(log.NewEvent(kind="window.changed", at=self.now, cluster="demo"))

    def user_limit(self) -> None:
        limit = self.dice.choice([16, 64, 256])
        with log.writing():
            UserLimit.objects.update_or_create(
                tenant=self.world.queues["research"].tenant,
                user=self.world.users["research"],
                flavor=self.world.flavor,
                defaults={"limit": limit},
            )
            log.record(log.NewEvent(kind="quota.changed", at=self.now, tenant="research"))

    def actor(self, name: str) -> Actor:
        return Actor(user=User.objects.get(username=name))

    def ask(self) -> dict[str, Any]:
        replicas = self.dice.choice([1, 1, 2, 3, 4, 6, 8, 13])
        role: dict[str, Any] = {
            "replicas": replicas,
            "gpus_per_replica": self.dice.choice([1, 2, 4, 8, 8]),
            "topology": {
                "level": self.dice.choice(["leaf", "spine"]),
                "mode": self.dice.choice(["required", "preferred"]),
            },
        }
        if replicas > 2 and self.dice.random() < 0.3:
            role["min_replicas"] = replicas // 2
        elif replicas in (4, 6, 8) and self.dice.random() < 0.3:
            role["topology"]["slice"] = {"replicas": 2, "level": "leaf"}
        if self.dice.random() < 0.3:
            role["checkpoint"] = {"interval_seconds": 300, "grace_seconds": 30, "notice": "signal"}
        if self.dice.random() < 0.1:
            begin_at = self.now + timedelta(seconds=self.dice.choice([60, 900]))
            role["begin_at"] = begin_at.isoformat()
        return role | {
            "priority": self.dice.choice([100, 300, 500]),
            "preemptible": self.dice.random() < 0.8,
            "max_runtime_seconds": self.dice.choice([600, 3600, 86_400]),
        }


def said_of(job: Job) -> tuple[str, tuple[str, ...], list[str]]:
    """Verdict, reasons and nodes of a job as rows have them."""
    job.refresh_from_db()
    if job.phase == "placed":
        return "starts_now", (), nodes_of(job)
    verdict = Verdict.objects.filter(class_key=job.class_key).first() if job.class_key else None
    codes = tuple(r["code"] for r in verdict.reasons) if verdict else (job.reason_code,)
    if codes[0] != job.reason_code:
        codes = (job.reason_code,)
    never = codes[0] in ("exceeds_quota_for_ever", "exceeds_cluster_for_ever")
    return ("never" if never else "queued"), codes, []


def one_case(history: History) -> str:
    """Simulate, submit, compare; returns the verdict."""
    slug, name = history.dice.choice([("research", "ravi"), ("vision", "mei")])
    actor = history.actor(name)
    spec = validate_job(actor, payload(slug, **history.ask()), history.now)
    wire = waiting_to_json(simulated_job(spec, name, 0, history.now))
    found = ask_simulation(history.mirror, {"job": wire}, history.now.timestamp())
    real = submit_job(actor, spec, history.now)
    history.loop.tick(history.now)
    verdict, codes, nodes = said_of(real)
    assert found["verdict"] == verdict, (found["reasons"], codes)
    if verdict == "starts_now":
        seats = sorted(found["start"]["seats"], key=lambda seat: seat["rank"])
        assert [seat["node"] for seat in seats] == nodes
    else:
        assert found["reasons"][0]["code"] == codes[0]
        history.reasons[codes[0]] += 1
    history.settle()
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(-(-CASES // CASES_A_WORLD)))
def test_simulation_says_what_a_submission_then_does(seed: int) -> None:
    print("seed", seed)
    world = rows.make_world(12, nodes_per_leaf=4, quota=96)
    add_people(world)
    history = History(
        world,
        random.Random(seed),
        ClusterLoop(world.cluster.pk, world.cluster.name, "worker"),
        Mirror(WarmSnapshot(world.cluster.pk, world.cluster.name)),
    )
    for _ in range(CASES_A_WORLD):
        history.something_happens()
        history.met[one_case(history)] += 1
    print(dict(history.met), dict(history.reasons))
    assert history.met["starts_now"] > 0
    assert history.met["queued"] > 0
