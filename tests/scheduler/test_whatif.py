"""What-if questions over HTTP: simulations that come true, explanations that were tried, quotas previewed."""

import random
import time
from datetime import timedelta
from decimal import Decimal

import httpx
import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from controlplane.common import log
from controlplane.common.errors import ConflictError, InvalidError, UnavailableError
from queues.contract.quotas import FlavorQuota, Quotas
from queues.models import Job, Queue, Quota
from queues.services.jobs import submit_job
from queues.services.planner import planner
from queues.services.validation import validate_job
from scheduler.loop.cycle import ClusterLoop, Tick
from scheduler.selectors.asks import ask_of, waiting_from_json, waiting_to_json
from scheduler.services.whatif import RemotePlanner, explain, preview_quotas, simulate
from scheduler.snapshot.warm import WarmSnapshot
from scheduler.whatif.server import Whatif
from tenants.access import Actor
from tenants.models import Membership, PlatformRole, User
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def world() -> World:
    world = rows.make_world(16, nodes_per_leaf=4)
    world.flavor.gpus_per_node = 8
    world.flavor.cpu_millis_per_node = 128_000
    world.flavor.memory_mib_per_node = 2_000_000
    world.flavor.save()
    for slug, queue in world.queues.items():
        Membership.objects.create(
            tenant=queue.tenant, user=world.users[slug], role="submitter", created_at=NOW
        )
    return world


def actor(world: World, tenant: str = "research") -> Actor:
    return Actor(user=world.users[tenant])


def payload(tenant: str = "research", **asked: object) -> dict[str, object]:
    return {
        "name": "train",
        "tenant": tenant,
        "queue": "train",
        "image": "registry.example/train:1",
        "gpus_per_replica": 8,
        "max_runtime_seconds": 3600,
    } | asked


def run(world: World) -> None:
    loop = ClusterLoop(world.cluster.pk, world.cluster.name, "worker")
    while loop.tick(timezone.now()) is Tick.CYCLED:
        pass
    loop.stop()


def test_simulation_asks_what_the_stored_job_will_ask(world: World) -> None:
    sent = payload(
        replicas=4,
        min_replicas=2,
        topology={"level": "leaf", "mode": "required", "slice": {"replicas": 2, "level": "leaf"}},
        tensor_parallel=8,
        min_cuda="12.1",
        node_selector={"zone": "a"},
        exclude_nodes=["gpu-00001"],
        priority="low",
        checkpoint={"interval_seconds": 600, "grace_seconds": 60, "notice": "signal"},
    )
    spec = validate_job(actor(world), sent, NOW)
    job = submit_job(actor(world), spec, NOW)
    warm = WarmSnapshot(world.cluster.pk, world.cluster.name)
    warm.refresh()
    stored = {waiting.id: waiting for waiting in warm.snapshot(0).waiting}[job.pk]
    assert ask_of(spec, "ravi") == stored.ask
    assert waiting_from_json(waiting_to_json(stored)).ask == stored.ask


def test_job_that_fits_starts_now_with_a_placement(world: World, whatif: Whatif) -> None:
    now = timezone.now()
    spec = validate_job(
        actor(world), payload(replicas=3, topology={"level": "leaf", "mode": "required"}), now
    )
    found = simulate(actor(world), spec, now)
    assert found.verdict == "starts_now"
    assert found.reasons == ()
    assert len({seat.node for seat in found.seats}) == 3
    assert len({seat.domains["leaf"] for seat in found.seats}) == 1
    assert found.quota_before is not None
    assert found.quota_after is not None
    assert (found.quota_before.used, found.quota_after.used) == (0, 24)
    assert not Job.objects.exists()


def test_job_that_must_wait_says_why_and_when(world: World, whatif: Whatif) -> None:
    now = timezone.now()
    submit_job(actor(world), validate_job(actor(world), payload(replicas=14), now), now)
    run(world)
    spec = validate_job(actor(world), payload(replicas=4), now)
    found = simulate(actor(world), spec, now)
    assert found.verdict == "queued"
    assert found.reasons[0].code == "waiting_for_nodes"
    assert found.starts_at is not None
    assert timedelta(minutes=59) < found.starts_at - now < timedelta(minutes=70)
    assert found.position == 1


def test_job_that_can_never_run_says_so(world: World, whatif: Whatif) -> None:
    now = timezone.now()
    spec = validate_job(
        actor(world), payload(replicas=5, topology={"level": "leaf", "mode": "required"}), now
    )
    found = simulate(actor(world), spec, now)
    assert found.verdict == "never"
    assert found.reasons[0].code == "exceeds_cluster_for_ever"


