"""Binding and eviction of pods."""

from typing import Any

from scheduler.simcluster.admission.amounts import is_terminal
from scheduler.simcluster.api.decoding import parse_typed
from scheduler.simcluster.api.deletion import DeleteOptions, check_preconditions, delete_object
from scheduler.simcluster.api.errors import (
    ApiError,
    bad_request,
    conflict,
    invalid,
    not_found,
    required,
    success,
)
from scheduler.simcluster.api.request import Call, Reply, json_reply
from scheduler.simcluster.store.resources import BINDINGS, BUDGETS, PODS
from scheduler.simcluster.store.selectors import selector_predicate
from scheduler.simcluster.store.store import Stored
from scheduler.simcluster.world import World

Json = dict[str, Any]


def set_condition(conditions: list[Json], new: Json) -> list[Json]:
    """The conditions with one replaced or added; the transition time stays if status does."""
    kept = []
    found = False
    for condition in conditions:
        if condition["type"] != new["type"]:
            kept.append(condition)
            continue
        found = True
        if condition["status"] == new["status"]:
            new = {**new, "lastTransitionTime": condition.get("lastTransitionTime")}
        kept.append(new)
    return kept if found else [*kept, new]


class PodCalls:
    """The subresources of pods that act."""

    def __init__(self, world: World) -> None:
        self._world = world

    def bind(self, call: Call) -> Reply:
        """POST …/pods/NAME/binding: 201 with a Status. Raises ApiError."""
        body = parse_typed(call.raw, call.content_type, "Binding")
        metadata, target = body.get("metadata") or {}, body.get("target") or {}
        name = call.name or metadata.get("name", "")
        if not target.get("name"):
            raise invalid(BINDINGS, name, [required("target.name")])
        if target.get("kind") not in (None, "", "Node"):
            raise bad_request(f'target.kind: Unsupported value: "{target["kind"]}"')
        stored = self._world.store.get(PODS, call.namespace, name)
        if stored is None:
            raise not_found(PODS, name)
        self._check_bindable(stored, metadata)
        if not call.dry_run:
            self.assign(stored, target["name"], metadata)
        return json_reply(201, success(code=201))

    def _check_bindable(self, stored: Stored, metadata: Json) -> None:
        pod, name = stored.body["metadata"], stored.key[1]
        uid = metadata.get("uid")
        if uid and uid != pod["uid"]:
            raise conflict(
                PODS, name,
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{stored.key[0]}/"
                f"{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "
                f"precondition: {uid}, UID in object meta: {pod['uid']}",
            )  # fmt: skip
        spec = stored.body["spec"]
        if "deletionTimestamp" in pod:
            text = f"pod {name} is being deleted, cannot be assigned to a host"
        elif spec.get("nodeName"):
            text = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        elif spec.get("schedulingGates"):
            text = f"pod {name} has non-empty .spec.schedulingGates"
        else:
            return
        raise conflict(PODS, name, text, "binding")

    def assign(self, stored: Stored, node: str, metadata: Json) -> None:
        """Gives a pod its node, with the PodScheduled condition."""
        body = stored.body
        status = body.get("status") or {}
        scheduled = {
            "type": "PodScheduled", "status": "True", "lastProbeTime": None,
            "lastTransitionTime": self._world.now_text(),
        }  # fmt: skip
        conditions = set_condition(status.get("conditions") or [], scheduled)
        new = {
            **body,
            "spec": {**body["spec"], "nodeName": node},
            "status": {**status, "conditions": conditions},
        }
        for part in ("annotations", "labels"):
            if metadata.get(part):
                old = body["metadata"].get(part) or {}
                new["metadata"] = {**new["metadata"], part: {**old, **metadata[part]}}
        self._world.store.put(PODS, new)

    def evict(self, call: Call) -> Reply:
        """POST …/pods/NAME/eviction: 201, or 429 against a budget. Raises ApiError."""
        body = parse_typed(call.raw, call.content_type, "Eviction")
        if (body.get("metadata") or {}).get("name", call.name) != call.name:
            raise bad_request("name in URL does not match name in Eviction object")
        stored = self._world.store.get(PODS, call.namespace, call.name)
        if stored is None:
            raise not_found(PODS, call.name)
        sent = body.get("deleteOptions") or {}
        conditions = sent.get("preconditions") or {}
        dry = call.dry_run or "All" in (sent.get("dryRun") or ())
        options = DeleteOptions(
            sent.get("gracePeriodSeconds"), conditions.get("uid") or "",
            conditions.get("resourceVersion") or "", dry_run=dry,
        )  # fmt: skip
        check_preconditions(PODS, stored, options)
        if not _ignores_budgets(stored.body):
            self._spend_budget(stored, dry_run=dry)
        if not dry:
            stored = self._mark(stored)
        options = DeleteOptions(options.grace_seconds, options.uid, dry_run=dry)
        delete_object(self._world, PODS, stored, options)
        return json_reply(201, success(code=201))

    def _spend_budget(self, stored: Stored, *, dry_run: bool) -> None:
        budgets = [
            budget
            for key, budget in self._world.store.collection(BUDGETS).objects.items()
            if key[0] == stored.key[0]
            and selector_predicate(budget.body["spec"].get("selector"))(stored.body)
        ]
        if not budgets:
            return
        if len(budgets) > 1:
            message = (
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support."
            )
            raise ApiError(500, "InternalError", message)
        budget = budgets[0]
        status = budget.body.get("status") or {}
        if not _is_ready(stored.body) and status.get("currentHealthy", 0) >= max(
            1, status.get("desiredHealthy", 0)
        ):
            return
        if status.get("disruptionsAllowed", 0) <= 0:
            raise _budget_refusal(budget)
        if not dry_run:
            disrupted = {
                **(status.get("disruptedPods") or {}),
                stored.key[1]: self._world.now_text(),
            }
            left = status["disruptionsAllowed"] - 1
            new = {**status, "disruptionsAllowed": left, "disruptedPods": disrupted}
            self._world.store.put(BUDGETS, {**budget.body, "status": new})

    def _mark(self, stored: Stored) -> Stored:
        status = stored.body.get("status") or {}
        condition = {
            "type": "DisruptionTarget", "status": "True", "lastProbeTime": None,
            "lastTransitionTime": self._world.now_text(), "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }  # fmt: skip
        conditions = set_condition(status.get("conditions") or [], condition)
        return self._world.store.put(
            PODS, {**stored.body, "status": {**status, "conditions": conditions}}
        )


def _ignores_budgets(body: Json) -> bool:
    pending = (body.get("status") or {}).get("phase") == "Pending"
    return is_terminal(body) or pending or "deletionTimestamp" in body["metadata"]


def _is_ready(body: Json) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _budget_refusal(budget: Stored) -> ApiError:
    status = budget.body.get("status") or {}
    text = (
        f"The disruption budget {budget.key[1]} needs {status.get('desiredHealthy', 0)} healthy "
        f"pods and has {status.get('currentHealthy', 0)} currently"
    )
    return ApiError(
        429, "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        {"causes": [{"reason": "DisruptionBudget", "message": text}]},
    )  # fmt: skip
