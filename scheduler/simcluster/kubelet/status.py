"""The status that a kubelet writes for a pod: phase, conditions, container statuses."""

from typing import Any

from scheduler.simcluster.kubelet.containers import Container

Json = dict[str, Any]
_OWN_TYPES = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
)


def phase_of(containers: list[Container], restart_policy: str) -> str:
    """The phase of an admitted pod, from its containers, by the kubelet's rules."""
    if any(container.running for container in containers):
        return "Running"
    ended = [container.ended for container in containers]
    if all(state is not None for state in ended):
        if restart_policy == "Always":
            return "Running"
        failed = any(state is not None and state["exitCode"] != 0 for state in ended)
        if failed:
            return "Failed" if restart_policy == "Never" else "Running"
        return "Succeeded"
    if any(container.last_state for container in containers):
        return "Running"
    return "Pending"


def conditions_of(
    containers: list[Container],
    phase: str,
    old: list[Json],
    now_text: str,
    *,
    has_network: bool,
    uninitialized: list[str],
) -> list[Json]:
    """The kubelet's five conditions, keeping transition times and foreign conditions.

    `uninitialized` are the init containers that have not ended.
    """
    unready = [container.name for container in containers if not container.running]
    ready = _readiness(unready, phase)
    initialized: Json = {"status": "True"}
    if uninitialized:
        text = f"containers with incomplete status: [{' '.join(uninitialized)}]"
        initialized = {"status": "False", "reason": "ContainersNotInitialized", "message": text}
    elif phase == "Succeeded":
        initialized["reason"] = "PodCompleted"
    fresh: dict[str, Json] = {
        "PodReadyToStartContainers": {"status": "True" if has_network else "False"},
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": dict(ready),
        "PodScheduled": {"status": "True"},
    }
    before = {condition["type"]: condition for condition in old}
    result: list[Json] = [c for c in old if c["type"] not in _OWN_TYPES]
    for type_, wanted in fresh.items():
        earlier = before.get(type_)
        changed = earlier is None or earlier["status"] != wanted["status"]
        since = (
            now_text if changed or earlier is None else earlier.get("lastTransitionTime", now_text)
        )
        condition = {
            "type": type_, "status": wanted["status"], "lastProbeTime": None,
            "lastTransitionTime": since,
        }  # fmt: skip
        condition |= {key: wanted[key] for key in ("reason", "message") if key in wanted}
        result.append(condition)
    return result


def _readiness(unready: list[str], phase: str) -> Json:
    if phase in ("Succeeded", "Failed"):
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        return {"status": "False", "reason": reason}
    if unready:
        return {
            "status": "False", "reason": "ContainersNotReady",
            "message": f"containers with unready status: [{' '.join(unready)}]",
        }  # fmt: skip
    return {"status": "True"}