def test_submission_is_refused_or_finished_when_it_can_never_run(
    world: World, whatif: Whatif
) -> None:
    assert isinstance(planner(), RemotePlanner)
    now = timezone.now()
    never = validate_job(actor(world), payload(replicas=17), now)
    with pytest.raises(InvalidError) as refusal:
        submit_job(actor(world), never, now, on_infeasible="reject")
    assert refusal.value.code == "infeasible"
    assert not Job.objects.exists()
    job = submit_job(actor(world), never, now, on_infeasible="finish")
    assert (job.phase, job.outcome) == ("finished", "infeasible")
    # What others hold makes it wait, not impossible.
    rows.add_job(world, "vision", replicas=16)
    run(world)
    later = validate_job(actor(world), payload(replicas=16), now)
    assert submit_job(actor(world), later, now, on_infeasible="reject").phase == "pending"


def test_open_dependency_is_told(world: World, whatif: Whatif) -> None:
    now = timezone.now()
    first = submit_job(actor(world), validate_job(actor(world), payload(), now), now)
    spec = validate_job(actor(world), payload(depends_on=[{"job": first.pk}]), now)
    found = simulate(actor(world), spec, now)
    assert (found.verdict, found.reasons[0].code) == ("queued", "waiting_for_dependency")


@pytest.mark.parametrize("seed", range(4))
def test_simulation_agrees_with_what_then_happens(world: World, whatif: Whatif, seed: int) -> None:
    """The verdict of a simulation is what the next cycle does, when nothing changes between the two."""
    dice = random.Random(seed)
    seen = set()
    for _ in range(12):
        now = timezone.now()
        tenant = dice.choice(["research", "vision"])
        sent = payload(
            tenant,
            replicas=dice.choice([1, 1, 2, 3, 4, 5, 8]),
            gpus_per_replica=dice.choice([1, 2, 4, 8, 8]),
            priority=dice.choice(["low", "normal"]),
            max_runtime_seconds=dice.choice([600, 3600, 86400]),
            topology={
                "level": dice.choice(["leaf", "spine"]),
                "mode": dice.choice(["required", "preferred"]),
            },
        )
        spec = validate_job(actor(world, tenant), sent, now)
        said = simulate(actor(world, tenant), spec, now)
        job = submit_job(actor(world, tenant), spec, now)
        run(world)
        job.refresh_from_db()
        seen.add(said.verdict)
        context = f"seed {seed}: {sent}"
        if said.verdict == "starts_now":
            assert job.phase == "placed", context
            placed = rows.nodes_of(job)
            assert placed == [seat.node for seat in said.seats], context
        else:
            assert job.phase == "pending", context
            assert job.reason_code == said.reasons[0].code, context
    assert "starts_now" in seen


def test_explanation_names_checks_jobs_ahead_and_changes_that_help(
    world: World, whatif: Whatif
) -> None:
    now = timezone.now()
    mine = submit_job(actor(world), validate_job(actor(world), payload(replicas=6), now), now)
    theirs = rows.add_job(world, "vision", replicas=6)
    run(world)
    sent = payload(replicas=4, topology={"level": "leaf", "mode": "required"})
    job = submit_job(actor(world), validate_job(actor(world), sent, now), now)
    run(world)
    job.refresh_from_db()
    assert job.phase == "pending"
    found = explain(actor(world), job)
    assert found.reasons[0].code == job.reason_code == "waiting_for_topology"
    checks = {check.name: check.ok for check in found.checks}
    assert checks["topology"] is False
    assert (checks["quota"], checks["cluster"], checks["nodes"]) == (True, True, True)
    ahead = {ahead.job: ahead for ahead in found.ahead}
    assert ahead[mine.pk].gpus == 48
    assert ahead[mine.pk].expected_end is not None
    assert theirs.pk not in ahead
    assert ahead[""].expected_end is None
    changes = [(c.change, c.verdict) for c in found.counterfactuals]
    wanted = {"topology": {"level": "leaf", "mode": "preferred"}}
    assert (wanted, "starts_now") in changes
    # The change that was said to help does.
    changed = validate_job(actor(world), sent | wanted, now)
    assert submit_job(actor(world), changed, now).phase == "pending"
    run(world)
    assert Job.objects.filter(phase="placed").count() == 3


def test_explanation_of_a_job_that_no_longer_waits_is_a_conflict(
    world: World, whatif: Whatif
) -> None:
    job = rows.add_job(world)
    run(world)
    with pytest.raises(ConflictError):
        explain(actor(world), Job.objects.select_related("queue__cluster").get(pk=job.pk))


