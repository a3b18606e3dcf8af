"""The admission chain for new objects, in the order of a real API server.

Namespace lifecycle, mutating plugins (limit ranges, priority, tolerations, taint of new nodes),
validation, validating plugins (limit ranges, pod security), and quota last: it charges.
"""

from typing import Any

from scheduler.simcluster.admission.defaults import default_tolerations, fill, prepare_pod
from scheduler.simcluster.admission.limits import apply_limit_defaults, check_limits
from scheduler.simcluster.admission.quota import QuotaAdmission
from scheduler.simcluster.admission.security import ENFORCE, WARN, violation_message
from scheduler.simcluster.admission.validation import causes_of
from scheduler.simcluster.api.errors import ApiError, cause, forbidden, invalid, not_found
from scheduler.simcluster.clock import Clock, stamp
from scheduler.simcluster.store.resources import (
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    ResourceType,
)
from scheduler.simcluster.store.store import Store

Json = dict[str, Any]
BUILT_IN_PRIORITIES = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class Admission:
    """Turns a decoded object into one that may be stored, or refuses it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._quota = QuotaAdmission(store)
        self._addresses = 0

    def admit_new(self, body: Json, resource: ResourceType, *, dry_run: bool) -> list[str]:
        """Fills in and checks a new object, in place; charges quota. Returns warnings.

        Raises ApiError 403, 404 or 422.
        """
        if resource.namespaced:
            self._check_namespace(body, resource)
        fill(body, resource)
        warnings: list[str] = []
        if resource is PODS:
            self._mutate_pod(body)
        elif resource is NODES:
            _taint_new_node(body)
        elif resource is SERVICES:
            self._give_address(body)
        causes = causes_of(body, resource)
        if causes:
            raise invalid(resource, body["metadata"].get("name", ""), causes)
        if resource is PODS:
            warnings = self._check_pod(body)
        refusal = self._quota.charge(body, resource, dry_run=dry_run)
        if refusal is not None:
            raise refusal
        return warnings

    def _give_address(self, body: Json) -> None:
        """A free cluster IP for a service that asks for none in particular."""
        spec = body["spec"]
        if spec["type"] == "ExternalName" or spec.get("clusterIP"):
            return
        self._addresses += 1
        address = f"10.96.{self._addresses // 254 % 256}.{self._addresses % 254 + 1}"
        spec["clusterIP"], spec["clusterIPs"] = address, [address]

    def _check_namespace(self, body: Json, resource: ResourceType) -> None:
        namespace = body["metadata"].get("namespace", "")
        found = self._store.get(NAMESPACES, "", namespace)
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found.body["metadata"]:
            message = f"namespace {namespace} is being terminated"
            raise forbidden(
                resource,
                body["metadata"].get("name", ""),
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated",
                [cause("NamespaceTerminating", message, "metadata.namespace")],
            )

    def _ranges(self, namespace: str) -> list[Json]:
        objects = self._store.collection(LIMIT_RANGES).objects
        return [item.body for key, item in objects.items() if key[0] == namespace]

    def _mutate_pod(self, body: Json) -> None:
        spec = body["spec"]
        apply_limit_defaults(spec, self._ranges(body["metadata"]["namespace"]))
        self._resolve_priority(body)
        default_tolerations(spec)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        prepare_pod(body, stamp(self._clock.now()))

    def _resolve_priority(self, body: Json) -> None:
        spec = body["spec"]
        name = spec.get("priorityClassName")
        if name in BUILT_IN_PRIORITIES:
            spec["priority"] = BUILT_IN_PRIORITIES[name]
            return
        if name:
            found = self._store.get(PRIORITY_CLASSES, "", name)
            if found is None:
                raise forbidden(
                    PODS,
                    body["metadata"].get("name", ""),
                    f"no PriorityClass with name {name} was found",
                )
            spec["priority"] = found.body.get("value", 0)
            spec["preemptionPolicy"] = found.body.get("preemptionPolicy", "PreemptLowerPriority")
            return
        spec["priority"] = 0
        for stored in self._store.collection(PRIORITY_CLASSES).objects.values():
            if stored.body.get("globalDefault"):
                spec["priority"] = stored.body.get("value", 0)
                spec["priorityClassName"] = stored.key[1]

    def _check_pod(self, body: Json) -> list[str]:
        metadata, spec = body["metadata"], body["spec"]
        refusal: ApiError | None = check_limits(
            metadata["name"], spec, self._ranges(metadata["namespace"])
        )
        if refusal is not None:
            raise refusal
        namespace = self._store.get(NAMESPACES, "", metadata["namespace"])
        labels = {} if namespace is None else namespace.body["metadata"].get("labels") or {}
        enforced = violation_message(spec, labels, ENFORCE)
        if enforced is not None:
            raise forbidden(PODS, metadata["name"], f"violates {enforced}")
        warned = violation_message(spec, labels, WARN)
        return [] if warned is None else [f"would violate {warned}"]


def _taint_new_node(body: Json) -> None:
    """TaintNodesByCondition: a new node is not ready until the node controller says so."""
    spec = body["spec"]
    taints = list(spec.get("taints") or [])
    if not any(taint.get("key") == NOT_READY_TAINT["key"] for taint in taints):
        taints.append(dict(NOT_READY_TAINT))
    spec["taints"] = taints
