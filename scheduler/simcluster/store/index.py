"""Which pods are on which node, kept up with every commit."""

from scheduler.simcluster.store.resources import PODS
from scheduler.simcluster.store.store import DELETED, Change, Key, Store, Stored


class PodsByNode:
    """An index of pods by `spec.nodeName`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: dict[str, dict[Key, None]] = {}
        store.listen(PODS, self._on_change)

    def _on_change(self, change: Change) -> None:
        node = change.now.body["spec"].get("nodeName")
        if not node:
            return
        if change.type == DELETED:
            self._keys.get(node, {}).pop(change.now.key, None)
        else:
            self._keys.setdefault(node, {})[change.now.key] = None

    def on(self, node: str) -> list[Stored]:
        """The pods on a node, in the order in which they came."""
        objects = self._store.collection(PODS).objects
        return [objects[key] for key in self._keys.get(node, ()) if key in objects]
