"""Ticks on rows: what a fault does to GPUs, nodes and jobs; budget; the way back; what is unknown."""

from datetime import timedelta

import pytest

from queues.lifecycle import EndedBy
from queues.models import Attempt, Placement
from queues.services.attempts import end_attempt
from scheduler.models import (
    Alert,
    BurnIn,
    Cordon,
    Eviction,
    Gpu,
    HealthAction,
    HealthEvent,
    HealthRule,
    Node,
    NodeWatch,
)
from scheduler.selectors.alerts import sentence
from scheduler.services.burn_in import note_burn_in
from scheduler.services.health_tick import HealthTicker
from scheduler.snapshot.nodes import read_nodes
from tests.factories import later
from tests.health.pages import page
from tests.health.scene import add_nodes, make_scene

pytestmark = pytest.mark.django_db

XID_79 = {0: {3: {"xid": 79}}}


def outs(scene) -> dict[str, set[str]]:
    nodes = read_nodes(scene.cluster.pk, {scene.flavor.pk: "h100"})
    return {name: {cause.value for cause in node.outs} for name, node in nodes.items() if node.outs}


def test_a_well_cluster_has_a_ledger_and_writes_nothing_more() -> None:
    scene = make_scene(2)
    assert Gpu.objects.count() == 16
    assert set(Gpu.objects.values_list("state", flat=True)) == {"healthy"}
    assert outs(scene) == {}
    gpu = scene.gpu(0, 0)
    assert (gpu.utilisation, gpu.temperature_c, gpu.ecc_known) == (90, 60, False)
    scene.tick(15)
    scene.tick(15)
    assert not HealthEvent.objects.exists()
    assert not Alert.objects.exists()


def test_xid_79_takes_the_node_out_and_stops_the_gang_at_once() -> None:
    scene = make_scene(8)
    attempt = scene.run(replicas=4, max_restarts=0)
    scene.tick(3, XID_79, only={0})
    attempt.refresh_from_db()
    assert attempt.stop_cause == EndedBy.NODE_FAILURE
    assert attempt.cause_removed
    node = scene.node(0)
    assert (node.health, node.health_closed, node.cordon_wanted) == ("draining", True, True)
    cordon = Cordon.objects.get(node=node)
    assert (cordon.source, cordon.taint) == ("health", True)
    assert "XID 79" in cordon.reason
    assert scene.gpu(0, 3).state == "draining"
    assert scene.gpu(0, 2).state == "healthy"
    assert Eviction.objects.get(attempt=attempt).rule == "health"
    assert outs(scene) == {"gpu-00000": {"unhealthy"}}
    action = HealthEvent.objects.get(kind="action")
    assert action.signal == "exporter"
    assert action.signal_age_seconds == 0
    assert action.jobs == [
        {
            "job": attempt.job_id,
            "tenant": "research",
            "attempt": 1,
            "how": "on_gpu",
            "evicted": True,
        }
    ]
    alert = Alert.objects.get(kind="gpu_fault")
    assert alert.gpu == scene.gpu(0, 3).uuid
    assert sentence(alert).startswith("GPU 3 of node gpu-00000: XID 79")
    # The first restart need not wait for a cause that is gone.
    end_attempt(attempt, ended_by=EndedBy.NODE_FAILURE, message="", exit_code=None, now=scene.now)
    job = attempt.job
    job.refresh_from_db()
    assert (job.phase, job.backoff_until, job.restarts_used) == ("pending", None, 0)


def test_xid_31_does_none_of_that_and_counts_against_the_job() -> None:
    scene = make_scene(2)
    attempt = scene.run(max_restarts=1)
    scene.fail_pod(attempt, 0)
    scene.tick(3, {0: {3: {"xid": 31}}})
    attempt.refresh_from_db()
    assert attempt.stop_cause == EndedBy.FAILED
    assert outs(scene) == {}
    assert not Cordon.objects.exists()
    (event,) = HealthEvent.objects.all()
    assert (event.kind, event.xid, event.jobs[0]["how"]) == ("signal", 31, "on_gpu")
    end_attempt(attempt, ended_by=EndedBy.FAILED, message="", exit_code=1, now=scene.now)
    attempt.job.refresh_from_db()
    assert attempt.job.restarts_used == 1


