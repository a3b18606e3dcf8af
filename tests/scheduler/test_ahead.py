"""What would help the first jobs in line is tried before anybody asks, and told with its moment."""

from typing import Any

import pytest
from django.utils import timezone

from queues.models import Job, Queue
from queues.models.quotas import QueueFlavor
from scheduler.core.inputs.jobs import Ask, Role, SliceAsk, TopologyAsk, WaitingJob
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.memo import Memo
from scheduler.core.resources import Amount
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.services import whatif as whatif_service
from scheduler.snapshot.warm import WarmSnapshot
from scheduler.whatif import ahead
from scheduler.whatif.explain import State, estimated_start
from scheduler.whatif.mirror import OPTIONS, Mirror
from scheduler.whatif.questions import ask_explanation, look_ahead
from scheduler.whatif.server import Whatif
from scheduler.whatif.trials import trials_of
from tenants.access import Actor
from tests.scheduler import rows
from tests.scheduler.people import add_people, client
from tests.scheduler.rows import NOW, World

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]
AT = NOW.timestamp()


@pytest.fixture
def world() -> World:
    made = rows.make_world(8, nodes_per_leaf=4)
    add_people(made)
    return made


@pytest.fixture
def mirror(world: World) -> Mirror:
    return Mirror(WarmSnapshot(world.cluster.pk, world.cluster.name))


def look_at_all(mirror: Mirror, now: float) -> int:
    """Looks until nothing is due; how many."""
    mirror.snapshot(now)
    looks = 0
    while look_ahead(mirror, now):
        looks += 1
    return looks


def explained(mirror: Mirror, job: Job, now: float) -> dict[str, Any]:
    return ask_explanation(mirror, {"job": job.pk}, now)


def test_first_hundred_in_line_are_tried_ten_at_a_time(world: World, mirror: Mirror) -> None:
    jobs = rows.add_jobs(world, 120, replicas=9, max_runtime_seconds=600)
    assert look_at_all(mirror, AT) == ahead.KEPT_JOBS // ahead.JOBS_A_LOOK
    line = mirror.base_plan(mirror.snapshot(AT)).order
    assert set(line) == {job.pk for job in jobs}
    waiting = {job.id: job for job in mirror.snapshot(AT).waiting}
    kept = [job for job in line if mirror.lookout.of(waiting[job], AT)]
    assert kept == list(line[: ahead.KEPT_JOBS])
    told = explained(mirror, jobs[0], AT + 60)
    assert told["counterfactuals_at"] == AT
    assert [tried["change"] for tried in told["counterfactuals"]] == [{"replicas": 8}]
    later = explained(mirror, jobs[-1], AT + 60)
    assert later["counterfactuals_at"] == AT + 60
    assert [tried["change"] for tried in later["counterfactuals"]] == [{"replicas": 8}]


def test_a_new_line_is_looked_at_when_something_has_changed(world: World, mirror: Mirror) -> None:
    (job,) = rows.add_jobs(world, 1, replicas=9)
    assert look_at_all(mirror, AT) == 1
    assert look_at_all(mirror, AT + ahead.LOOK_AGAIN_SECONDS) == 0
    (new,) = rows.add_jobs(world, 1, replicas=10)
    assert look_at_all(mirror, AT + ahead.LOOK_AGAIN_SECONDS - 1) == 0
    assert look_at_all(mirror, AT + ahead.LOOK_AGAIN_SECONDS) == 1
    for each in (job, new):
        at = AT + ahead.LOOK_AGAIN_SECONDS + 5
        assert explained(mirror, each, at)["counterfactuals_at"] == at - 5
    assert look_at_all(mirror, AT + ahead.LOOK_AGAIN_SECONDS + ahead.LOOK_ANYWAY_SECONDS) == 1


def test_what_is_kept_is_tried_anew_for_another_ask_or_when_it_is_old(
    world: World, mirror: Mirror
) -> None:
    (job,) = rows.add_jobs(world, 1, replicas=9)
    look_at_all(mirror, AT)
    old = AT + ahead.GOOD_FOR_SECONDS + 1
    assert explained(mirror, job, old)["counterfactuals_at"] == old
    (waiting,) = mirror.snapshot(old).waiting
    assert mirror.lookout.of(waiting, old) is not None
    other = Ask("research", "research/train", "ravi", ("h100",), waiting.ask.roles, priority=3)
    changed = WaitingJob(waiting.id, other, waiting.submitted_at)
    assert mirror.lookout.of(changed, old) is None


def test_nothing_is_tried_for_a_job_that_nothing_helps(world: World, mirror: Mirror) -> None:
    (job,) = rows.add_jobs(world, 1, replicas=9)
    Queue.objects.update(state="held")
    told = explained(mirror, job, AT)
    assert (told["counterfactuals"], told["counterfactuals_at"]) == ([], AT)


