"""The garbage collector: dependents go with their owners (background, foreground or orphaned)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from scheduler.simcluster.api.deletion import (
    FOREGROUND,
    ORPHAN,
    DeleteOptions,
    delete_object,
    finish_if_released,
)
from scheduler.simcluster.store.resources import ResourceType
from scheduler.simcluster.store.store import DELETED, Change, Key
from scheduler.simcluster.world import World

Json = dict[str, Any]
ABSENT_OWNER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object is."""

    resource: ResourceType
    key: Key


class GarbageCollector:
    """Follows owner references."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dependents: dict[str, dict[Place, None]] = {}
        self._places: dict[str, Place] = {}
        """Where every object is, by uid."""
        world.store.listen_all(self._on_change)

    def _on_change(self, change: Change) -> None:
        metadata = change.now.body["metadata"]
        uid, place = metadata.get("uid", ""), Place(change.resource, change.now.key)
        owners = metadata.get("ownerReferences") or ()
        if change.type == DELETED:
            self._places.pop(uid, None)
            for owner in owners:
                self._drop(owner["uid"], place)
            if uid in self._dependents:
                self._world.timers.after(0.01, lambda: self._owner_gone(uid))
            return
        self._places[uid] = place
        self._index(change, place, owners)
        finalizers = metadata.get("finalizers") or ()
        if "deletionTimestamp" in metadata and (FOREGROUND in finalizers or ORPHAN in finalizers):
            self._world.timers.after(0.01, lambda: self._work_finalizer(place))

    def _index(self, change: Change, place: Place, owners: Any) -> None:
        before = (
            ()
            if change.before is None
            else change.before.body["metadata"].get("ownerReferences") or ()
        )
        if before is owners:
            return
        for owner in before:
            self._dependents.get(owner["uid"], {}).pop(place, None)
        for owner in owners:
            self._dependents.setdefault(owner["uid"], {})[place] = None
            if owner["uid"] not in self._places:
                check = partial(self._owner_gone, owner["uid"])
                self._world.timers.after(ABSENT_OWNER_SECONDS, check)

    def _drop(self, owner: str, place: Place) -> None:
        places = self._dependents.get(owner)
        if places is None:
            return
        places.pop(place, None)
        if not places:
            del self._dependents[owner]
        self._world.timers.after(0.01, lambda: self._look_at_owner(owner))

    def _owner_gone(self, uid: str) -> None:
        if uid in self._places:
            return
        for place in list(self._dependents.get(uid, ())):
            stored = self._world.store.collection(place.resource).objects.get(place.key)
            if stored is None:
                continue
            owners = stored.body["metadata"].get("ownerReferences") or []
            left = [owner for owner in owners if owner["uid"] in self._places]
            if left:
                metadata = {**stored.body["metadata"], "ownerReferences": left}
                self._world.store.put(place.resource, {**stored.body, "metadata": metadata})
            else:
                delete_object(self._world, place.resource, stored, DeleteOptions())

    def _look_at_owner(self, uid: str) -> None:
        """A dependent has gone: an owner that waits in the foreground may follow."""
        place = self._places.get(uid)
        if place is not None and not self._dependents.get(uid):
            self._work_finalizer(place)

    def _work_finalizer(self, place: Place) -> None:
        stored = self._world.store.collection(place.resource).objects.get(place.key)
        if stored is None or "deletionTimestamp" not in stored.body["metadata"]:
            return
        finalizers = stored.body["metadata"].get("finalizers") or []
        uid = stored.body["metadata"]["uid"]
        if ORPHAN in finalizers:
            self._orphan(uid)
            self._release(place, ORPHAN)
        elif FOREGROUND in finalizers:
            dependents = list(self._dependents.get(uid, ()))
            for dependent in dependents:
                item = self._world.store.collection(dependent.resource).objects.get(dependent.key)
                if item is not None and "deletionTimestamp" not in item.body["metadata"]:
                    delete_object(self._world, dependent.resource, item, DeleteOptions())
            if not self._dependents.get(uid):
                self._release(place, FOREGROUND)

    def _orphan(self, uid: str) -> None:
        for place in list(self._dependents.get(uid, ())):
            stored = self._world.store.collection(place.resource).objects.get(place.key)
            if stored is not None:
                owners = stored.body["metadata"].get("ownerReferences") or []
                metadata = {
                    **stored.body["metadata"],
                    "ownerReferences": [owner for owner in owners if owner["uid"] != uid],
                }
                self._world.store.put(place.resource, {**stored.body, "metadata": metadata})

    def _release(self, place: Place, finalizer: str) -> None:
        stored = self._world.store.collection(place.resource).objects.get(place.key)
        if stored is None:
            return
        metadata = dict(stored.body["metadata"])
        metadata["finalizers"] = [name for name in metadata["finalizers"] if name != finalizer]
        if not metadata["finalizers"]:
            del metadata["finalizers"]
        renewed = self._world.store.put(place.resource, {**stored.body, "metadata": metadata})
        finish_if_released(self._world, place.resource, renewed)
