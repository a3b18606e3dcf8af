"""The cluster process against a Kubernetes API over HTTP: gangs start, run, end, and leave nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from controlplane.common.models import Event
from queues.lifecycle import EndedBy
from queues.models import Cluster, Job, Placement, Quota
from queues.services.attempts import stop_attempt
from scheduler.kube.seen import PodSeen
from scheduler.logstore import LogKey
from scheduler.models import ClusterState, ForeignPod, Node
from scheduler.reconcile import steps
from scheduler.reconcile.ends import Circumstances, Decision, decide
from scheduler.reconcile.ledger import AttemptLife
from tests.reconcile.world import World, nodes_in, seats_of

pytestmark = [pytest.mark.slow, pytest.mark.sqlite]


@pytest.fixture
def live(world: World) -> World:
    """The world with its process running and all nodes seen."""
    world.start()
    world.until(lambda: nodes_in() == 4)
    return world


def cancel(job: Job, world: World) -> None:
    """What the cancel door does."""
    stop_attempt(
        world.attempt(job),
        cause=EndedBy.CANCELLED,
        grace_seconds=1,
        message="cancelled by ravi",
        actor="ravi",
        now=world.clock(),
    )


def log_of(world: World, job: Job, replica: int = 0, attempt: int = 1) -> bytes | None:
    return world.store.read(LogKey("research", job.pk, attempt, "main", replica))


def running_pods(world: World) -> list[PodSeen]:
    return [pod for pod in world.pods() if not pod.finished]


def test_nodes_are_observed_with_flavor_and_domains(live: World) -> None:
    node = Node.objects.get(name="gpu-00000")
    assert node.flavor is not None
    assert (node.gpus_capacity, node.gpus_allocatable) == (8, 8)
    assert node.ready
    assert node.out_causes == []
    assert set(node.domains) == {"spine", "leaf"}
    state = live.until(lambda: ClusterState.objects.filter(watch="live").first())
    assert state.heard_at is not None


def test_gang_runs_and_succeeds_and_its_logs_stay(live: World) -> None:
    job = live.submit(replicas=2, run_seconds=1, log_lines=5)
    live.until_phase(job, "running")
    assert seats_of(job) == 16
    assert len({pod.node for pod in live.pods()}) == 2
    live.until_phase(job, "finished")
    assert (job.outcome, job.exit_code) == ("succeeded", 0)
    attempt = live.attempt(job)
    assert attempt.ended_by == "succeeded"
    assert seats_of(job) == 0
    live.until(lambda: Placement.objects.filter(attempt=attempt, log_bytes__gt=0).count() == 2)
    assert log_of(live, job)
    assert ForeignPod.objects.count() == 0
    # Finished pods stay for an hour; the Service and the Secret go at once.
    assert len(live.pods()) == 2
    live.until(lambda: live.attempt(job).service_created_at is None)
    live.forward(3601)
    live.until(lambda: live.pods() == [])
    live.until(lambda: not Placement.objects.filter(gone_at__isnull=True).exists())
    assert log_of(live, job)


def test_first_failing_replica_decides_and_the_rest_is_stopped(live: World) -> None:
    job = live.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1)
    live.until_phase(job, "running")
    victim = next(p for p in live.pods() if p.labels["muster.dev/replica"] == "1")
    fail_pod(live, victim, 3)
    live.until_phase(job, "finished")
    assert (job.outcome, job.exit_code) == ("failed", 3)
    assert "main-1" in job.message
    assert seats_of(job) == 0
    live.until(lambda: running_pods(live) == [])


def fail_pod(world: World, pod: PodSeen, exit_code: int) -> None:
    """Its program ends by itself, with that code."""

    def end(sim: Any) -> None:
        run = sim.fleet.kubelets[pod.node].find((pod.namespace, pod.name))
        assert run is not None
        run.kill(run.containers[0], exit_code, "Error")

    world.sim.call(end)


def test_failing_job_burns_its_restarts(live: World) -> None:
    job = live.submit(run_seconds=0.2, exit_code=7, max_restarts=1)
    live.until_phase(job, "finished", 20)
    assert (job.outcome, job.exit_code, job.restarts_used) == ("failed", 7, 1)
    assert list(job.attempts.values_list("ended_by", flat=True)) == ["failed", "failed"]


def test_cancelled_job_is_stopped_with_its_log_kept(live: World) -> None:
    job = live.submit(replicas=2, run_seconds="forever", log_lines=3)
    live.until_phase(job, "running")
    cancel(job, live)
    live.until_phase(job, "finished")
    assert (job.outcome, job.message) == ("cancelled", "cancelled by ravi")
    assert seats_of(job) == 0
    live.until(lambda: live.pods() == [])
    assert log_of(live, job) is not None
    assert log_of(live, job, 1) is not None


def test_job_cancelled_before_its_pods_exist_ends_at_once(live: World) -> None:
    live.stop()
    job = live.submit(replicas=2)
    live.until_phase(job, "placed")
    cancel(job, live)
    live.start()
    live.until_phase(job, "finished")
    assert job.outcome == "cancelled"
    assert live.pods() == []
    assert seats_of(job) == 0


def test_time_limit_ends_a_job(live: World) -> None:
    job = live.submit(run_seconds="forever", max_runtime_seconds=600)
    live.until_phase(job, "running")
    live.forward(590)
    time.sleep(0.5)
    job.refresh_from_db()
    assert job.phase == "running"
    live.forward(11)
    live.until_phase(job, "finished", 20)
    assert job.outcome == "timed_out"
    assert "600 s" in job.message


def test_wrong_image_fails_the_job_a_minute_after_the_first_error(live: World) -> None:
    job = live.submit(replicas=2, fault="image-pull")
    live.until(
        lambda: (
            Placement.objects.filter(
                attempt__job=job, waiting_reason__in=["ErrImagePull", "ImagePullBackOff"]
            ).count()
            == 2
        )
    )
    time.sleep(0.3)
    job.refresh_from_db()
    assert job.phase in ("starting", "placed")
    live.forward(61)
    live.until_phase(job, "finished", 20)
    assert job.outcome == "failed"
    assert live.attempt(job).ended_by == "start_failed"
    assert "Image" in job.message
    live.until(lambda: live.pods() == [])
    assert seats_of(job) == 0


def test_pod_deleted_by_hand_ends_the_attempt_and_the_job_comes_back(live: World) -> None:
    job = live.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1)
    live.until_phase(job, "running")
    live.delete_pod(live.pods()[0])
    live.until_phase(job, "pending", plan=False)
    first = live.attempt(job)
    assert first.ended_by == "node_failure"
    assert job.backoff_until is not None
    assert seats_of(job) == 0
    live.forward(11)
    live.until_phase(job, "running", 20)
    assert live.attempt(job).number == 2


def test_pod_deleted_before_all_have_started_is_made_again(live: World) -> None:
    job = live.submit(replicas=2, run_seconds="forever", start_seconds=6)
    live.until(lambda: len(live.pods()) == 2 and all(p.node for p in live.pods()))
    live.delete_pod(live.pods()[0], grace_seconds=0)
    live.until_phase(job, "running", 20)
    tries = set(Placement.objects.values_list("try_number", flat=True))
    assert tries == {1, 2}
    assert live.attempt(job).number == 1
    assert len(running_pods(live)) == 2


def test_kubelet_refusal_is_a_placement_miss(live: World) -> None:
    live.stop()
    job = live.submit(replicas=4)
    live.until_phase(job, "placed")
    live.make_foreign_pod("gpu-00002", 4)
    live.start()
    live.until_phase(job, "pending", plan=False)
    attempt = live.attempt(job)
    assert attempt.ended_by == "placement_miss"
    assert "OutOfnvidia.com/gpu" in attempt.message
    live.until(lambda: running_pods(live) == [])
    assert seats_of(job) == 0
    foreign = live.until(lambda: ForeignPod.objects.filter(node="gpu-00002").first())
    assert foreign.gpus == 4


def test_quotas_tell_what_pods_in_the_tenants_namespace_use_beside_muster(live: World) -> None:
    outside = Quota.objects.filter(tenant__slug="research").values_list("outside", flat=True)
    live.until_phase(live.submit(replicas=1, run_seconds=1), "finished")
    assert outside.get() == 0
    live.make_foreign_pod("gpu-00001", 2, name="by-hand", namespace="muster-research")
    live.make_foreign_pod("gpu-00001", 1, name="elsewhere")
    live.until(lambda: outside.get() == 2)
    live.stop()
    Quota.objects.update(outside=7)  # as written by a process that then died
    live.start()
    live.until(lambda: outside.get() == 2)
    live.api("DELETE", "/api/v1/namespaces/muster-research/pods/by-hand")
    live.until(lambda: outside.get() == 0)


def test_process_says_that_it_is_there_and_takes_back_what_was_said_in_its_silence(
    live: World,
) -> None:
    state = live.until(lambda: ClusterState.objects.filter(watch="live").first())
    ClusterState.objects.update(watch="unreachable")  # as the loop does
    live.forward(11)
    heard = live.until(
        lambda: ClusterState.objects.filter(watch="live", heard_at__gt=state.heard_at).first()
    )
    assert heard.heard_at is not None
    assert state.heard_at is not None
    assert (heard.heard_at - state.heard_at).total_seconds() >= 10
    event = Event.objects.filter(kind="cluster.watch").latest("seq")
    assert event.numbers == {"state": "live"}


def test_lost_node_is_unknown_then_ends_the_attempt_and_keeps_its_seats(live: World) -> None:
    job = live.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1)
    live.until_phase(job, "running")
    lost = Placement.objects.get(attempt__job=job, replica=1).node
    live.lose_node(lost)
    live.until(lambda: not Node.objects.get(name=lost).ready)
    assert [c["code"] for c in Node.objects.get(name=lost).out_causes] == ["not_ready"]
    live.forward(61)
    live.until(lambda: live.attempt(job).unknown_since is not None)
    job.refresh_from_db()
    assert job.phase == "running"
    live.forward(240)
    live.until_phase(job, "pending", 20, plan=False)
    attempt = live.attempt(job)
    assert attempt.ended_by == "node_failure"
    assert lost in attempt.message
    assert seats_of(job) == 8, "the lost node's seats stay taken"
    assert list(
        Placement.objects.filter(attempt=attempt, released_at=None).values_list("node", flat=True)
    ) == [lost]
    live.forward(11)
    live.until_phase(job, "running", 20)
    assert lost not in Placement.objects.filter(attempt__number=2).values_list("node", flat=True)
    # The node is deleted: nothing can run there any more.
    live.api("DELETE", f"/api/v1/nodes/{lost}")
    live.until(lambda: seats_of(job) == 16)


def test_quota_of_kubernetes_rolls_the_gang_back(live: World) -> None:
    live.stop()
    job = live.submit(replicas=2)
    live.until_phase(job, "placed")
    live.start()
    live.until(lambda: live.running and live.running.process)
    live.until_phase(job, "running")
    live.api(
        "POST",
        "/api/v1/namespaces/muster-research/resourcequotas",
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "mine"},
            "spec": {"hard": {"requests.nvidia.com/gpu": "24"}},
        },
    )
    time.sleep(0.5)
    second = live.submit(replicas=2)
    live.until(lambda: second.attempts.filter(ended_at__isnull=False).exists())
    assert "exceeded quota" in live.attempt(second).message
    live.until(lambda: len(running_pods(live)) == 2)
    live.until(lambda: seats_of(second) == 0, plan=False)
    live.until_phase(second, "pending", plan=False)
    assert second.reason_code == "refused_by_kubernetes"
    assert "exceeded quota" in second.refused_message
    assert live.attempt(second).refused


def test_killed_process_loses_nothing_and_doubles_nothing(live: World) -> None:
    jobs = [live.submit(replicas=2, run_seconds=1.5) for _ in range(4)]
    for _ in range(4):
        live.until(lambda: True)
        time.sleep(0.2)
        live.stop()
        live.start()
    for job in jobs:
        live.until_phase(job, "finished", 40)
        assert job.outcome == "succeeded", job.message
    assert {job.attempts.count() for job in jobs} == {1}
    names = [pod.name for pod in live.pods()]
    assert len(names) == 8


def test_pod_created_but_not_recorded_is_adopted(live: World) -> None:
    """Crash between create and record: the rows know nothing of the pods."""
    job = live.submit(replicas=2, run_seconds="forever")
    live.until_phase(job, "running")
    live.stop()
    uids = {pod.uid for pod in live.pods()}
    Placement.objects.filter(attempt__job=job).update(
        pod_uid="", created_at=None, bound_at=None, started_at=None, pod_phase=""
    )
    job.attempts.update(started_at=None)
    Job.objects.filter(pk=job.pk).update(phase="placed", started_at=None)
    live.start()
    live.until_phase(job, "running")
    assert {pod.uid for pod in live.pods()} == uids
    assert set(Placement.objects.values_list("pod_uid", flat=True)) == uids


def test_pods_of_unknown_attempts_are_shown_and_left_alone(live: World) -> None:
    job = live.submit(run_seconds="forever")
    live.until_phase(job, "running")
    live.stop()
    pod = live.pods()[0]
    # A backup from before the job was submitted.
    job.attempts.all()[0].placements.all()
    from scheduler.models import Seat  # noqa: PLC0415

    Seat.objects.all().delete()
    Placement.objects.all().delete()
    job.attempts.all().delete()
    Job.objects.filter(pk=job.pk).delete()
    live.loop = None
    live.start()
    row = live.until(lambda: ForeignPod.objects.filter(uid=pod.uid).first())
    assert row.unclaimed
    assert (row.gpus, row.node) == (8, pod.node)
    time.sleep(0.5)
    assert [p.uid for p in live.pods()] == [pod.uid]


def test_cordon_is_enacted_and_uncordon_is_no_lasting_wish(live: World) -> None:
    from controlplane.common import log  # noqa: PLC0415

    def wish(value: bool) -> None:
        with log.writing():
            Node.objects.filter(name="gpu-00001").update(cordon_wanted=value)
            log.record(
                log.NewEvent(
                    kind="node.cordon",
                    at=live.clock(),
                    cluster="demo",
                    node="gpu-00001",
                    actor="ines",
                )
            )

    wish(True)
    live.until(lambda: Node.objects.get(name="gpu-00001").unschedulable)
    assert [c["code"] for c in Node.objects.get(name="gpu-00001").out_causes] == ["cordoned"]
    wish(False)
    live.until(lambda: not Node.objects.get(name="gpu-00001").unschedulable)
    live.until(lambda: Node.objects.get(name="gpu-00001").cordon_wanted is None)


def test_observing_cluster_is_only_read(live: World) -> None:
    live.stop()
    Cluster.objects.update(mode="observe")
    live.start()
    live.make_foreign_pod("gpu-00003", 2)
    live.until(lambda: ForeignPod.objects.filter(node="gpu-00003", gpus=2).exists())
    assert live.pods() == []


def test_namespace_is_mirrored(live: World) -> None:
    quota = live.until(
        lambda: live.sim.call(
            lambda sim: [
                o
                for c in sim.world.store.collections()
                if c.resource.qualified.startswith(("resourcequotas", "limitranges"))
                for o in c.objects
            ]
        )
    )
    assert quota
    found = live.api("GET", "/api/v1/namespaces/muster-research")
    assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    hard = live.api("GET", "/api/v1/namespaces/muster-research/resourcequotas/muster")["spec"]
    assert hard["hard"] == {"requests.nvidia.com/gpu": "512"}


def test_defect_that_one_attempt_brings_out_holds_up_no_other(
    live: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = live.submit(run_seconds=0.3)

    def with_defect(attempt: AttemptLife, around: Circumstances) -> Decision:
        assert attempt.job_id != bad.pk, "a defect"
        return decide(attempt, around)

    monkeypatch.setattr(steps, "decide", with_defect)
    good = [live.submit(run_seconds=0.3) for _ in range(3)]
    for job in good:
        live.until_phase(job, "finished", 30)
        assert job.outcome == "succeeded"
