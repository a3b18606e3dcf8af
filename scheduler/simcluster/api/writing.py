"""The verbs that change one object: create, update, patch, delete, and delete a collection."""

import json
from typing import Any

from scheduler.simcluster.admission.defaults import fill, shape_node_status, shape_pod_status
from scheduler.simcluster.admission.updates import update_causes
from scheduler.simcluster.admission.validation import causes_of
from scheduler.simcluster.api.applying import Applier
from scheduler.simcluster.api.decoding import (
    check_fields,
    check_kind,
    media_type,
    parse_object,
    parse_typed,
    parse_yaml,
    unsupported_media_type,
)
from scheduler.simcluster.api.deletion import DeleteOptions, delete_object, finish_if_released
from scheduler.simcluster.api.errors import (
    already_exists,
    bad_request,
    details_of,
    invalid,
    invalid_value,
    not_found,
    stale,
    success,
)
from scheduler.simcluster.api.patching import json_patch, merge_patch, strategic_merge
from scheduler.simcluster.api.request import Call, Reply, json_reply, whole_body, whole_raw
from scheduler.simcluster.controllers.definitions import CustomTypes
from scheduler.simcluster.store.ownership import tracks, update_ownership
from scheduler.simcluster.store.resources import NODES, PODS, ResourceType
from scheduler.simcluster.store.store import Stored
from scheduler.simcluster.world import World

Json = dict[str, Any]
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_KEPT_METADATA = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
    "managedFields", "generateName",
)  # fmt: skip


