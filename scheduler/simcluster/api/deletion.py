"""Deleting objects: grace of pods, finalizers, namespaces, preconditions, propagation.

Called by the API's verbs, and by kubelets and controllers, which delete as any client does.
"""

from dataclasses import dataclass
from typing import Any

from scheduler.simcluster.admission.amounts import is_terminal
from scheduler.simcluster.api.errors import ApiError, conflict
from scheduler.simcluster.clock import moment_of, stamp
from scheduler.simcluster.store.resources import NAMESPACES, PODS, ResourceType
from scheduler.simcluster.store.store import Stored
from scheduler.simcluster.world import World

Json = dict[str, Any]
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
DEFAULT_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a delete asks for."""

    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = False


def check_preconditions(resource: ResourceType, stored: Stored, options: DeleteOptions) -> None:
    """409 when uid or resourceVersion are not those asked for."""
    metadata = stored.body["metadata"]
    name = metadata["name"]
    if options.uid and options.uid != metadata.get("uid"):
        message = (
            f'Operation cannot be fulfilled on {resource.kind} "{name}": the UID in the '
            f"precondition ({options.uid}) does not match the UID in record "
            f"({metadata.get('uid')}). The object might have been deleted and then recreated"
        )
        details = {"name": name, "kind": resource.kind}
        raise ApiError(409, "Conflict", message, details)
    if options.resource_version and options.resource_version != metadata["resourceVersion"]:
        raise conflict(
            resource, name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not "
            f"match the ResourceVersion in record ({metadata['resourceVersion']}). The object "
            "might have been modified",
        )  # fmt: skip


def delete_object(
    world: World, resource: ResourceType, stored: Stored, options: DeleteOptions
) -> tuple[Json, bool]:
    """Deletes or begins to delete. Returns the object afterwards and whether it is gone.

    Raises ApiError 409.
    """
    check_preconditions(resource, stored, options)
    if resource is PODS:
        return _delete_pod(world, stored, options)
    if resource is NAMESPACES:
        return _delete_namespace(world, stored, options)
    metadata = stored.body["metadata"]
    finalizers = _with_propagation(world, resource, stored, options)
    if not finalizers:
        return _finish(world, resource, stored, stored.body, options)
    if "deletionTimestamp" in metadata and finalizers == metadata.get("finalizers"):
        return stored.body, False
    marked = _marked(world, stored.body, 0)
    marked["metadata"]["finalizers"] = finalizers
    return _keep(world, resource, marked, options)


def _with_propagation(
    world: World, resource: ResourceType, stored: Stored, options: DeleteOptions
) -> list[str]:
    finalizers = list(stored.body["metadata"].get("finalizers") or [])
    wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(options.propagation)
    if wanted and wanted not in finalizers and _has_dependents(world, resource, stored):
        finalizers.append(wanted)
    return finalizers


def _has_dependents(world: World, resource: ResourceType, stored: Stored) -> bool:
    uid = stored.body["metadata"].get("uid")
    for collection in world.store.collections():
        for item in collection.objects.values():
            owners = item.body["metadata"].get("ownerReferences")
            if owners and any(owner.get("uid") == uid for owner in owners):
                return True
    return False


def _delete_pod(world: World, stored: Stored, options: DeleteOptions) -> tuple[Json, bool]:
    body, metadata = stored.body, stored.body["metadata"]
    grace = _pod_grace(body, options)
    finalizers = _with_propagation(world, PODS, stored, options)
    if grace == 0 and not finalizers:
        return _finish(world, PODS, stored, _marked(world, body, 0), options)
    if "deletionTimestamp" in metadata:
        left = metadata.get("deletionGracePeriodSeconds", 0)
        if grace >= left:
            return body, False
        begun = moment_of(metadata["deletionTimestamp"]) - left
        marked = {**body, "metadata": {**metadata}}
        marked["metadata"]["deletionTimestamp"] = stamp(max(begun + grace, world.clock.now()))
        marked["metadata"]["deletionGracePeriodSeconds"] = grace
    else:
        marked = _marked(world, body, grace)
    if finalizers:
        marked["metadata"]["finalizers"] = finalizers
    return _keep(world, PODS, marked, options)


def _pod_grace(body: Json, options: DeleteOptions) -> int:
    spec = body["spec"]
    if not spec.get("nodeName") or is_terminal(body):
        return 0
    if options.grace_seconds is not None:
        return max(0, options.grace_seconds)
    return int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS))


def _delete_namespace(world: World, stored: Stored, options: DeleteOptions) -> tuple[Json, bool]:
    body = stored.body
    if "deletionTimestamp" in body["metadata"]:
        return body, False
    marked = {**body, "metadata": {**body["metadata"], "deletionTimestamp": world.now_text()}}
    marked["status"] = {**(body.get("status") or {}), "phase": "Terminating"}
    return _keep(world, NAMESPACES, marked, options)


def _marked(world: World, body: Json, grace_seconds: int) -> Json:
    """The body as being deleted: timestamp, grace, and one generation up the first time."""
    metadata = dict(body["metadata"])
    if "deletionTimestamp" not in metadata and "generation" in metadata:
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = stamp(world.clock.now() + grace_seconds)
    metadata["deletionGracePeriodSeconds"] = grace_seconds
    return {**body, "metadata": metadata}


def _keep(
    world: World, resource: ResourceType, body: Json, options: DeleteOptions
) -> tuple[Json, bool]:
    if options.dry_run:
        return body, False
    return world.store.put(resource, body).body, False


def _finish(
    world: World, resource: ResourceType, stored: Stored, last: Json, options: DeleteOptions
) -> tuple[Json, bool]:
    if options.dry_run:
        return last, True
    return world.store.remove(resource, stored.key, last).body, True


def finish_if_released(world: World, resource: ResourceType, stored: Stored) -> bool:
    """After an update: removes an object that was only kept by its finalizers."""
    metadata = stored.body["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if resource is NAMESPACES and (stored.body.get("spec") or {}).get("finalizers"):
        return False
    if resource is PODS and metadata.get("deletionGracePeriodSeconds", 0) > 0:
        return False
    world.store.remove(resource, stored.key)
    return True
