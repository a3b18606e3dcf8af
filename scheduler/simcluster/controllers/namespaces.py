"""The namespace controller: empties a namespace that is being deleted, then lets it go."""

from scheduler.simcluster.api.deletion import DeleteOptions, delete_object
from scheduler.simcluster.store.resources import NAMESPACES
from scheduler.simcluster.store.store import DELETED, Change, Collection
from scheduler.simcluster.world import World

FIRST_SECONDS = 2.0
"""From the delete until the controller gets to it; real ones take a few seconds."""
RETRY_SECONDS = 1.0


class NamespaceController:
    """Finishes the deletion of namespaces."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.store.listen(NAMESPACES, self._on_change)

    def _on_change(self, change: Change) -> None:
        before = None if change.before is None else change.before.body["metadata"]
        going = "deletionTimestamp" in change.now.body["metadata"]
        if (
            change.type != DELETED
            and going
            and (before is None or "deletionTimestamp" not in before)
        ):
            name = change.now.key[1]
            self._world.timers.after(FIRST_SECONDS, lambda: self._empty(name))

    def _contents(self, name: str) -> list[Collection]:
        return [
            collection
            for collection in self._world.store.collections()
            if collection.resource.namespaced and any(key[0] == name for key in collection.objects)
        ]

    def _empty(self, name: str) -> None:
        world = self._world
        stored = world.store.get(NAMESPACES, "", name)
        if stored is None:
            return
        for collection in self._contents(name):
            for key in [key for key in collection.sorted_keys() if key[0] == name]:
                item = collection.objects.get(key)
                if item is not None:
                    delete_object(world, collection.resource, item, DeleteOptions())
        if self._contents(name):
            world.timers.after(RETRY_SECONDS, lambda: self._empty(name))
            return
        if not stored.body["metadata"].get("finalizers"):
            world.store.remove(NAMESPACES, stored.key)
