"""The PriorityClass that our pods bear; called by scheduler.reconcile before the first pod.

High, so that the default scheduler does not evict our pods for others'; never preempting, since
what makes room for a gang is the planner's decision.
"""

from __future__ import annotations

from typing import Any

from scheduler.kube.connection import Connection
from scheduler.kube.errors import AlreadyExists, NotFound
from scheduler.kube.manifests import PRIORITY_CLASS
from scheduler.kube.seen import OUR_PREFIX

# The highest that Kubernetes leaves to users is 1,000,000,000.
VALUE = 1_000_000
_COLLECTION = "/apis/scheduling.k8s.io/v1/priorityclasses"


def priority_class_manifest() -> dict[str, Any]:
    """As deploy/ ships it too."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS, "labels": {f"{OUR_PREFIX}schema": "1"}},
        "value": VALUE,
        "globalDefault": False,
        "preemptionPolicy": "Never",
        "description": "Pods that Muster placed: not to be evicted for others, nor others for them.",
    }


async def ensure_priority_class(connection: Connection) -> None:
    """Create it where it is missing; one that is there is left as its owner made it."""
    try:
        await connection.get(f"{_COLLECTION}/{PRIORITY_CLASS}")
    except NotFound:
        try:
            await connection.post(_COLLECTION, priority_class_manifest())
        except AlreadyExists:
            return