def test_flavors_that_the_queue_does_not_allow_are_not_suggested(
    world: World, mirror: Mirror
) -> None:
    other = type(world.flavor).objects.create(
        cluster=world.cluster, name="a100", resource_name="nvidia.com/gpu", model="A100"
    )
    (job,) = rows.add_jobs(world, 1, replicas=9)

    def suggested() -> list[str]:
        mirror.warm.refresh()
        snapshot = mirror.snapshot(AT)
        (waiting,) = snapshot.waiting
        # As if there were room: every flavor is tried that the planner takes for allowed.
        (queue,) = (q for q in snapshot.queues if q.name == waiting.ask.queue)
        return list(queue.flavors)

    assert suggested() == ["h100"]
    QueueFlavor.objects.create(queue=world.queues["research"], flavor=other, position=2)
    rows.add_nodes(world, 0, nodes_per_leaf=4, leaves_per_spine=2)
    mirror.warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    assert suggested() == ["h100", "a100"]
    assert job.pk


def changes_of(mirror: Mirror, ask: Ask) -> list[dict[str, Any]]:
    snapshot: Snapshot = mirror.snapshot(AT)
    job = WaitingJob("job_x", ask, AT)
    asking = type(snapshot)(
        **{
            name: getattr(snapshot, name)
            for name in Snapshot.__dataclass_fields__
            if name != "waiting"
        },
        waiting=(*snapshot.waiting, job),
    )
    found = trials_of(asking, [job], {"h100": rows.H100}, OPTIONS, Memo())
    return [dict(trial.change) for trial in found["job_x"]]


def test_changes_are_told_as_fields_of_the_contract(world: World, mirror: Mirror) -> None:
    """A gang of six: eight nodes are free, four in each leaf."""

    def ask(topology: TopologyAsk, replicas: int = 6) -> Ask:
        role = Role("main", replicas, Amount(8, 8_000, 64_000, 1), topology=topology)
        return Ask("research", "research/train", "ravi", ("h100",), (role,))

    leaf = {"level": "leaf", "mode": "preferred"}
    spine = {"level": "spine", "mode": "required", "preferred_level": "leaf"}
    assert changes_of(mirror, ask(TopologyAsk(required="leaf"))) == [
        {"replicas": 4},
        {"topology": spine},
        {"topology": leaf},
    ]
    sliced = TopologyAsk(slice=SliceAsk(3, "node"))
    assert {"topology": {"level": None, "mode": "preferred", "slice": None}} in changes_of(
        mirror, ask(sliced)
    )


@pytest.mark.django_db(transaction=True)
def test_page_says_when_it_was_tried(world: World, whatif: Whatif) -> None:
    (job,) = rows.add_jobs(world, 1, replicas=9, submitted_at=timezone.now())
    told = client("ravi").get(f"/api/v1/jobs/{job.pk}/explain/").json()
    assert told["counterfactuals"] == [
        {"change": {"replicas": 8}, "verdict": "starts_now", "estimated_start": told_now(told)}
    ]
    assert told["counterfactuals_at"] is not None


def told_now(told: dict[str, Any]) -> object:
    (tried,) = told["counterfactuals"]
    assert tried["estimated_start"]["p50"]
    return tried["estimated_start"]


def test_start_that_cannot_be_reached_in_time_is_given_up_early(
    world: World, mirror: Mirror
) -> None:
    """After a few estimates it is known how long all those before would take."""
    rows.add_jobs(world, 1, replicas=8, max_runtime_seconds=3600)
    settle = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    while settle.tick(NOW) is Tick.CYCLED:
        pass
    jobs = rows.add_jobs(world, 40, replicas=8, max_runtime_seconds=600)
    snapshot = mirror.snapshot(AT)
    state = State(snapshot, mirror.base_plan(snapshot), mirror.models, OPTIONS, mirror.memo)
    waiting = {job.id: job for job in snapshot.waiting}
    asked: list[float] = []

    def seconds_left() -> float:
        asked.append(0.05)
        return 1.0 - sum(asked)

    last = waiting[jobs[-1].pk]
    assert estimated_start(state, last, seconds_left) is None
    assert len(asked) < 12
    assert (estimated_start(state, last) or 0) > AT + 39 * 600
    asked.clear()
    assert estimated_start(state, waiting[jobs[5].pk], seconds_left) is not None


def test_answer_of_an_older_process_is_understood(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an installation is upgraded a new web asks an old what-if process: it does not tell the moment."""
    (job,) = rows.add_jobs(world, 1, replicas=9)
    told: dict[str, Any] = {"reasons": [], "checks": [], "ahead": [], "counterfactuals": []}
    old = told | {"starts_at": None, "p50": None, "p90": None}
    monkeypatch.setattr(whatif_service, "_ask", lambda *_asked, **_named: old)
    assert whatif_service.explain(Actor(user=world.users["research"]), job).tried_at is None
