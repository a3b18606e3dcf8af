"""Writes types.json: the fields of every Kubernetes type that the simulated cluster stores.

Run by a developer (`python -m scheduler.simcluster.schemas.generate`) when the pinned official
client changes; the server itself reads only the file, so that it starts without the client.
"""

import json
import re
from pathlib import Path
from typing import Any

from kubernetes import client as kube_client

ROOTS = (
    "V1Node",
    "V1Namespace",
    "V1Pod",
    "V1Service",
    "CoreV1Event",
    "V1ConfigMap",
    "V1Secret",
    "V1ResourceQuota",
    "V1LimitRange",
    "V1PersistentVolume",
    "V1PersistentVolumeClaim",
    "V1ServiceAccount",
    "V1Lease",
    "V1PodDisruptionBudget",
    "V1Eviction",
    "V1PriorityClass",
    "V1Role",
    "V1RoleBinding",
    "V1ClusterRole",
    "V1ClusterRoleBinding",
    "V1StorageClass",
    "V1CustomResourceDefinition",
    "V1Binding",
    "V1DeleteOptions",
    "V1SelfSubjectAccessReview",
    "V1SubjectAccessReview",
    "V1SelfSubjectRulesReview",
    "V1SelfSubjectReview",
    "V1DaemonSet",
    "V1Deployment",
    "V1StatefulSet",
    "V1ReplicaSet",
    "V1Job",
    "V1CronJob",
    "V1NetworkPolicy",
    "V1Ingress",
)
SCALARS = {"str", "int", "bool", "float", "datetime", "object", "bytes", "byte"}
TARGET = Path(__file__).with_name("types.json")


def plain_name(model_name: str) -> str:
    """`V1PodSpec` is `PodSpec`; `CoreV1Event` is `Event`."""
    return re.sub(r"^(Core)?V1(?=[A-Z])", "", model_name)


def referenced(type_text: str) -> str | None:
    """The model inside `List[V1Container]` or `Dict[str, V1X]`, or None for a scalar."""
    inner = re.sub(r"^(?:List\[|Dict\[str, )+|\]+$", "", type_text)
    return None if inner in SCALARS else inner


def collect(model_name: str, types: dict[str, dict[str, Any]]) -> None:
    """Adds a model and everything that it mentions to `types`."""
    name = plain_name(model_name)
    if name in types:
        return
    model = getattr(kube_client, model_name)
    fields: dict[str, str] = {}
    types[name] = {"fields": fields}
    for attribute, type_text in model.openapi_types.items():
        inner = referenced(type_text)
        shown = type_text if inner is None else type_text.replace(inner, plain_name(inner))
        fields[model.attribute_map[attribute]] = shown
        if inner is not None:
            collect(inner, types)


def main() -> None:
    """Writes the file beside this module."""
    types: dict[str, dict[str, Any]] = {}
    for root in ROOTS:
        collect(root, types)
    text = json.dumps(types, indent=0, sort_keys=True, separators=(",", ":"))
    TARGET.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