@pytest.mark.parametrize("mode", ["act", "propose"])
def test_a_pod_that_died_of_the_fault_first_does_not_burn_the_jobs_own_restarts(mode: str) -> None:
    scene = make_scene(4, mode=mode)
    attempt = scene.run(replicas=2, max_restarts=0)
    scene.tick(5)
    scene.fail_pod(attempt, 0)
    scene.pods.pop("gpu-00000")  # the exporter no longer names the dead pod
    scene.tick(3, XID_79)
    attempt.refresh_from_db()
    assert attempt.stop_cause == EndedBy.NODE_FAILURE
    assert "XID 79" in attempt.message
    # Whoever decided before the blame was known closes it all the same as the hardware's fault.
    end_attempt(attempt, ended_by=EndedBy.FAILED, message="", exit_code=1, now=scene.now)
    attempt.job.refresh_from_db()
    assert (attempt.job.phase, attempt.job.restarts_used) == ("pending", 0)


def test_a_pod_that_dies_some_time_after_the_fault_is_blamed_on_it_too() -> None:
    scene = make_scene(4, mode="propose")
    attempt = scene.run(replicas=2)
    scene.tick(3, XID_79)
    attempt.refresh_from_db()
    assert attempt.stop_cause == ""
    scene.seconds += 20
    scene.fail_pod(attempt, 0)
    scene.tick(3, XID_79)
    attempt.refresh_from_db()
    assert attempt.stop_cause == EndedBy.NODE_FAILURE


def test_a_failure_on_another_node_stays_the_jobs_own() -> None:
    scene = make_scene(4, mode="propose")
    scene.run(first_node=0)
    other = scene.run(first_node=2)
    scene.fail_pod(other, 0)
    scene.tick(3, XID_79)
    other.refresh_from_db()
    assert other.stop_cause == EndedBy.FAILED


def test_without_pod_labels_every_job_on_the_node_is_possibly_hit_and_the_timeline_says_so() -> (
    None
):
    scene = make_scene(4)
    first, second = scene.run(gpus=4), scene.run(gpus=4)
    scene.pods.clear()
    scene.tick(3, XID_79)
    action = HealthEvent.objects.get(kind="action")
    assert {each["job"] for each in action.jobs} == {first.job_id, second.job_id}
    assert {each["how"] for each in action.jobs} == {"possibly"}
    for attempt in (first, second):
        attempt.refresh_from_db()
        assert attempt.stop_cause == EndedBy.NODE_FAILURE


def test_a_job_beside_the_bad_gpu_leaves_after_its_checkpoint() -> None:
    scene = make_scene(4)
    scene.run(gpus=4)
    beside = scene.run(gpus=4, checkpoint_interval_seconds=600)
    on_gpu = Placement.objects.exclude(attempt=beside).get().pod_name
    scene.tick(3, {0: {3: {"xid": 79, "pod": on_gpu}}})
    beside.refresh_from_db()
    assert beside.stop_cause == ""
    order = Eviction.objects.get(attempt=beside)
    assert order.wait_for_checkpoint
    assert order.latest_at == scene.now + timedelta(seconds=1800)


def test_a_rule_that_proposes_touches_nothing_but_closes_the_node_to_new_pods() -> None:
    scene = make_scene(4, mode="propose")
    attempt = scene.run()
    scene.tick(3, XID_79)
    attempt.refresh_from_db()
    assert attempt.stop_cause == ""
    assert not Cordon.objects.exists()
    assert HealthEvent.objects.get(kind="proposal").action.startswith("would cordon")
    assert outs(scene) == {"gpu-00000": {"unhealthy"}}
    assert (scene.node(0).health, scene.gpu(0, 3).state) == ("suspect", "unhealthy")


def test_a_node_shrinks_only_when_allocatable_has_fallen_and_never_when_shared() -> None:
    scene = make_scene(3, mode="propose")
    Node.objects.filter(name="gpu-00000").update(gpus_allocatable=7)
    Node.objects.filter(name="gpu-00001").update(
        gpus_allocatable=7, labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    )
    scene.tick(3, {0: {3: {"xid": 48}}, 1: {3: {"xid": 48}}, 2: {3: {"xid": 48}}})
    assert outs(scene) == {
        "gpu-00000": {"suspect"},
        "gpu-00001": {"unhealthy"},
        "gpu-00002": {"unhealthy"},
    }


