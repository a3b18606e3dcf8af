"""Resource quotas: charged at admission, before the object is stored, as the real plugin does.

A create that fails after the charge (a name that exists) stays charged until the quota controller
counts again: `controllers.quotas` calls `recount`.
"""

from typing import Any

from scheduler.simcluster.admission.amounts import quota_usage
from scheduler.simcluster.api.errors import ApiError, forbidden
from scheduler.simcluster.quantities import milli, plain
from scheduler.simcluster.store.resources import (
    CLAIMS,
    CONFIG_MAPS,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    ResourceType,
)
from scheduler.simcluster.store.store import Store, Stored

Json = dict[str, Any]
COUNTED = (PODS, SERVICES, CONFIG_MAPS, SECRETS, CLAIMS)
_COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def quotas_of(store: Store, namespace: str) -> list[Stored]:
    """The quotas of a namespace, in order of name."""
    collection = store.collection(RESOURCE_QUOTAS)
    if not collection.objects:
        return []
    found = [item for key, item in collection.objects.items() if key[0] == namespace]
    return sorted(found, key=lambda item: item.key)


def scope_matches(spec: Json, body: Json, resource: ResourceType) -> bool:
    """Whether a quota's scopes select an object."""
    scopes = spec.get("scopes") or []
    selectors = (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    if not scopes and not selectors:
        return True
    if resource is not PODS:
        return False
    pod_spec, status = body["spec"], body.get("status") or {}
    ends = pod_spec.get("activeDeadlineSeconds") is not None
    best_effort = status.get("qosClass") == "BestEffort"
    holds = {
        "Terminating": ends,
        "NotTerminating": not ends,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
    }
    if not all(holds.get(scope, True) for scope in scopes):
        return False
    priority = pod_spec.get("priorityClassName", "")
    return all(
        _expression_holds(item, priority)
        for item in selectors
        if item["scopeName"] == "PriorityClass"
    )


def _expression_holds(expression: Json, value: str) -> bool:
    operator, values = expression["operator"], expression.get("values") or []
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    return bool(value) is (operator == "Exists")


class QuotaAdmission:
    """Checks and charges quotas for new objects."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def charge(self, body: Json, resource: ResourceType, *, dry_run: bool) -> ApiError | None:
        """Charges all quotas of the object's namespace, or none and returns a 403."""
        quotas = quotas_of(self._store, body["metadata"].get("namespace", ""))
        if not quotas:
            return None
        usage = quota_usage(body, resource)
        updates: list[Json] = []
        for quota in quotas:
            refusal, update = self._charge_one(quota, usage, body, resource)
            if refusal is not None:
                return refusal
            if update is not None:
                updates.append(update)
        if not dry_run:
            for update in updates:
                self._store.put(RESOURCE_QUOTAS, update)
        return None

    def _charge_one(
        self, quota: Stored, usage: dict[str, int], body: Json, resource: ResourceType
    ) -> tuple[ApiError | None, Json | None]:
        spec, status = quota.body.get("spec") or {}, quota.body.get("status") or {}
        hard: dict[str, str] = status.get("hard") or {}
        if not hard or not scope_matches(spec, body, resource):
            return None, None
        name = body["metadata"]["name"]
        missing = [key for key in hard if key in _COMPUTE and key not in usage]
        if missing and resource is PODS:
            text = _unspecified(missing, body["spec"])
            return forbidden(resource, name, f"failed quota: {quota.key[1]}: {text}"), None
        charged = {key: usage[key] for key in hard if usage.get(key)}
        if not charged:
            return None, None
        used: dict[str, str] = status.get("used") or {}
        after = {key: milli(used.get(key, "0")) + amount for key, amount in charged.items()}
        over = sorted(key for key in charged if after[key] > milli(hard[key]))
        if over:
            return forbidden(resource, name, _exceeded(quota.key[1], over, charged, status)), None
        new_used = {**used, **{key: plain(amount, hard[key]) for key, amount in after.items()}}
        return None, {**quota.body, "status": {**status, "used": new_used}}


def _unspecified(keys: list[str], spec: Json) -> str:
    names = ",".join(container["name"] for container in spec["containers"])
    return "must specify " + "; ".join(f"{key} for: {names}" for key in sorted(keys))


def _exceeded(name: str, over: list[str], charged: dict[str, int], status: Json) -> str:
    hard, used = status["hard"], status.get("used") or {}
    requested = ",".join(f"{key}={plain(charged[key], hard[key])}" for key in over)
    in_use = ",".join(f"{key}={used.get(key, '0')}" for key in over)
    limited = ",".join(f"{key}={hard[key]}" for key in over)
    return f"exceeded quota: {name}, requested: {requested}, used: {in_use}, limited: {limited}"


def recount(store: Store, quota: Stored) -> None:
    """Counts a quota again from what exists, and stores it if that changes its status."""
    spec = quota.body.get("spec") or {}
    hard: dict[str, str] = spec.get("hard") or {}
    used = dict.fromkeys(hard, 0)
    for resource in COUNTED:
        for key, stored in store.collection(resource).objects.items():
            if key[0] != quota.key[0] or not scope_matches(spec, stored.body, resource):
                continue
            for name, amount in quota_usage(stored.body, resource).items():
                if name in used:
                    used[name] += amount
    shown = {name: plain(amount, hard[name]) for name, amount in used.items()}
    status = {"hard": dict(hard), "used": shown}
    if quota.body.get("status") != status:
        store.put(RESOURCE_QUOTAS, {**quota.body, "status": status})