def test_held_queue_leaves_later_checks_open(world: World, whatif: Whatif) -> None:
    job = rows.add_job(world)
    with log.writing():
        Queue.objects.update(state="held")
        log.record(log.NewEvent(kind="queue.changed", at=NOW))
    job = Job.objects.select_related("queue__cluster").get(pk=job.pk)
    found = explain(actor(world), job)
    checks = {check.name: check.ok for check in found.checks}
    assert (checks["cluster"], checks["queue"], checks["nodes"]) == (True, False, None)
    assert found.counterfactuals == ()


def test_quota_preview_says_who_starts_who_waits_and_who_is_over(
    world: World, whatif: Whatif
) -> None:
    with log.writing():
        Quota.objects.filter(tenant__slug="research").update(nominal=16, borrowing_limit=0)
        Quota.objects.filter(tenant__slug="vision").update(nominal=8, borrowing_limit=0)
        log.record(log.NewEvent(kind="quota.changed", at=NOW))
    first, second = rows.add_jobs(world, 2, replicas=2, max_runtime_seconds=600)
    run(world)
    first.refresh_from_db()
    assert first.phase == "placed"
    tenant, queue = world.queues["research"].tenant, world.queues["research"]

    def preview(nominal: int, limit: int | None = None):
        quota = FlavorQuota(nominal, 0, None, Decimal(1), 0)
        limits = {} if limit is None else {(queue.pk, world.flavor.pk): limit}
        wanted = Quotas(flavors={world.flavor.pk: quota}, queues=limits)
        return preview_quotas(actor(world), tenant, world.cluster, wanted)

    more = preview(32)
    assert (more.starts, more.over, more.never) == ((second.pk,), (), ())
    less = preview(8)
    assert less.starts == ()
    assert less.never == (second.pk,)
    assert less.over == (("research", "h100", 8),)
    assert preview(32).plan_id == more.plan_id != less.plan_id
    assert preview(32, limit=16).starts == ()


def test_running_longer_is_refused_when_it_delays_a_booking(world: World, whatif: Whatif) -> None:
    now = timezone.now()
    running = submit_job(actor(world), validate_job(actor(world), payload(replicas=16), now), now)
    run(world)
    assert planner().refuses_longer_run(running, 7200, now) is None
    rows.add_job(world, "vision", replicas=4)
    assert planner().refuses_longer_run(running, 7200, now) is not None
    assert planner().refuses_longer_run(running, 1800, now) is None


def test_names_of_other_tenants_jobs_are_not_told(world: World, whatif: Whatif) -> None:
    now = timezone.now()
    rows.add_job(world, "vision", replicas=14, max_runtime_seconds=600)
    run(world)
    spec = validate_job(
        actor(world), payload(replicas=4, topology={"level": "leaf", "mode": "required"}), now
    )
    auditor = User.objects.create(username="sam", platform_role=PlatformRole.AUDITOR)
    theirs = Job.objects.get().pk
    assert theirs not in repr(simulate(actor(world), spec, now))
    job = submit_job(actor(world), spec, now)
    job = Job.objects.select_related("queue__cluster").get(pk=job.pk)
    assert theirs not in repr(explain(actor(world), job))
    assert theirs in repr(explain(Actor(user=auditor), job))


def test_without_the_process_there_is_no_verdict_now(world: World, settings) -> None:
    settings.WHATIF_URL = "http://127.0.0.1:9"
    spec = validate_job(actor(world), payload(), NOW)
    with pytest.raises(UnavailableError) as refusal:
        simulate(actor(world), spec, NOW)
    assert refusal.value.code == "no_verdict"
    with pytest.raises(UnavailableError):
        submit_job(actor(world), spec, NOW, on_infeasible="reject")
    assert submit_job(actor(world), spec, NOW).phase == "pending"


def test_question_that_takes_too_long_is_answered_with_no_verdict(
    world: World, whatif: Whatif
) -> None:
    spec = validate_job(actor(world), payload(), NOW)
    simulate(actor(world), spec, NOW)
    whatif.deadline_seconds = 0.05
    block = whatif._thread.submit(time.sleep, 0.4)
    with pytest.raises(UnavailableError):
        simulate(actor(world), spec, NOW)
    block.result()
    whatif.deadline_seconds = 9.0
    assert simulate(actor(world), spec, NOW).verdict == "starts_now"


def test_strangers_are_not_answered(world: World, whatif: Whatif) -> None:
    url = django_settings.WHATIF_URL
    assert httpx.get(f"{url}/healthz").status_code == 200
    assert httpx.post(f"{url}/never", json={"cluster": "demo", "jobs": []}).status_code == 401
