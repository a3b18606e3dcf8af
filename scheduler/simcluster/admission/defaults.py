"""Values that the API server fills in: what a stored object has though nobody sent it."""

import base64
from collections.abc import Callable
from typing import Any

from scheduler.simcluster.admission.custom import fill_definition
from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
TOLERATED_SECONDS = 300


def fill_pod(body: Json) -> None:
    """Defaults of a pod's spec, in place."""
    spec = body.setdefault("spec", {})
    for container in spec.get("containers") or []:
        _fill_container(container)
    for container in spec.get("initContainers") or []:
        _fill_container(container)
    for volume in spec.get("volumes") or []:
        _fill_volume(volume)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)


def _fill_container(container: Json) -> None:
    resources = container.setdefault("resources", {})
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        image = container.get("image", "")
        tag = image.rpartition("/")[2].partition(":")[2]
        latest = "@" not in image and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or []:
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            _fill_probe(probe)


def _fill_probe(probe: Json) -> None:
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1),
                        ("failureThreshold", 3)):  # fmt: skip
        probe.setdefault(name, value)


def _fill_volume(volume: Json) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "projected", "downwardAPI"):
        source = volume.get(kind)
        if source is not None:
            source.setdefault("defaultMode", 420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")


def default_tolerations(spec: Json) -> None:
    """The DefaultTolerationSeconds plugin: 300 s on a node that is not ready or unreachable."""
    tolerations: list[Json] = list(spec.get("tolerations") or [])
    for key in (NOT_READY, UNREACHABLE):
        if not any(_tolerates_eviction(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute",
                 "tolerationSeconds": TOLERATED_SECONDS}
            )  # fmt: skip
    spec["tolerations"] = tolerations


def _tolerates_eviction(toleration: Json, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (
        None, "", "NoExecute",
    )  # fmt: skip


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, from CPU and memory of all containers."""
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    guaranteed, any_set = True, False
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            any_set = any_set or name in limits or name in requests
            if name not in limits or requests.get(name) != limits[name]:
                guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _fill_node(body: Json) -> None:
    body.setdefault("spec", {})
    status = body.setdefault("status", {})
    shape_node_status(status)
    capacity = status.get("capacity")
    if capacity and "allocatable" not in status:
        status["allocatable"] = dict(capacity)
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    names = (
        "machineID", "systemUUID", "bootID", "kernelVersion", "osImage",
        "containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion", "operatingSystem",
        "architecture",
    )  # fmt: skip
    info = status.setdefault("nodeInfo", {})
    for name in names:
        info.setdefault(name, "")


def _fill_namespace(body: Json) -> None:
    metadata = body["metadata"]
    labels = dict(metadata.get("labels") or {})
    labels["kubernetes.io/metadata.name"] = metadata["name"]
    metadata["labels"] = labels
    body.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    body["status"] = {"phase": "Active"}


def _fill_service(body: Json) -> None:
    spec = body.setdefault("spec", {})
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] != "ExternalName":
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    body["status"] = {"loadBalancer": {}}


def _fill_limit_range(body: Json) -> None:
    for item in (body.get("spec") or {}).get("limits") or []:
        if item.get("type") != "Container":
            continue
        maximum, minimum = item.get("max") or {}, item.get("min") or {}
        default, request = item.setdefault("default", {}), item.setdefault("defaultRequest", {})
        for name, amount in maximum.items():
            default.setdefault(name, amount)
        for name, amount in default.items():
            request.setdefault(name, amount)
        for name, amount in minimum.items():
            request.setdefault(name, amount)


def _fill_budget(body: Json) -> None:
    body["status"] = {
        "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
    }  # fmt: skip


def _fill_event(body: Json) -> None:
    body.setdefault("source", {})
    body.setdefault("eventTime", None)
    body.setdefault("reportingComponent", "")
    body.setdefault("reportingInstance", "")


def _fill_secret(body: Json) -> None:
    body.setdefault("type", "Opaque")
    plain = body.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        body["data"] = {**(body.get("data") or {}), **encoded}


def _fill_priority_class(body: Json) -> None:
    body.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _fill_claim(body: Json) -> None:
    body.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    body["status"] = {"phase": "Pending"}


def _fill_volume_object(body: Json) -> None:
    spec = body.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    body["status"] = {"phase": "Pending"}


def _fill_storage_class(body: Json) -> None:
    body.setdefault("reclaimPolicy", "Delete")
    body.setdefault("volumeBindingMode", "Immediate")


def _fill_quota(body: Json) -> None:
    body.setdefault("spec", {})
    body["status"] = {}


def _fill_binding(body: Json) -> None:
    group = "rbac.authorization.k8s.io"
    body.setdefault("roleRef", {}).setdefault("apiGroup", group)
    for subject in body.get("subjects") or []:
        subject.setdefault("apiGroup", "" if subject.get("kind") == "ServiceAccount" else group)
        if not subject["apiGroup"]:
            del subject["apiGroup"]


_BY_KIND: dict[str, Callable[[Json], None]] = {
    "Pod": fill_pod,
    "Node": _fill_node,
    "Namespace": _fill_namespace,
    "Service": _fill_service,
    "LimitRange": _fill_limit_range,
    "PodDisruptionBudget": _fill_budget,
    "Event": _fill_event,
    "Secret": _fill_secret,
    "PriorityClass": _fill_priority_class,
    "PersistentVolumeClaim": _fill_claim,
    "PersistentVolume": _fill_volume_object,
    "StorageClass": _fill_storage_class,
    "ResourceQuota": _fill_quota,
    "RoleBinding": _fill_binding,
    "ClusterRoleBinding": _fill_binding,
    "CustomResourceDefinition": fill_definition,
}


def fill(body: Json, resource: ResourceType) -> None:
    """Fills in the defaults of a new object of a built-in kind, in place."""
    filler = _BY_KIND.get(resource.kind)
    if filler is not None and not resource.custom:
        filler(body)


def shape_pod_status(status: Json) -> None:
    """Fields that Go writes even when empty, in a pod status that a client has sent, in place."""
    for condition in status.get("conditions") or []:
        condition.setdefault("type", "")
        condition.setdefault("status", "")
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    for part in ("containerStatuses", "initContainerStatuses"):
        for item in status.get(part) or []:
            item.setdefault("state", {})
            item.setdefault("lastState", {})


def shape_node_status(status: Json) -> None:
    """The same for a node."""
    for condition in status.get("conditions") or []:
        condition.setdefault("type", "")
        condition.setdefault("status", "")
    for address in status.get("addresses") or []:
        address.setdefault("type", "")
        address.setdefault("address", "")


def prepare_pod(body: Json, now_text: str) -> None:
    """Status and generation of a new pod, as its strategy sets them, in place."""
    status: Json = {"phase": "Pending"}
    if body["spec"].get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled", "status": "False", "lastProbeTime": None,
                "lastTransitionTime": now_text, "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]  # fmt: skip
    status["qosClass"] = qos_class(body["spec"])
    body["status"] = status
