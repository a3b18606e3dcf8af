"""The resource quota controller: counts quotas again when they are made or changed, when pods end
or go, and every five minutes. Between these, `used` is what admission has charged."""

from typing import Any

from scheduler.simcluster.admission.amounts import is_terminal
from scheduler.simcluster.admission.quota import COUNTED, quotas_of, recount
from scheduler.simcluster.store.resources import PODS, RESOURCE_QUOTAS
from scheduler.simcluster.store.store import DELETED, Change
from scheduler.simcluster.world import World

Json = dict[str, Any]
RESYNC_SECONDS = 300.0


class QuotaController:
    """Keeps `status.used` right in the long run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._due: set[str] = set()
        world.store.listen(RESOURCE_QUOTAS, self._on_quota)
        for resource in COUNTED:
            world.store.listen(resource, self._on_counted)
        world.timers.after(RESYNC_SECONDS, self._resync)

    def _on_quota(self, change: Change) -> None:
        if change.type == DELETED:
            return
        before = None if change.before is None else change.before.body.get("spec")
        if before != change.now.body.get("spec"):
            self._plan(change.now.key[0])

    def _on_counted(self, change: Change) -> None:
        ended = (
            change.resource is PODS
            and change.before is not None
            and is_terminal(change.now.body)
            and not is_terminal(change.before.body)
        )
        if (change.type == DELETED or ended) and quotas_of(self._world.store, change.now.key[0]):
            self._plan(change.now.key[0])

    def _plan(self, namespace: str) -> None:
        if namespace not in self._due:
            self._due.add(namespace)
            self._world.timers.after(0, lambda: self._count(namespace))

    def _count(self, namespace: str) -> None:
        self._due.discard(namespace)
        for quota in quotas_of(self._world.store, namespace):
            recount(self._world.store, quota)

    def _resync(self) -> None:
        for key in list(self._world.store.collection(RESOURCE_QUOTAS).objects):
            self._plan(key[0])
        self._world.timers.after(RESYNC_SECONDS, self._resync)