class Writer:
    """Creates, changes and deletes objects as the API server does."""

    def __init__(self, world: World, custom: CustomTypes) -> None:
        self._world = world
        self._custom = custom
        self._applier = Applier()

    def create(self, call: Call) -> Reply:
        """POST to a collection. Raises ApiError."""
        resource = call.resource
        body = parse_object(call.raw, call.content_type, resource.kind)
        check_kind(body, resource)
        self._check_body(call, body)
        stored_body = self.create_body(call, body)
        return Reply(201, self._encode(resource, stored_body))

    def create_body(self, call: Call, body: Json) -> Json:
        """Admits and stores a decoded object; returns it as stored. Raises ApiError."""
        world, resource = self._world, call.resource
        metadata = self._new_metadata(call, body)
        body["metadata"] = metadata
        call.warnings += world.admission.admit_new(body, resource, dry_run=call.dry_run)
        key = (metadata.get("namespace", ""), metadata["name"])
        existing = world.store.collection(resource).objects.get(key)
        if existing is not None:
            leaving = "deletionTimestamp" in existing.body["metadata"]
            raise already_exists(resource, metadata["name"], leaving=leaving)
        if resource.custom:
            body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        if tracks(resource):
            update_ownership(None, body, resource, call.manager, world.now_text())
        if call.dry_run:
            return body
        return world.store.put(resource, body).body

    def _new_metadata(self, call: Call, body: Json) -> Json:
        world, resource = self._world, call.resource
        sent = body.get("metadata") or {}
        metadata: Json = {}
        generate = sent.get("generateName")
        if not sent.get("name") and generate:
            metadata["name"] = generate[:58] + world.identities.ending()
        elif sent.get("name"):
            metadata["name"] = sent["name"]
        if resource.namespaced:
            named = sent.get("namespace")
            if named and call.namespace and named != call.namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on "
                    "the request"
                )
            metadata["namespace"] = call.namespace or named or "default"
        metadata["uid"] = world.identities.uid()
        if resource.keeps_generation or resource.custom:
            metadata["generation"] = 1
        metadata["creationTimestamp"] = world.now_text()
        for name in ("generateName", "labels", "annotations", "ownerReferences", "finalizers"):
            if sent.get(name):
                metadata[name] = sent[name]
        return metadata

    def _check_body(self, call: Call, body: Json) -> None:
        """Field validation of a built-in or custom object, in place."""
        validation = call.query.get("fieldValidation", "Warn")
        if call.resource.custom:
            call.warnings += self._custom.check(body, call.resource, validation)
        else:
            call.warnings += check_fields(body, call.resource, validation)

    def _encode(self, resource: ResourceType, body: Json) -> bytes:
        stored = self._world.store.collection(resource).objects.get(
            (body["metadata"].get("namespace", ""), body["metadata"]["name"])
        )
        if stored is not None and stored.body is body:
            return whole_raw(resource, stored.raw)
        return whole_raw(resource, json.dumps(body, separators=(",", ":")).encode())

    def find(self, call: Call) -> Stored:
        """The object that a call names. Raises ApiError 404."""
        found = self._world.store.get(call.resource, call.namespace, call.name)
        if found is None:
            raise not_found(call.resource, call.name)
        return found

    def update(self, call: Call) -> Reply:
        """PUT of an object or of its status. Raises ApiError."""
        resource = call.resource
        body = parse_object(call.raw, call.content_type, resource.kind)
        check_kind(body, resource)
        self._check_body(call, body)
        sent = body.setdefault("metadata", {})
        if sent.get("name") != call.name:
            raise bad_request(
                f"the name of the object ({sent.get('name', '')}) does not match the name on "
                f"the URL ({call.name})"
            )
        current = self.find(call)
        if resource.kind == "Lease" and not sent.get("resourceVersion"):
            cause = invalid_value(
                "metadata.resourceVersion", "0", "must be specified for an update"
            )
            raise invalid(resource, call.name, [cause])
        return Reply(200, self._encode(resource, self._replace(call, current, body)))

    def patch(self, call: Call) -> Reply:
        """PATCH in any of the four types. Raises ApiError."""
        resource, kind = call.resource, media_type(call.content_type)
        accepted: tuple[str, ...] = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
        if resource.custom:
            accepted = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
        if kind not in accepted:
            raise unsupported_media_type(accepted)
        if kind == APPLY_PATCH:
            return self._apply(call)
        current = self.find(call)
        whole = whole_body(resource, current.body)
        patch = self._parse_patch(call)
        if kind == JSON_PATCH:
            patched = json_patch(whole, patch)
        elif kind == MERGE_PATCH:
            patched = merge_patch(whole, patch)
        else:
            patched = strategic_merge(whole, patch, resource.kind)
        return Reply(200, self._encode(resource, self._write_patched(call, current, patched)))

    def _write_patched(self, call: Call, current: Stored, patched: Json) -> Json:
        patched = json.loads(json.dumps(patched))
        check_kind(patched, call.resource)
        self._check_body(call, patched)
        return self._replace(call, current, patched)

    def _parse_patch(self, call: Call) -> Any:
        try:
            return json.loads(call.raw)
        except ValueError as error:
            raise bad_request(f"error decoding patch: {error}") from None

    def _apply(self, call: Call) -> Reply:
        resource = call.resource
        if not call.query.get("fieldManager"):
            raise bad_request(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is '
                "required for apply patch"
            )
        config = parse_yaml(call.raw)
        if not isinstance(config, dict):
            raise bad_request("error decoding YAML: the apply patch must be an object")
        check_kind(config, resource)
        self._check_body(call, config)
        config.setdefault("metadata", {}).setdefault("name", call.name)
        force = call.query.get("force") in ("true", "1")
        current = self._world.store.get(resource, call.namespace, call.name)
        if current is None:
            return self._apply_new(call, config)
        now = self._world.now_text()
        merged = self._applier.merge(call, current.body, config, force=force, now=now)
        return Reply(
            200, self._encode(resource, self._replace(call, current, merged, applied=True))
        )

    def _apply_new(self, call: Call, config: Json) -> Reply:
        resource = call.resource
        call.query = {**call.query, "fieldManager": call.manager}
        body = self.create_body(call, json.loads(json.dumps(config)))
        now = self._world.now_text()
        owned = self._applier.own_new(call, body, config, now=now)
        if not call.dry_run:
            owned = self._world.store.put(resource, owned).body
        return Reply(201, self._encode(resource, owned))

    def _replace(self, call: Call, current: Stored, new: Json, *, applied: bool = False) -> Json:
        """Stores `new` in place of `current`, where it differs; returns what is stored."""
        resource, old = call.resource, current.body
        self._check_identity(call, current, new)
        body = self._combined(call, old, new)
        if not resource.custom:
            causes = update_causes(old, body, resource)
            if causes:
                raise invalid(resource, call.name, causes)
            causes = causes_of(body, resource)
            if causes:
                raise invalid(resource, call.name, causes)
        if tracks(resource) and not applied:
            update_ownership(old, body, resource, call.manager, self._world.now_text())
        elif applied:
            body["metadata"]["managedFields"] = new["metadata"]["managedFields"]
        if _same(old, body):
            return old
        if call.dry_run:
            return body
        stored = self._world.store.put(resource, body)
        finish_if_released(self._world, resource, stored)
        return stored.body

    def _check_identity(self, call: Call, current: Stored, new: Json) -> None:
        sent, kept = new.get("metadata") or {}, current.body["metadata"]
        version = sent.get("resourceVersion")
        if version and version not in ("0", kept["resourceVersion"]):
            raise stale(call.resource, call.name)
        uid = sent.get("uid")
        if uid and uid != kept.get("uid"):
            raise stale(call.resource, call.name)

    def _combined(self, call: Call, old: Json, new: Json) -> Json:
        """The new object, with what the caller may not change taken from the old one."""
        resource = call.resource
        metadata = dict(new.get("metadata") or {})
        for name in _KEPT_METADATA:
            metadata.pop(name, None)
            if name in old["metadata"]:
                metadata[name] = old["metadata"][name]
        metadata["name"] = old["metadata"]["name"]
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if resource.namespaced:
            metadata["namespace"] = old["metadata"]["namespace"]
        if call.subresource == "status":
            return {**old, "metadata": metadata, "status": _shaped_status(new, resource)}
        body = dict(new)
        body["metadata"] = metadata
        if resource.custom:
            body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        else:
            self._refill(body, old, resource)
        if resource.has_status:
            body.pop("status", None)
            if "status" in old:
                body["status"] = old["status"]
        if (resource.keeps_generation or resource.custom) and _spec(old) != _spec(body):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        return body

    def _refill(self, body: Json, old: Json, resource: ResourceType) -> None:
        status = body.get("status")
        fill(body, resource)
        if status is not None:
            body["status"] = status
        if resource is PODS:
            for name in ("priority", "preemptionPolicy", "nodeName"):
                if name in old["spec"] and name not in body["spec"]:
                    body["spec"][name] = old["spec"][name]

    def delete(self, call: Call) -> Reply:
        """DELETE of one object. Raises ApiError."""
        resource = call.resource
        stored = self.find(call)
        body, gone = delete_object(self._world, resource, stored, delete_options(call))
        if resource.returns_deleted or not gone:
            return json_reply(200, whole_body(resource, body))
        details = details_of(resource, call.name)
        details["uid"] = body["metadata"].get("uid")
        return json_reply(200, success(details))

    def delete_collection(self, call: Call, chosen: list[Stored]) -> Reply:
        """DELETE of everything that a selector chooses. Raises ApiError."""
        resource, options = call.resource, delete_options(call)
        version = str(self._world.store.version)
        items = []
        for stored in chosen:
            body, gone = delete_object(self._world, resource, stored, options)
            items.append(stored.body if gone else body)
        return json_reply(
            200,
            {
                "kind": resource.kind_of_list, "apiVersion": resource.api_version,
                "metadata": {"resourceVersion": version}, "items": items,
            },
        )  # fmt: skip