def test_beyond_the_budget_nodes_keep_their_jobs_take_no_new_pods_and_a_person_is_asked() -> None:
    scene = make_scene(20, nodes_per_leaf=5)
    attempts = [scene.run(first_node=index) for index in range(20)]
    bad = {index: {0: {"xid": 79}} for index in range(0, 20, 3)}  # 7 of 20: 35 %
    scene.tick(3, bad)
    scene.tick(3, bad)
    assert HealthAction.objects.count() == 2
    assert Cordon.objects.count() == 2
    stopped = Attempt.objects.filter(stop_cause=EndedBy.NODE_FAILURE)
    assert stopped.count() == 2
    assert Alert.objects.filter(kind="budget_exhausted").count() == 5
    left_in = [name for name, causes in outs(scene).items() if causes == {"unhealthy"}]
    assert len(left_in) == 7  # none of them takes a new pod
    kept = Node.objects.filter(health="suspect", health_closed=True)
    assert kept.count() == 5
    assert len(attempts) - stopped.count() == 18
    # Half an hour later the budget has room again, and the sign is still there.
    scene.tick(1801, bad)
    scene.tick(3, bad)
    assert Cordon.objects.count() == 4


def test_the_way_back_goes_through_repair_and_burn_in() -> None:
    scene = make_scene(
        4, burn_in_image="registry.example/burn-in:1", burn_in_command=["dcgmi", "diag"]
    )
    attempt = scene.run()
    scene.tick(3, XID_79)
    assert scene.node(0).health == "draining"
    end_attempt(attempt, ended_by=EndedBy.NODE_FAILURE, message="", exit_code=None, now=scene.now)
    scene.pods.clear()
    scene.tick(15, XID_79)
    assert scene.node(0).health == "draining"  # the placement still holds the node
    Placement.objects.update(released_at=scene.now)
    scene.tick(15, XID_79)
    assert scene.node(0).health == "repairing"
    assert scene.node(0).health_cause.startswith("XID 79")  # not the step's "nothing runs there"
    assert not BurnIn.objects.exists()
    Node.objects.filter(name="gpu-00000").update(boot_id="boot-0-2")
    scene.tick(15)
    assert scene.node(0).health == "burn_in"
    assert scene.node(0).health_cause.startswith("XID 79")
    assert "XID" in scene.watch(0).evidence
    burn_in = BurnIn.objects.get()
    assert (burn_in.image, burn_in.gpus, burn_in.pod_name) == (
        "registry.example/burn-in:1", 8, f"burn-in-{burn_in.pk}",
    )  # fmt: skip
    assert outs(scene) == {"gpu-00000": {"unhealthy"}}
    note_burn_in(burn_in.pk, phase="running", now=scene.now)
    scene.tick(15)
    assert scene.node(0).health == "burn_in"
    assert note_burn_in(burn_in.pk, phase="passed", now=scene.now, exit_code=0)
    assert not note_burn_in(burn_in.pk, phase="failed", now=scene.now, exit_code=1)
    scene.tick(15)
    assert (scene.node(0).health, scene.gpu(0, 3).state) == ("healthy", "healthy")
    assert not Cordon.objects.exists()
    assert scene.node(0).cordon_wanted is False
    kinds = list(
        HealthEvent.objects.filter(node="gpu-00000").order_by("pk").values_list("kind", "after")
    )
    assert kinds[0] == ("state", "unhealthy")
    assert ("return", "healthy") in kinds
    scene.tick(15)
    assert scene.node(0).health == "healthy"


def test_a_failed_burn_in_leaves_the_node_out_until_somebody_repairs_it() -> None:
    scene = make_scene(4, burn_in_image="x")
    scene.tick(3, XID_79)
    Node.objects.filter(name="gpu-00000").update(boot_id="boot-0-2")
    scene.tick(15)
    scene.tick(15)
    note_burn_in(
        BurnIn.objects.get().pk, phase="failed", now=scene.now, exit_code=3, message="GPU 3 fails"
    )
    for _ in range(3):
        scene.tick(15)
    assert scene.node(0).health == "repairing"
    assert BurnIn.objects.count() == 1
    assert Alert.objects.get(kind="burn_in_failed").numbers == {"cause": "GPU 3 fails"}
    Node.objects.filter(name="gpu-00000").update(boot_id="boot-0-3")
    scene.tick(15)
    assert BurnIn.objects.count() == 2


