"""Every way in which a pod ends, and the marks that a real kubelet leaves."""

import pytest

from tests.simcluster.direct import PODS, Direct, condition, ended, pod

NODE = "gpu-00001"


def test_succeeded_pod_has_completed_container_and_conditions(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="10")
    api.cluster.advance(12)
    body = api.pod("a")
    status = body["status"]
    assert status["phase"] == "Succeeded"
    assert "reason" not in status
    state = ended(body)
    assert (state["exitCode"], state["reason"]) == (0, "Completed")
    assert state["startedAt"] < state["finishedAt"]
    assert state["containerID"].startswith("containerd://")
    assert condition(body, "Ready") == {
        "type": "Ready", "status": "False", "lastProbeTime": None, "reason": "PodCompleted",
        "lastTransitionTime": state["finishedAt"],
    }  # fmt: skip
    assert condition(body, "Initialized")["reason"] == "PodCompleted"  # type: ignore[index]
    assert condition(body, "ContainersReady")["reason"] == "PodCompleted"  # type: ignore[index]
    assert condition(body, "PodReadyToStartContainers")["status"] == "False"  # type: ignore[index]
    assert condition(body, "PodScheduled")["status"] == "True"  # type: ignore[index]
    assert status["containerStatuses"][0]["ready"] is False
    assert status["containerStatuses"][0]["started"] is False


def test_running_pod_is_ready_and_has_addresses_and_times(api: Direct) -> None:
    api.run_pod("a", NODE)
    api.cluster.advance(1.1)
    status = api.pod("a")["status"]
    assert status["phase"] == "Running"
    assert status["startTime"]
    assert status["podIP"] == status["podIPs"][0]["ip"]
    assert status["hostIP"] == "10.20.0.2"
    assert {c["type"]: c["status"] for c in status["conditions"]} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"),
        "True",
    )
    assert api.events("a") == ["Pulling", "Pulled", "Created", "Started"]


def test_failed_pod_keeps_exit_code_and_failed_conditions(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="5", exit_code="3")
    api.cluster.advance(8)
    body = api.pod("a")
    assert body["status"]["phase"] == "Failed"
    assert (ended(body)["exitCode"], ended(body)["reason"]) == (3, "Error")
    assert condition(body, "Ready")["reason"] == "PodFailed"  # type: ignore[index]


def test_oom_killed_pod_ends_with_137_and_its_reason(api: Direct) -> None:
    api.run_pod("a", NODE, fault="oom", fault_after_seconds="2")
    api.cluster.advance(5)
    body = api.pod("a")
    assert body["status"]["phase"] == "Failed"
    assert (ended(body)["exitCode"], ended(body)["reason"]) == (137, "OOMKilled")


