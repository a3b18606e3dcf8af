"""The disruption controller: keeps the status of pod disruption budgets."""

import math
from typing import Any

from scheduler.simcluster.store.resources import BUDGETS, PODS
from scheduler.simcluster.store.selectors import selector_predicate
from scheduler.simcluster.store.store import DELETED, Change, Stored
from scheduler.simcluster.world import World

Json = dict[str, Any]


class BudgetController:
    """Counts healthy pods for every budget whose pods or spec changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._due: set[str] = set()
        world.store.listen(BUDGETS, self._on_budget)
        world.store.listen(PODS, self._on_pod)

    def _on_budget(self, change: Change) -> None:
        before = None if change.before is None else change.before.body.get("spec")
        if change.type != DELETED and before != change.now.body.get("spec"):
            self._plan(change.now.key[0])

    def _on_pod(self, change: Change) -> None:
        budgets = self._world.store.collection(BUDGETS).objects
        if budgets and any(key[0] == change.now.key[0] for key in budgets):
            self._plan(change.now.key[0])

    def _plan(self, namespace: str) -> None:
        if namespace not in self._due:
            self._due.add(namespace)
            self._world.timers.after(0, lambda: self._count(namespace))

    def _count(self, namespace: str) -> None:
        self._due.discard(namespace)
        budgets = self._world.store.collection(BUDGETS).objects
        for stored in [item for key, item in budgets.items() if key[0] == namespace]:
            self._count_one(stored)

    def _count_one(self, budget: Stored) -> None:
        spec = budget.body["spec"]
        matches = selector_predicate(spec.get("selector"))
        pods = [
            item.body
            for key, item in self._world.store.collection(PODS).objects.items()
            if key[0] == budget.key[0] and matches(item.body)
            and (item.body.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]  # fmt: skip
        healthy = sum(1 for body in pods if _healthy(body))
        desired = _desired(spec, len(pods))
        status = {
            "observedGeneration": budget.body["metadata"].get("generation", 1),
            "disruptionsAllowed": max(0, healthy - desired), "currentHealthy": healthy,
            "desiredHealthy": desired, "expectedPods": len(pods),
        }  # fmt: skip
        if budget.body.get("status") != status:
            self._world.store.put(BUDGETS, {**budget.body, "status": status})


def _healthy(body: Json) -> bool:
    if "deletionTimestamp" in body["metadata"]:
        return False
    conditions = (body.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _desired(spec: Json, expected: int) -> int:
    if "minAvailable" in spec:
        return _share(spec["minAvailable"], expected)
    if "maxUnavailable" in spec:
        return max(0, expected - _share(spec["maxUnavailable"], expected))
    return expected


def _share(value: int | str, whole: int) -> int:
    if isinstance(value, str):
        return math.ceil(int(value.rstrip("%")) * whole / 100)
    return value