def test_a_reset_without_a_restart_is_seen_by_the_sign_that_is_gone() -> None:
    scene = make_scene(4, burn_in_image="x")
    scene.tick(3, {0: {3: {"xid": 95}}})
    scene.tick(15, {0: {3: {"xid": 95}}})
    assert scene.node(0).health == "repairing"
    scene.tick(15)  # the XID is 0 again
    assert scene.node(0).health == "burn_in"


def test_without_a_burn_in_the_node_returns_when_the_signs_are_gone_after_a_restart() -> None:
    scene = make_scene(4)
    scene.tick(3, XID_79)
    scene.tick(15, XID_79)
    assert scene.node(0).health == "repairing"
    Node.objects.filter(name="gpu-00000").update(boot_id="boot-0-2", gpus_allocatable=7)
    scene.tick(15)
    assert scene.node(0).health == "repairing"  # the plugin must be restarted first
    Node.objects.filter(name="gpu-00000").update(gpus_allocatable=8)
    scene.tick(15)
    assert scene.node(0).health == "healthy"


def test_a_silent_exporter_is_unknown_since_and_takes_nothing_out() -> None:
    scene = make_scene(3)
    scene.run()
    for _ in range(20):
        scene.tick(15, silent={0, 1, 2})
    assert outs(scene) == {}
    assert not Cordon.objects.exists()
    watch = scene.watch(0)
    assert watch.unknown_since == scene.now - timedelta(seconds=19 * 15)
    assert scene.gpu(0, 0).unknown_since == scene.now - timedelta(seconds=19 * 15)
    assert Alert.objects.filter(kind="exporter_down", state="open").count() == 3
    scene.tick(15)
    assert scene.watch(0).unknown_since is None
    assert scene.gpu(0, 0).unknown_since is None
    assert not Alert.objects.filter(kind="exporter_down", state="open").exists()


def test_a_gpu_that_vanishes_from_a_page_is_lost_after_a_minute() -> None:
    scene = make_scene(4)
    scene.tick(15, {0: {5: None}})
    assert scene.gpu(0, 5).state == "healthy"
    assert scene.gpu(0, 5).unknown_since == scene.now
    scene.tick(59, {0: {5: None}})
    assert scene.gpu(0, 5).state == "healthy"
    scene.tick(2, {0: {5: None}})
    assert scene.gpu(0, 5).state == "repairing"  # nothing had to leave


def test_a_suspect_gpu_makes_its_node_suspect_and_is_cleared_after_a_day() -> None:
    scene = make_scene(4)
    scene.tick(15, {0: {2: {"xid": 92}}})
    assert scene.gpu(0, 2).state == "suspect"
    assert outs(scene) == {"gpu-00000": {"suspect"}}
    scene.tick(86_399, {0: {2: {"xid": 92}}})
    assert outs(scene) == {"gpu-00000": {"suspect"}}
    scene.tick(2, {0: {2: {"xid": 92}}})
    assert outs(scene) == {}


def test_a_restarted_process_does_not_judge_old_signs_again() -> None:
    scene = make_scene(4, mode="propose")
    scene.tick(15, {0: {3: {"xid": 79, "ecc_dbe_vol": 2, "remap_pending": 1}}})
    told = HealthEvent.objects.count()
    scene.ticker = HealthTicker(scene.cluster)
    scene.tick(15, {0: {3: {"xid": 79, "ecc_dbe_vol": 2, "remap_pending": 1}}})
    news = HealthEvent.objects.order_by("pk")[told:]
    assert [event.rule for event in news if event.kind in ("state", "action", "proposal")] == []


def test_conditions_take_the_node_out_like_any_other_sign() -> None:
    scene = make_scene(4)
    Node.objects.filter(name="gpu-00001").update(
        conditions={"SysLogsXIDError": {"status": "True", "reason": "SysLogsXIDErrorIsNotHealthy",
                                        "message": "[79] fell off GPU:5", "since": ""}}
    )  # fmt: skip
    scene.tick(15)
    assert scene.gpu(1, 5).state == "repairing"
    assert scene.node(1).cordon_wanted
    assert HealthEvent.objects.get(kind="action").signal == "condition"