def test_pull_error_waits_with_backoff_and_never_starts(api: Direct) -> None:
    api.run_pod("a", NODE, fault="image-pull", pull_seconds="0.5")
    api.cluster.advance(0.6)
    first = api.pod("a")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert first["reason"] == "ErrImagePull"
    assert "not found" in first["message"]
    api.cluster.advance(3)
    status = api.pod("a")["status"]
    assert status["phase"] == "Pending"
    waiting = status["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "ImagePullBackOff"
    assert waiting["message"].startswith(
        'Back-off pulling image "registry.example/train:1": ErrImagePull: rpc error: code = NotFound'
    )
    assert condition({"status": status}, "Ready")["reason"] == "ContainersNotReady"  # type: ignore[index]
    assert "BackOff" in api.events("a")


def test_pull_error_of_a_node_heals_when_the_registry_is_back(api: Direct) -> None:
    fault = api.cluster.faults.begin("pull_fails", {"node": NODE}, seconds=15)
    api.run_pod("a", NODE)
    api.cluster.advance(5)
    assert fault.id in api.cluster.faults.active
    assert api.pod("a")["status"]["phase"] == "Pending"
    api.cluster.advance(30)
    assert api.pod("a")["status"]["phase"] == "Running"


def test_pull_that_fails_twice_works_the_third_time(api: Direct) -> None:
    api.run_pod("a", NODE, pull_error="429 Too Many Requests", pull_failures="2")
    api.cluster.advance(20)
    assert api.pod("a")["status"]["phase"] == "Pending"
    api.cluster.advance(20)
    assert api.pod("a")["status"]["phase"] == "Running"


def test_private_image_needs_a_pull_secret_that_exists(api: Direct) -> None:
    container = {"name": "main", "image": "private.example/train:1"}
    secrets = [{"name": "regcred"}]
    api.run_pod("a", NODE, spec={"containers": [container], "imagePullSecrets": secrets})
    api.cluster.advance(2)
    waiting = api.pod("a")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert "401 Unauthorized" in waiting["message"]
    assert "FailedToRetrieveImagePullSecret" in api.events("a")
    secret = {"metadata": {"name": "regcred"}, "stringData": {".dockerconfigjson": "{}"}}
    api.ok("POST", "/api/v1/namespaces/default/secrets", secret)
    api.cluster.advance(15)
    assert api.pod("a")["status"]["phase"] == "Running"


def test_init_containers_run_first_and_hold_the_others_back(api: Direct) -> None:
    inits = [{"name": "one", "image": "i:1"}, {"name": "two", "image": "i:2"}]
    api.run_pod("a", NODE, spec={"initContainers": inits}, init_seconds="10", pull_seconds="0.5")
    api.cluster.advance(5)
    body = api.pod("a")
    assert body["status"]["phase"] == "Pending"
    assert condition(body, "Initialized")["message"] == (  # type: ignore[index]
        "containers with incomplete status: [one two]"
    )
    assert "running" in body["status"]["initContainerStatuses"][0]["state"]
    api.cluster.advance(20)
    body = api.pod("a")
    assert body["status"]["phase"] == "Running"
    assert condition(body, "Initialized")["status"] == "True"  # type: ignore[index]
    codes = [s["state"]["terminated"]["exitCode"] for s in body["status"]["initContainerStatuses"]]
    assert codes == [0, 0]


def test_hanging_pod_prints_nothing_more_and_never_ends(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="60", fault="hang", fault_after_seconds="20")
    api.cluster.advance(300)
    assert api.pod("a")["status"]["phase"] == "Running"
    output = api.cluster.fleet.kubelets[NODE].by_key[("default", "a")].containers[0].output
    assert output is not None
    now = api.cluster.clock.now()
    assert 0 < output.planned_until(now) < 20
    api.ok("DELETE", f"{PODS}/a")
    api.cluster.advance(2)
    assert api.gone("a")


def test_invalid_image_name_is_told_at_once(api: Direct) -> None:
    api.run_pod("a", NODE, fault="image-name")
    api.cluster.advance(1)
    state = api.pod("a")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert state["reason"] == "InvalidImageName"


def test_missing_secret_is_a_config_error_until_it_exists(api: Direct) -> None:
    reference = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}}
    container = {"name": "main", "image": "i:1", "env": [reference]}
    api.run_pod("a", NODE, spec={"containers": [container]})
    api.cluster.advance(2)
    state = api.pod("a")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert state == {"reason": "CreateContainerConfigError", "message": 'secret "wandb" not found'}
    api.ok(
        "POST",
        "/api/v1/namespaces/default/secrets",
        {"metadata": {"name": "wandb"}, "data": {"key": "eA=="}},
    )
    api.cluster.advance(6)
    assert api.pod("a")["status"]["phase"] == "Running"


def test_missing_volume_keeps_the_container_creating(api: Direct) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    api.run_pod("a", NODE, spec={"volumes": [volume]})
    api.cluster.advance(2)
    state = api.pod("a")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert state["reason"] == "ContainerCreating"
    assert "FailedMount" in api.events("a")


def test_command_that_is_not_there_is_a_start_error(api: Direct) -> None:
    api.run_pod("a", NODE, fault="run")
    api.cluster.advance(2)
    body = api.pod("a")
    assert body["status"]["phase"] == "Failed"
    assert (ended(body)["exitCode"], ended(body)["reason"]) == (128, "StartError")
    assert "executable file not found" in ended(body)["message"]


def test_refused_pod_fails_with_reason_and_without_containers(api: Direct) -> None:
    api.run_pod("a", NODE)
    api.cluster.advance(2)
    api.run_pod("b", NODE, gpus=1)
    api.cluster.advance(2)
    status = api.pod("b")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfnvidia.com/gpu")
    assert status["message"] == (
        "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 1, "
        "used: 8, capacity: 8"
    )
    assert "containerStatuses" not in status
    assert status["startTime"]


@pytest.mark.parametrize(
    ("resources", "reason"),
    [({"cpu": "400"}, "OutOfcpu"), ({"memory": "4Ti"}, "OutOfmemory")],
)
def test_pod_that_is_too_large_is_out_of_that_resource(
    api: Direct, resources: dict[str, str], reason: str
) -> None:
    container = {"name": "main", "image": "i:1", "resources": {"requests": resources}}
    api.run_pod("a", NODE, spec={"containers": [container]})
    api.cluster.advance(1)
    assert api.pod("a")["status"]["reason"] == reason


