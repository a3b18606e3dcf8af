"""A replica's pod is exactly as the contract says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.kube.manifests import (
    AttemptName,
    AttemptPods,
    NameTooLongError,
    Preset,
    Replica,
    RolePods,
    Volume,
    deadline_seconds,
    master_host,
    pod_manifest,
    pod_name,
)
from scheduler.kube.parse import parse_pod, requests_of

NAME = AttemptName("vision", "muster-vision", "job_01JX", "j0123abcd", 3)
ATTEMPT = AttemptPods(
    name=NAME,
    world_size=8,
    min_world_size=8,
    master_host=master_host(NAME, "main", 0),
    master_port=29500,
    muster_url="http://muster:8000",
    grace_seconds=30,
    deadline_seconds=deadline_seconds(86400, 30),
    shared_memory_mib=1024,
    secret_env=("MUSTER_TOKEN", "WANDB_API_KEY"),
)
ROLE = RolePods(
    role="main",
    image="registry.example/train:1",
    command=("torchrun",),
    args=("train.py", "--rank=$(RANK)"),
    device="nvidia.com/gpu",
    gpus=8,
    cpu_millis=64000,
    memory_mib=512 * 1024,
    env={"LR": "3e-4"},
)
REPLICA = Replica(number=5, rank=2, node="gpu-00017", creation=1)


def manifest(**changes: Any) -> dict[str, Any]:
    return pod_manifest(replace(ATTEMPT, **changes), ROLE, REPLICA)


def env_of(made: dict[str, Any]) -> dict[str, Any]:
    (container,) = made["spec"]["containers"]
    names = [e["name"] for e in container["env"]]
    assert len(names) == len(set(names))
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container["env"]}


def test_names_and_labels_follow_the_contract() -> None:
    made = manifest(labels={"team": "x", "muster.dev/job": "forged"})
    assert made["metadata"]["name"] == "j0123abcd-3-main-5-1"
    assert made["metadata"]["namespace"] == "muster-vision"
    assert made["metadata"]["labels"] == {
        "team": "x",
        "muster.dev/tenant": "vision",
        "muster.dev/job": "job_01JX",
        "muster.dev/attempt": "3",
        "muster.dev/role": "main",
        "muster.dev/replica": "5",
        "muster.dev/rank": "2",
        "muster.dev/try": "1",
        "muster.dev/schema": "1",
    }
    assert made["spec"]["hostname"] == "main-5"
    assert made["spec"]["subdomain"] == "j0123abcd-3"


def test_too_long_a_name_is_refused() -> None:
    assert len(pod_name(NAME, "r" * 30, 99999, 9)) <= 63
    with pytest.raises(NameTooLongError):
        pod_name(NAME, "r" * 60, 0)


def test_rendezvous_environment_counts_pods() -> None:
    env = env_of(manifest())
    assert env["MASTER_ADDR"] == "main-0.j0123abcd-3.muster-vision.svc"
    assert env["PET_MASTER_ADDR"] == env["MASTER_ADDR"]
    assert env["MASTER_PORT"] == env["PET_MASTER_PORT"] == "29500"
    assert env["WORLD_SIZE"] == env["NNODES"] == env["PET_NNODES"] == "8"
    assert env["RANK"] == env["NODE_RANK"] == env["PET_NODE_RANK"] == "2"
    assert env["NPROC_PER_NODE"] == env["PET_NPROC_PER_NODE"] == "8"
    assert env["MUSTER_JOB"] == "job_01JX"
    assert env["MUSTER_ATTEMPT"] == "3"
    assert env["MUSTER_URL"] == "http://muster:8000"
    assert env["LR"] == "3e-4"
    assert "NVIDIA_VISIBLE_DEVICES" not in env


def test_elastic_job_tells_torchrun_its_range() -> None:
    assert env_of(manifest(min_world_size=4))["PET_NNODES"] == "4:8"


def test_secrets_come_from_the_attempts_secret() -> None:
    env = env_of(manifest())
    for name in ("MUSTER_TOKEN", "WANDB_API_KEY"):
        assert env[name] == {"secretKeyRef": {"name": "j0123abcd-3", "key": name}}


def test_our_variables_win_over_the_users_and_the_users_over_the_presets() -> None:
    made = pod_manifest(
        replace(ATTEMPT, preset=Preset(env={"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "mlx5"})),
        replace(ROLE, env={"RANK": "77", "NCCL_DEBUG": "INFO"}),
        REPLICA,
    )
    env = env_of(made)
    assert env["RANK"] == "2"
    assert env["NCCL_DEBUG"] == "INFO"
    assert env["NCCL_IB_HCA"] == "mlx5"


def test_pod_without_gpus_sees_none() -> None:
    made = pod_manifest(ATTEMPT, replace(ROLE, gpus=0), REPLICA)
    assert env_of(made)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert env_of(made)["NPROC_PER_NODE"] == "1"
    assert "nvidia.com/gpu" not in made["spec"]["containers"][0]["resources"]["limits"]


def test_shared_memory_is_memory_backed() -> None:
    made = manifest()
    assert made["spec"]["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1024Mi"}
    assert made["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] == "/dev/shm"
    assert "sizeLimit" not in manifest(shared_memory_mib=None)["spec"]["volumes"][0]["emptyDir"]


def test_pod_meets_the_restricted_profile() -> None:
    spec = manifest(volumes=(Volume("data", "/data", read_only=True),), notice_file=True)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in container["securityContext"]
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        assert key not in spec
    allowed = {"emptyDir", "persistentVolumeClaim", "downwardAPI"}
    assert {k for v in spec["volumes"] for k in v if k != "name"} <= allowed


def test_pod_is_kept_from_others_hands() -> None:
    made = manifest(annotations={"sim.muster.dev/run-seconds": "5"})
    spec = made["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["schedulerName"] == spec["priorityClassName"] == "muster"
    assert spec["restartPolicy"] == "Never"
    assert made["metadata"]["annotations"] == {
        "sim.muster.dev/run-seconds": "5",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    lost = {t["key"]: t["tolerationSeconds"] for t in spec["tolerations"] if "effect" in t}
    assert lost == {
        "node.kubernetes.io/not-ready": 300,
        "node.kubernetes.io/unreachable": 300,
    }


def test_kubelets_limit_is_a_little_beyond_ours() -> None:
    assert manifest()["spec"]["activeDeadlineSeconds"] == 86400 + 30 + 7200
    assert deadline_seconds(60, 30) == 60 + 30 + 600
    assert "activeDeadlineSeconds" not in manifest(deadline_seconds=None)["spec"]


def test_preset_is_merged() -> None:
    preset = Preset(
        resources={"rdma/hca": "1"},
        capabilities=("IPC_LOCK",),
        runtime_class="nvidia",
        tolerations=({"key": "rdma", "operator": "Exists"},),
        node_selector={"pool": "ib"},
        volumes=({"name": "infiniband", "hostPath": {"path": "/dev/infiniband"}},),
        mounts=({"name": "infiniband", "mountPath": "/dev/infiniband"},),
        annotations={"k8s.v1.cni.cncf.io/networks": "ib"},
        run_as_root=True,
        run_as_user=0,
    )
    made = manifest(preset=preset)
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert container["resources"]["limits"]["rdma/hca"] == "1"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["nodeSelector"] == {"pool": "ib"}
    assert preset.tolerations[0] in spec["tolerations"]
    assert preset.volumes[0] in spec["volumes"]
    assert preset.mounts[0] in container["volumeMounts"]
    assert made["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "ib"
    assert spec["securityContext"]["runAsUser"] == 0
    assert "runAsNonRoot" not in spec["securityContext"]


def test_volumes_and_pull_secret_are_named() -> None:
    spec = manifest(volumes=(Volume("data", "/data", read_only=True),), image_pull_secret="r")[
        "spec"
    ]
    claim = {"claimName": "data", "readOnly": True}
    assert {"name": "claim-0", "persistentVolumeClaim": claim} in spec["volumes"]
    mount = {"name": "claim-0", "mountPath": "/data", "readOnly": True}
    assert mount in spec["containers"][0]["volumeMounts"]
    assert spec["imagePullSecrets"] == [{"name": "r"}]


def test_notice_file_shows_the_annotation() -> None:
    spec = manifest(notice_file=True)["spec"]
    (volume,) = [v for v in spec["volumes"] if v["name"] == "notice"]
    (item,) = volume["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['muster.dev/notice']"
    assert any(m["mountPath"] == "/muster" for m in spec["containers"][0]["volumeMounts"])


def test_default_scheduler_gets_the_exact_node() -> None:
    spec = manifest(default_scheduler=True)["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == ["gpu-00017"]
    assert "nodeName" not in spec


def test_requests_equal_limits_and_are_read_back() -> None:
    made = manifest()
    resources = made["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"]
    asked = requests_of(made["spec"])
    assert asked.devices == {"nvidia.com/gpu": 8}
    assert (asked.cpu_millis, asked.memory_mib) == (64000, 512 * 1024)
    made["metadata"]["uid"] = "u"
    assert parse_pod(made).ours


def test_page_for_people_names_every_variable_and_label() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()
    without_gpus = pod_manifest(ATTEMPT, replace(ROLE, gpus=0), REPLICA)
    names = {*env_of(manifest()), *env_of(without_gpus)} - {"LR", "WANDB_API_KEY"}
    assert not {name for name in names if f"`{name}`" not in page}
    labels = {name.split("/")[1] for name in manifest()["metadata"]["labels"]} - {"schema"}
    assert not {name for name in labels if f"`{name}`" not in page and f"/{name}`" not in page}