def test_a_driver_upgrade_closes_the_node_and_calls_nothing_unhealthy() -> None:
    scene = make_scene(2)
    labels = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
    Node.objects.filter(name="gpu-00001").update(labels=labels)
    scene.tick(15)
    assert outs(scene) == {"gpu-00001": {"unhealthy"}}
    assert (scene.node(1).health, scene.node(1).health_cause) == (
        "healthy",
        "driver upgrade: drain-required",
    )
    Node.objects.filter(name="gpu-00001").update(labels={})
    scene.tick(15)
    assert outs(scene) == {}


def test_allocatable_that_falls_without_a_known_bad_gpu_makes_suspect() -> None:
    scene = make_scene(2)
    Node.objects.filter(name="gpu-00001").update(gpus_allocatable=7)
    scene.tick(15)
    assert outs(scene) == {}
    scene.tick(120)
    assert outs(scene) == {"gpu-00001": {"suspect"}}


def test_nodes_that_appear_later_join_by_their_checklist() -> None:
    scene = make_scene(2, burn_in_image="x")
    add_nodes(scene.cluster, scene.flavor, range(2, 4))
    Node.objects.filter(name="gpu-00003").update(driver="535.1")
    scene.nodes = 4
    scene.tick(15)
    assert outs(scene) == {"gpu-00002": {"unhealthy"}, "gpu-00003": {"unhealthy"}}
    steps = {step["name"]: step["ok"] for step in scene.watch(2).checklist}
    assert steps == {
        "gpu_key": True, "gpu_count": True, "driver": True, "topology": True, "exporter": True, "burn_in": None,
    }  # fmt: skip
    wrong = {step["name"]: step for step in scene.watch(3).checklist}["driver"]
    assert (wrong["ok"], "535.1" in wrong["told"], "kubectl" in wrong["kubectl"]) == (
        False,
        True,
        True,
    )
    burn_in = BurnIn.objects.get()
    assert burn_in.node.name == "gpu-00002"
    note_burn_in(burn_in.pk, phase="passed", now=scene.now, exit_code=0)
    scene.tick(15)
    assert outs(scene) == {"gpu-00003": {"unhealthy"}}
    scene.tick(301)
    assert Alert.objects.get(kind="joining_blocked").node == "gpu-00003"


def test_clusters_without_a_burn_in_let_nodes_join_without_that_step() -> None:
    scene = make_scene(2)
    add_nodes(scene.cluster, scene.flavor, range(2, 3))
    scene.nodes = 3
    scene.tick(15)
    assert outs(scene) == {}
    assert scene.watch(2).state == "healthy"


def test_wasted_gpus_are_told_to_the_owner_and_by_queue_rule_cost_protection() -> None:
    scene = make_scene(2)
    scene.queue.on_waste = "lower"
    scene.queue.save()
    attempt = scene.run(preemptible=False, priority=900)
    idle = {0: {index: {"utilisation": 3} for index in range(8)}}
    for _ in range(31):
        scene.tick(60, idle)
    alert = Alert.objects.get(kind="gpu_waste")
    assert (alert.job, alert.tenant, alert.numbers["utilisation"]) == (
        attempt.job_id,
        scene.queue.tenant,
        3.0,
    )
    attempt.job.refresh_from_db()
    assert (attempt.job.preemptible, attempt.job.priority) == (True, 100)
    scene.queue.on_waste = "stop"
    scene.queue.save()
    scene.tick(60, idle)
    attempt.refresh_from_db()
    assert attempt.stop_cause == EndedBy.CANCELLED


def test_waste_only_tells_while_its_rule_proposes() -> None:
    scene = make_scene(1, mode="propose")
    scene.queue.on_waste = "stop"
    scene.queue.save()
    attempt = scene.run()
    for _ in range(32):
        scene.tick(60, {0: {index: {"utilisation": 3} for index in range(8)}})
    assert Alert.objects.filter(kind="gpu_waste").exists()
    attempt.refresh_from_db()
    assert attempt.stop_cause == ""


def test_a_stalled_job_is_told_and_restarted_where_it_asked_for_that() -> None:
    scene = make_scene(2)
    patient = scene.run(first_node=0, stall_timeout_seconds=600)
    eager = scene.run(first_node=1, stall_timeout_seconds=600, on_stall="restart")
    Placement.objects.update(heartbeat_at=scene.now)
    scene.tick(599)
    assert not Alert.objects.filter(kind="job_stalled").exists()
    scene.tick(2)
    assert Alert.objects.filter(kind="job_stalled").count() == 2
    patient.refresh_from_db()
    eager.refresh_from_db()
    assert (patient.stop_cause, eager.stop_cause) == ("", EndedBy.STALLED)
    assert "no heartbeat for 601 s" in eager.message


