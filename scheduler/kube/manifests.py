"""A replica's pod as a Kubernetes manifest; pure. Called by scheduler.reconcile to create pods,
and by the simulate door to show what would be created.

Names, labels and hardening are a contract (docs/kubernetes.md); the environment is in
`environment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.kube.environment import EnvValue, PodEnvironment, environment_of
from scheduler.kube.seen import OUR_PREFIX

LONGEST_NAME = 63
SCHEDULER = "muster"
PRIORITY_CLASS = "muster"
CONTAINER = "main"
TOLERATED_SECONDS = 300
NOTICE_ANNOTATION = f"{OUR_PREFIX}notice"
# When the attempt was planned that a pod was made for: tells two attempts of one number apart.
PLACED_ANNOTATION = f"{OUR_PREFIX}placed-at"
Json = dict[str, Any]


class NameTooLongError(ValueError):
    """A name that Kubernetes would refuse; validation of role names prevents it."""


@dataclass(frozen=True, slots=True)
class AttemptName:
    """Which attempt: the parts that its names and labels are made of."""

    tenant: str
    namespace: str
    job: str
    job8: str
    number: int

    @property
    def service(self) -> str:
        """The name of its headless Service and of its Secret."""
        return f"{self.job8}-{self.number}"


@dataclass(frozen=True, slots=True)
class Volume:
    """A claim of the tenant's namespace, mounted."""

    claim: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Preset:
    """What a platform admin adds to pods: raw pieces of a pod, written by no one else.

    `resources` are extra limits (`rdma/hca` → "1"); `capabilities` are added to the dropped set;
    `volumes` and `mounts` are Kubernetes objects as they stand; `run_as_user` sets the uid.
    """

    resources: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    runtime_class: str | None = None
    tolerations: tuple[Json, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Json, ...] = ()
    mounts: tuple[Json, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    run_as_user: int | None = None
    run_as_root: bool = False
    host_network: bool = False


@dataclass(frozen=True, slots=True)
class RolePods:
    """What all replicas of a role have in common. `device` is the resource name of its GPUs.

    Amounts: whole GPUs, thousandths of a core, MiB; 0 CPU or memory leaves the amount out.
    """

    role: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    device: str
    gpus: int
    cpu_millis: int
    memory_mib: int
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptPods:
    """What all pods of an attempt have in common.

    `secret_env` names the variables whose values are keys of the attempt's Secret (MUSTER_TOKEN
    among them). `deadline_seconds` is the kubelet's own limit, None for a job without one.
    `default_scheduler` hands binding to it, with exact node affinity (see `claims`).
    """

    name: AttemptName
    world_size: int
    min_world_size: int
    master_host: str
    master_port: int
    muster_url: str
    grace_seconds: int
    deadline_seconds: int | None = None
    shared_memory_mib: int | None = None
    secret_env: tuple[str, ...] = ()
    image_pull_secret: str | None = None
    volumes: tuple[Volume, ...] = ()
    preset: Preset = field(default_factory=Preset)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    notice_file: bool = False
    default_scheduler: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod: its place in its role, its rank over all, the node it is meant for.

    `creation` counts pods re-created inside the attempt (the `<try>` of the name), from 0.
    """

    number: int
    rank: int
    node: str
    creation: int = 0


def pod_name(attempt: AttemptName, role: str, replica: int, creation: int = 0) -> str:
    """`<job8>-<attempt>-<role>-<replica>-<try>`, at most 63 characters."""
    name = f"{attempt.job8}-{attempt.number}-{role}-{replica}-{creation}"
    if len(name) > LONGEST_NAME:
        raise NameTooLongError(name)
    return name


def host_name(role: str, replica: int) -> str:
    """The name of a replica under its attempt's headless Service."""
    return f"{role}-{replica}"


def master_host(attempt: AttemptName, role: str, replica: int) -> str:
    """The DNS name of the replica with rank 0, as every pod of the cluster resolves it."""
    return f"{host_name(role, replica)}.{attempt.service}.{attempt.namespace}.svc"


def deadline_seconds(max_runtime_seconds: int, grace_seconds: int) -> int:
    """`activeDeadlineSeconds`: our own limit comes first, with notice; this is for when we are down.

    The kubelet counts from its first sight of the pod, image pull included, so a short allowance
    would end a job early: a quarter of the limit, ten minutes at least, two hours at most.
    """
    allowance = min(7200, max(600, max_runtime_seconds // 4))
    return max_runtime_seconds + grace_seconds + allowance


def pod_manifest(attempt: AttemptPods, role: RolePods, replica: Replica) -> Json:
    """The pod to create, complete."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(attempt.name, role.role, replica.number, replica.creation),
            "namespace": attempt.name.namespace,
            "labels": {
                **attempt.labels,
                **attempt.preset.labels,
                **identity_labels(attempt.name, role.role, replica),
            },
            "annotations": _annotations(attempt),
        },
        "spec": _spec(attempt, role, replica),
    }


def identity_labels(attempt: AttemptName, role: str, replica: Replica) -> dict[str, str]:
    """The labels that say whose pod it is; users' labels never override them."""
    values = {
        "tenant": attempt.tenant,
        "job": attempt.job,
        "attempt": str(attempt.number),
        "role": role,
        "replica": str(replica.number),
        "rank": str(replica.rank),
        "try": str(replica.creation),
        "schema": "1",
    }
    return {f"{OUR_PREFIX}{name}": value for name, value in values.items()}


def _annotations(attempt: AttemptPods) -> dict[str, str]:
    return {
        **attempt.annotations,
        **attempt.preset.annotations,
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        # An empty file: nothing is ahead.
        **({NOTICE_ANNOTATION: ""} if attempt.notice_file else {}),
    }


def _spec(attempt: AttemptPods, role: RolePods, replica: Replica) -> Json:
    preset = attempt.preset
    spec: Json = {
        "schedulerName": "default-scheduler" if attempt.default_scheduler else SCHEDULER,
        "priorityClassName": PRIORITY_CLASS,
        "restartPolicy": "Never",
        "hostname": host_name(role.role, replica.number),
        "subdomain": attempt.name.service,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": attempt.grace_seconds,
        "tolerations": _tolerations(role, preset),
        "securityContext": pod_security(preset),
        "containers": [_container(attempt, role, replica)],
        "volumes": _volumes(attempt),
    }
    optional = {
        "activeDeadlineSeconds": attempt.deadline_seconds,
        "runtimeClassName": preset.runtime_class,
        "nodeSelector": dict(preset.node_selector) or None,
        "hostNetwork": preset.host_network or None,
        "dnsPolicy": "ClusterFirstWithHostNet" if preset.host_network else None,
        "imagePullSecrets": _pull_secrets(attempt),
        "affinity": _exactly(replica.node) if attempt.default_scheduler else None,
    }
    return {**spec, **{k: v for k, v in optional.items() if v is not None}}


def _container(attempt: AttemptPods, role: RolePods, replica: Replica) -> Json:
    container: Json = {
        "name": CONTAINER,
        "image": role.image,
        "env": environment_of(_pod_environment(attempt, role, replica)),
        "resources": _resources(role, attempt.preset),
        "securityContext": container_security(attempt.preset),
        "volumeMounts": _mounts(attempt),
        # The end of the log stands in for a message that the program did not write.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    optional = {
        "command": list(role.command) or None,
        "args": list(role.args) or None,
        "workingDir": role.working_dir or None,
    }
    return {**container, **{k: v for k, v in optional.items() if v is not None}}


def _pod_environment(attempt: AttemptPods, role: RolePods, replica: Replica) -> PodEnvironment:
    secrets = {name: EnvValue(secret=attempt.name.service, key=name) for name in attempt.secret_env}
    return PodEnvironment(
        job=attempt.name.job,
        attempt=attempt.name.number,
        url=attempt.muster_url,
        rank=replica.rank,
        world_size=attempt.world_size,
        min_world_size=attempt.min_world_size,
        gpus=role.gpus,
        master_host=attempt.master_host,
        master_port=attempt.master_port,
        preset=attempt.preset.env,
        user=role.env,
        secrets=secrets,
    )


def _resources(role: RolePods, preset: Preset) -> Json:
    amounts = dict(preset.resources)
    if role.cpu_millis:
        amounts["cpu"] = f"{role.cpu_millis}m"
    if role.memory_mib:
        amounts["memory"] = f"{role.memory_mib}Mi"
    if role.gpus:
        amounts[role.device] = str(role.gpus)
    # Requests equal limits: quality of service Guaranteed, so that the kubelet's CPU and
    # topology managers may give cores and GPUs of one socket.
    return {"limits": amounts, "requests": dict(amounts)}


def pod_security(preset: Preset) -> Json:
    """The pod's security context: the restricted profile, unless the preset says more."""
    context: Json = {"seccompProfile": {"type": "RuntimeDefault"}}
    if not preset.run_as_root:
        context["runAsNonRoot"] = True
    if preset.run_as_user is not None:
        context["runAsUser"] = preset.run_as_user
    return context


def container_security(preset: Preset) -> Json:
    """The container's security context: no capabilities but the preset's."""
    capabilities: Json = {"drop": ["ALL"]}
    if preset.capabilities:
        capabilities["add"] = list(preset.capabilities)
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def _tolerations(role: RolePods, preset: Preset) -> list[Json]:
    lost = [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": TOLERATED_SECONDS,
        }
        for condition in ("not-ready", "unreachable")
    ]
    # GPU nodes are commonly tainted with their resource's name to keep others off.
    reserved = [{"key": role.device, "operator": "Exists"}] if role.gpus else []
    return [*lost, *reserved, *preset.tolerations]


def _volumes(attempt: AttemptPods) -> list[Json]:
    memory: Json = {"medium": "Memory"}
    if attempt.shared_memory_mib:
        memory["sizeLimit"] = f"{attempt.shared_memory_mib}Mi"
    volumes: list[Json] = [{"name": "shared-memory", "emptyDir": memory}]
    if attempt.notice_file:
        volumes.append({"name": "notice", "downwardAPI": {"items": [_notice_item()]}})
    volumes.extend(
        {
            "name": f"claim-{index}",
            "persistentVolumeClaim": {"claimName": v.claim, "readOnly": v.read_only},
        }
        for index, v in enumerate(attempt.volumes)
    )
    return [*volumes, *attempt.preset.volumes]


def _notice_item() -> Json:
    # The kubelet renews the file when the annotation changes: a notice needs no channel of ours.
    return {
        "path": "notice",
        "fieldRef": {"fieldPath": f"metadata.annotations['{NOTICE_ANNOTATION}']"},
    }


def _mounts(attempt: AttemptPods) -> list[Json]:
    mounts: list[Json] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    if attempt.notice_file:
        mounts.append({"name": "notice", "mountPath": "/muster", "readOnly": True})
    mounts.extend(
        {"name": f"claim-{index}", "mountPath": v.mount_path, "readOnly": v.read_only}
        for index, v in enumerate(attempt.volumes)
    )
    return [*mounts, *attempt.preset.mounts]


def _pull_secrets(attempt: AttemptPods) -> list[Json] | None:
    return [{"name": attempt.image_pull_secret}] if attempt.image_pull_secret else None


def _exactly(node: str) -> Json:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