def test_unhealthy_gpu_makes_an_admission_error(api: Direct) -> None:
    machine = api.cluster.fleet.kubelets[NODE].machine
    machine.gpus[0].healthy = False  # the node's status does not say so yet
    api.run_pod("a", NODE)
    api.cluster.advance(1)
    status = api.pod("a")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "Requested: 8, Available: 7" in status["message"]


def test_node_without_the_resource_key_admits_a_pod_without_gpus(api: Direct) -> None:
    api.cluster.faults.begin("plugin_missing", {"node": NODE})
    assert "nvidia.com/gpu" not in api.node(NODE)["status"]["allocatable"]
    api.run_pod("a", NODE)
    api.cluster.advance(2)
    assert api.pod("a")["status"]["phase"] == "Running"
    assert list(api.cluster.fleet.kubelets[NODE].machine.held.values()) == [[]]


def test_wrong_node_affinity_is_refused(api: Direct) -> None:
    api.run_pod("a", NODE, spec={"nodeSelector": {"kubernetes.io/hostname": "gpu-00000"}})
    api.cluster.advance(1)
    assert api.pod("a")["status"]["reason"] == "NodeAffinity"


def test_evicted_pod_fails_and_says_who_did_it(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="forever")
    api.cluster.advance(2)
    api.cluster.faults.begin("pod_evicted", {"namespace": "default", "pod": "a"})
    api.cluster.advance(1)
    body = api.pod("a")
    assert (body["status"]["phase"], body["status"]["reason"]) == ("Failed", "Evicted")
    assert "low on resource: memory" in body["status"]["message"]
    assert condition(body, "DisruptionTarget")["reason"] == "TerminationByKubelet"  # type: ignore[index]
    assert ended(body)["exitCode"] == 137


def test_deadline_fails_the_pod(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="forever", spec={"activeDeadlineSeconds": 20})
    api.cluster.advance(25)
    body = api.pod("a")
    assert (body["status"]["phase"], body["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert ended(body)["exitCode"] == 143


def test_deleted_in_grace_stops_on_sigterm_and_goes(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="forever", sigterm_seconds="4")
    api.cluster.advance(2)
    going = api.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 10})
    assert going["metadata"]["deletionGracePeriodSeconds"] == 10
    assert going["status"]["phase"] == "Running"
    seen = []
    api.cluster.world.store.journal = lambda change: seen.append(change)
    api.cluster.advance(3.9)
    assert api.pod("a")["status"]["phase"] == "Running"
    api.cluster.advance(1)
    assert api.gone("a")
    last = next(
        c.now.body for c in reversed(seen) if c.now.key == ("default", "a") and c.type == "MODIFIED"
    )
    assert last["status"]["phase"] == "Failed"
    assert ended(last)["exitCode"] == 143
    assert "Killing" in api.events("a")


def test_deleted_after_grace_is_killed(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="forever", on_sigterm="ignore")
    api.cluster.advance(2)
    seen = []
    api.cluster.world.store.journal = lambda change: seen.append(change)
    api.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 5})
    api.cluster.advance(4.9)
    assert not api.gone("a")
    api.cluster.advance(0.5)
    assert api.gone("a")
    last = next(
        c.now.body for c in reversed(seen) if c.now.key == ("default", "a") and c.type == "MODIFIED"
    )
    assert (ended(last)["exitCode"], ended(last)["reason"]) == (137, "Error")


def test_checkpoint_on_sigterm_ends_well_and_says_so_in_the_log(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="1000", on_sigterm="checkpoint", sigterm_seconds="3")
    api.cluster.advance(100)
    seen = []
    api.cluster.world.store.journal = lambda change: seen.append(change)
    api.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 60})
    run = next(iter(api.cluster.fleet.kubelets[NODE].runs.values()))
    api.cluster.advance(5)
    assert api.gone("a")
    last = next(
        c.now.body for c in reversed(seen) if c.now.key == ("default", "a") and c.type == "MODIFIED"
    )
    assert last["status"]["phase"] == "Succeeded"
    output = run.containers[0].output
    assert output is not None
    assert [text.partition(" ")[2] for _, text in output.extra] == [
        "received SIGTERM, 60s to stop",
        "checkpoint saved step=10",
    ]


def test_pod_deleted_before_it_starts_goes_at_once(api: Direct) -> None:
    api.run_pod("a", NODE, pull_seconds="500")
    api.cluster.advance(2)
    api.ok("DELETE", f"{PODS}/a")
    api.cluster.advance(1)
    assert api.gone("a")
    assert api.cluster.fleet.kubelets[NODE].used["nvidia.com/gpu"] == 0