def test_a_job_whose_log_and_utilisation_stand_still_is_told_and_restarted_with_the_evidence() -> (
    None
):
    scene = make_scene(3)
    stuck = scene.run(first_node=0, stall_timeout_seconds=600, on_stall="restart", max_restarts=1)
    patient = scene.run(first_node=1, stall_timeout_seconds=600)
    working = scene.run(first_node=2, stall_timeout_seconds=600, on_stall="restart")
    began = scene.now
    for step in range(1, 44):
        scene.log_times = {
            **dict.fromkeys(stuck.placements.values_list("pk", flat=True), began),
            **dict.fromkeys(patient.placements.values_list("pk", flat=True)),
            **dict.fromkeys(working.placements.values_list("pk", flat=True), began),
        }
        moving = {2: {index: {"utilisation": 50 + 10 * (step % 3)} for index in range(8)}}
        scene.tick(15, moving)
        wanted = scene.ticker.work.logs_wanted
        if step == 10:
            assert wanted == []  # flat for less than half of what the jobs allow
        if step == 30:
            assert set(wanted) == set(
                Placement.objects.exclude(attempt=working).values_list("pk", flat=True)
            )
    assert set(Alert.objects.filter(kind="job_stalled").values_list("job", flat=True)) == {
        stuck.job_id,
        patient.job_id,
    }
    for attempt in (stuck, patient, working):
        attempt.refresh_from_db()
    assert [a.stop_cause for a in (stuck, patient, working)] == [EndedBy.STALLED, "", ""]
    assert "no log line and utilisation flat at 90 % for 6" in stuck.message
    # It begins again, from its checkpoint: one of its own restarts.
    end_attempt(stuck, ended_by=EndedBy.STALLED, message="", exit_code=None, now=scene.now)
    stuck.job.refresh_from_db()
    assert (stuck.job.phase, stuck.job.restarts_used) == ("pending", 1)


def test_a_log_that_nobody_could_read_makes_no_stall() -> None:
    scene = make_scene(1)
    attempt = scene.run(stall_timeout_seconds=600, on_stall="restart")
    for _ in range(50):
        scene.tick(15)
    attempt.refresh_from_db()
    assert attempt.stop_cause == ""
    assert not Alert.objects.filter(kind="job_stalled").exists()


def test_rules_that_are_off_find_nothing() -> None:
    scene = make_scene(2, mode="off")
    scene.tick(15, XID_79)
    assert HealthRule.objects.filter(mode="off").exists()
    assert outs(scene) == {}
    assert NodeWatch.objects.count() == 2


def test_a_fault_during_burn_in_sends_the_node_back_to_repair_whatever_the_pod_says() -> None:
    scene = make_scene(4, burn_in_image="x")
    scene.tick(3, XID_79)
    Node.objects.filter(name="gpu-00000").update(boot_id="boot-0-2")
    scene.tick(15)
    scene.tick(15)
    burn_in = BurnIn.objects.get()
    scene.tick(15, {0: {4: {"xid": 95}}})
    assert scene.node(0).health == "repairing"
    burn_in.refresh_from_db()
    assert burn_in.phase == "cancelled"
    assert not note_burn_in(burn_in.pk, phase="passed", now=scene.now, exit_code=0)


def test_a_swapped_gpu_takes_the_place_of_the_old_one() -> None:
    scene = make_scene(1)
    text = page("gpu-00000").replace("GPU-gpu-00000-5", "GPU-new")
    scene.seconds += 15
    scene.ticker.tick({"gpu-00000": text}, scene.now)
    assert set(Gpu.objects.filter(index=5).values_list("uuid", flat=True)) == {"GPU-new"}
    assert Gpu.objects.count() == 8


def test_a_sign_that_lasts_under_an_override_is_told_once() -> None:
    scene = make_scene(2)
    Gpu.objects.filter(node__name="gpu-00000", index=3).update(
        override_state="healthy", override_until=later(10_000), override_by="ines"
    )
    for _ in range(4):
        scene.tick(15, {0: {3: {"remap_failed": 1}}})
    assert HealthEvent.objects.count() == 1
    assert outs(scene) == {}
