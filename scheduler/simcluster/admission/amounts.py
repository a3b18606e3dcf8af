"""How much of each resource a pod asks for: for quota, for kubelets and for the scheduler."""

from typing import Any

from scheduler.simcluster.quantities import milli
from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]
TERMINAL = ("Succeeded", "Failed")


def pod_amounts(spec: Json, part: str = "requests") -> dict[str, int]:
    """Requests (or `limits`) of a pod in milli-units: the sum over containers, or the largest
    init container where that is more, plus overhead."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
            total[name] = total.get(name, 0) + milli(amount)
    for container in spec.get("initContainers") or ():
        for name, amount in ((container.get("resources") or {}).get(part) or {}).items():
            total[name] = max(total.get(name, 0), milli(amount))
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + milli(amount)
    return total


def is_terminal(body: Json) -> bool:
    """Whether a pod has ended (Succeeded or Failed)."""
    return (body.get("status") or {}).get("phase") in TERMINAL


def quota_usage(body: Json, resource: ResourceType) -> dict[str, int]:
    """What an object counts against a ResourceQuota, by quota key, in milli-units."""
    usage = {f"count/{resource.qualified}": 1000}
    if resource.kind == "Pod":
        if is_terminal(body):
            return usage
        usage["pods"] = 1000
        for name, amount in pod_amounts(body["spec"]).items():
            usage[f"requests.{name}"] = amount
            if name in ("cpu", "memory", "ephemeral-storage"):
                usage[name] = amount
        for name, amount in pod_amounts(body["spec"], "limits").items():
            if name in ("cpu", "memory", "ephemeral-storage"):
                usage[f"limits.{name}"] = amount
        return usage
    if resource.kind == "PersistentVolumeClaim":
        request = ((body.get("spec") or {}).get("resources") or {}).get("requests") or {}
        usage["requests.storage"] = milli(request.get("storage", "0"))
    if not resource.group:
        usage[resource.plural] = 1000
    return usage