def test_forced_delete_frees_the_node(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="forever")
    api.cluster.advance(2)
    api.ok("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0})
    assert api.gone("a")
    api.cluster.advance(1)
    api.run_pod("b", NODE)
    api.cluster.advance(2)
    assert api.pod("b")["status"]["phase"] == "Running"


def test_finished_pod_is_deleted_without_grace(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="1")
    api.cluster.advance(4)
    api.ok("DELETE", f"{PODS}/a")
    assert api.gone("a")


def test_lost_node_leaves_its_pods_terminating_until_it_is_back(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="forever")
    api.cluster.advance(2)
    fault = api.cluster.faults.begin("node_gone", {"node": NODE})
    api.cluster.advance(50)
    node = api.node(NODE)
    assert condition(node, "Ready")["status"] == "Unknown"  # type: ignore[index]
    assert condition(node, "Ready")["reason"] == "NodeStatusUnknown"  # type: ignore[index]
    keys = {(t["key"], t["effect"]) for t in node["spec"]["taints"]}
    assert ("node.kubernetes.io/unreachable", "NoExecute") in keys
    assert condition(api.pod("a"), "Ready")["status"] == "False"  # type: ignore[index]
    assert api.pod("a")["status"]["phase"] == "Running"
    api.cluster.advance(310)
    body = api.pod("a")
    assert "deletionTimestamp" in body["metadata"]
    assert condition(body, "DisruptionTarget")["reason"] == "DeletionByTaintManager"  # type: ignore[index]
    api.cluster.advance(600)
    assert not api.gone("a")
    boot_id = node["status"]["nodeInfo"]["bootID"]
    api.cluster.faults.end(fault.id)
    api.cluster.advance(5)
    assert api.gone("a")
    back = api.node(NODE)
    assert condition(back, "Ready")["status"] == "True"  # type: ignore[index]
    assert back["status"]["nodeInfo"]["bootID"] != boot_id
    assert "taints" not in back["spec"]


def test_rebooted_node_finds_its_containers_dead(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="forever")
    api.cluster.advance(2)
    api.cluster.faults.begin("node_reboot", {"node": NODE, "down_seconds": 30})
    api.cluster.advance(35)
    body = api.pod("a")
    assert body["status"]["phase"] == "Failed"
    assert (ended(body)["exitCode"], ended(body)["reason"]) == (255, "Unknown")
    assert "Rebooted" in api.events(NODE)


def test_pods_of_a_deleted_node_are_collected(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="forever")
    api.cluster.advance(2)
    seen = []
    api.cluster.faults.begin("node_deleted", {"node": NODE})
    api.cluster.world.store.journal = lambda change: seen.append(change)
    assert api.call("GET", f"/api/v1/nodes/{NODE}").status == 404
    api.cluster.advance(30)
    assert not api.gone("a")
    api.cluster.advance(60)
    assert api.gone("a")
    last = next(
        c.now.body for c in reversed(seen) if c.now.key == ("default", "a") and c.type == "MODIFIED"
    )
    assert last["status"]["phase"] == "Failed"
    assert condition(last, "DisruptionTarget")["reason"] == "DeletionByPodGC"  # type: ignore[index]


def test_silent_node_reports_what_happened_when_it_is_back(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="20")
    api.cluster.advance(2)
    fault = api.cluster.faults.begin("node_silent", {"node": NODE})
    api.cluster.advance(60)
    assert api.pod("a")["status"]["phase"] == "Running"
    api.cluster.faults.end(fault.id)
    api.cluster.advance(1)
    assert api.pod("a")["status"]["phase"] == "Succeeded"


def test_restart_policy_always_restarts_with_growing_backoff(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="1", exit_code="1", spec={"restartPolicy": "Always"})
    api.cluster.advance(6)
    status = api.pod("a")["status"]
    assert status["phase"] == "Running"
    item = status["containerStatuses"][0]
    assert item["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert item["lastState"]["terminated"]["exitCode"] == 1
    restarts = item["restartCount"]
    api.cluster.advance(120)
    assert api.pod("a")["status"]["containerStatuses"][0]["restartCount"] > restarts


def test_restart_policy_on_failure_ends_with_success(api: Direct) -> None:
    api.run_pod("a", NODE, run_seconds="1", spec={"restartPolicy": "OnFailure"})
    api.cluster.advance(5)
    assert api.pod("a")["status"]["phase"] == "Succeeded"


def test_default_run_time_is_a_minute(api: Direct) -> None:
    api.ok("POST", PODS, pod("a"))
    api.bind("a", NODE)
    api.cluster.advance(58)
    assert api.pod("a")["status"]["phase"] == "Running"
    api.cluster.advance(5)
    assert api.pod("a")["status"]["phase"] == "Succeeded"