def delete_options(call: Call) -> DeleteOptions:
    """DeleteOptions from the body and the query. Raises ApiError 400."""
    sent: Json = {}
    if call.raw.strip():
        sent = parse_typed(call.raw, call.content_type, "DeleteOptions")
    grace = sent.get("gracePeriodSeconds")
    if grace is None and call.query.get("gracePeriodSeconds"):
        grace = int(call.query["gracePeriodSeconds"])
    if grace is not None and not isinstance(grace, int):
        raise bad_request("gracePeriodSeconds must be an integer")
    conditions = sent.get("preconditions") or {}
    propagation = sent.get("propagationPolicy") or call.query.get("propagationPolicy") or ""
    if sent.get("orphanDependents"):
        propagation = "Orphan"
    return DeleteOptions(
        grace, conditions.get("uid") or "", conditions.get("resourceVersion") or "",
        propagation, call.dry_run or "All" in (sent.get("dryRun") or ()),
    )  # fmt: skip


def _shaped_status(body: Json, resource: ResourceType) -> Json:
    status: Json = body.get("status") or {}
    if resource is PODS:
        shape_pod_status(status)
    elif resource is NODES:
        shape_node_status(status)
    return status


def _spec(body: Json) -> Json:
    """All that counts for `generation`: everything but metadata and status."""
    return {name: value for name, value in body.items() if name not in ("metadata", "status")}


def _same(old: Json, new: Json) -> bool:
    return old == new
