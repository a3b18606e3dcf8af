"""The pod of a burn-in: all GPUs of one node, in Muster's own namespace, on that node whatever its taints.

Called by scheduler.reconcile. It bears no labels of a job: on its node it counts as any other pod does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.kube.connection import Connection
from scheduler.kube.manifests import (
    CONTAINER,
    PRIORITY_CLASS,
    Preset,
    container_security,
    pod_security,
)
from scheduler.kube.namespaces import FIELD_MANAGER
from scheduler.kube.seen import OUR_PREFIX

NAMESPACE = "muster-system"
LABEL = f"{OUR_PREFIX}burn-in"


@dataclass(frozen=True, slots=True)
class BurnInPod:
    """id: of the row. device: the resource name of the node's GPUs. limit_seconds: the kubelet ends it then."""

    id: int
    node: str
    device: str
    gpus: int
    image: str
    command: tuple[str, ...]
    limit_seconds: int
    preset: Preset

    @property
    def name(self) -> str:
        """The pod's name."""
        return f"burn-in-{self.id}"


def burn_in_manifest(wanted: BurnInPod) -> dict[str, Any]:
    """The pod to create, complete. It names its node itself: no scheduler has a say."""
    amounts = {**wanted.preset.resources, wanted.device: str(wanted.gpus)}
    preset = wanted.preset
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": wanted.image,
        "env": [{"name": name, "value": value} for name, value in preset.env.items()],
        "resources": {"limits": amounts, "requests": dict(amounts)},
        "securityContext": container_security(preset),
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}, *preset.mounts],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if wanted.command:
        container["command"] = list(wanted.command)
    spec: dict[str, Any] = {
        "nodeName": wanted.node,
        "priorityClassName": PRIORITY_CLASS,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "activeDeadlineSeconds": wanted.limit_seconds,
        "tolerations": [{"operator": "Exists"}],
        "securityContext": pod_security(preset),
        "containers": [container],
        "volumes": [
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            *preset.volumes,
        ],
    }
    if preset.runtime_class is not None:
        spec["runtimeClassName"] = preset.runtime_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": wanted.name,
            "namespace": NAMESPACE,
            "labels": {**preset.labels, LABEL: str(wanted.id)},
            "annotations": dict(preset.annotations),
        },
        "spec": spec,
    }


async def make_own_namespace(connection: Connection) -> None:
    """Make Muster's own namespace where it is not there. Raises KubeError."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await connection.apply(f"/api/v1/namespaces/{NAMESPACE}", manifest, FIELD_MANAGER)
