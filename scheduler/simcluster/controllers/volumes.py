"""The volume controller: gives claims their volumes, at once or when a pod has been placed.

Shipped storage classes: `standard` (default, bound at once, reachable from everywhere) and `local`
(bound to the node that the default scheduler has chosen).
"""

from typing import Any

from scheduler.simcluster.quantities import milli
from scheduler.simcluster.store.resources import CLAIMS, STORAGE_CLASSES, VOLUMES
from scheduler.simcluster.store.store import DELETED, Change, Key, Stored
from scheduler.simcluster.world import World

Json = dict[str, Any]
SELECTED_NODE = "volume.kubernetes.io/selected-node"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
WAITS = "WaitForFirstConsumer"


class VolumeController:
    """Binds persistent volume claims."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.store.listen(CLAIMS, self._on_claim)
        world.store.listen(VOLUMES, self._on_volume)

    def make_classes(self) -> None:
        """Stores the shipped storage classes."""
        for name, mode, default in (("standard", "Immediate", "true"), ("local", WAITS, "false")):
            metadata = {
                "name": name, "uid": self._world.identities.uid(),
                "creationTimestamp": self._world.now_text(),
                "annotations": {DEFAULT_CLASS: default},
            }  # fmt: skip
            self._world.store.put(
                STORAGE_CLASSES,
                {"metadata": metadata, "provisioner": f"sim.muster.dev/{name}",
                 "reclaimPolicy": "Delete", "volumeBindingMode": mode},
            )  # fmt: skip

    def _on_claim(self, change: Change) -> None:
        key = change.now.key
        if change.type == DELETED:
            name = (change.now.body.get("spec") or {}).get("volumeName")
            if name:
                self._world.timers.after(0.1, lambda: self._release(name))
        elif (change.now.body.get("status") or {}).get("phase") != "Bound":
            self._world.timers.after(0.1, lambda: self._bind(key))

    def _on_volume(self, change: Change) -> None:
        if change.before is None:
            key = change.now.key
            self._world.timers.after(0.05, lambda: self._offer(key))

    def _offer(self, key: Key) -> None:
        stored = self._world.store.get(VOLUMES, *key)
        if stored is None or (stored.body.get("status") or {}).get("phase") != "Pending":
            return
        self._world.store.put(VOLUMES, {**stored.body, "status": {"phase": "Available"}})
        for claim in list(self._world.store.collection(CLAIMS).objects):
            self._bind(claim)

    def _bind(self, key: Key) -> None:
        claim = self._world.store.get(CLAIMS, *key)
        if claim is None or (claim.body.get("status") or {}).get("phase") == "Bound":
            return
        found = self._matching(claim)
        if found is not None:
            self._tie(claim, found)
            return
        class_ = self._class_of(claim)
        if class_ is None:
            return
        node = (claim.body["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if class_.body.get("volumeBindingMode") == WAITS and not node:
            return
        self._tie(claim, self._provision(claim, class_, node))

    def _class_of(self, claim: Stored) -> Stored | None:
        classes = self._world.store.collection(STORAGE_CLASSES).objects
        name = claim.body["spec"].get("storageClassName")
        if name is not None:
            return classes.get(("", name))
        for class_ in classes.values():
            notes = class_.body["metadata"].get("annotations") or {}
            if notes.get(DEFAULT_CLASS) == "true":
                return class_
        return None

    def _matching(self, claim: Stored) -> Stored | None:
        spec = claim.body["spec"]
        wanted = milli(_request(claim))
        for volume in self._world.store.collection(VOLUMES).objects.values():
            offered = volume.body["spec"]
            if spec.get("volumeName") and spec["volumeName"] != volume.key[1]:
                continue
            free = (volume.body.get("status") or {}).get("phase") == "Available"
            same_class = offered.get("storageClassName", "") == (spec.get("storageClassName") or "")
            if (
                free
                and same_class
                and milli((offered.get("capacity") or {}).get("storage", "0")) >= wanted
            ):
                return volume
        return None

    def _provision(self, claim: Stored, class_: Stored, node: str | None) -> Stored:
        uid = claim.body["metadata"]["uid"]
        spec: Json = {
            "capacity": {"storage": _request(claim)},
            "accessModes": claim.body["spec"].get("accessModes") or ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": class_.body.get("reclaimPolicy", "Delete"),
            "storageClassName": class_.key[1], "volumeMode": "Filesystem",
            "csi": {"driver": class_.body["provisioner"], "volumeHandle": uid},
        }  # fmt: skip
        if node:
            expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
            spec["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            }
        metadata = {
            "name": f"pvc-{uid}", "uid": self._world.identities.uid(),
            "creationTimestamp": self._world.now_text(),
            "annotations": {"pv.kubernetes.io/provisioned-by": class_.body["provisioner"]},
        }  # fmt: skip
        body = {"metadata": metadata, "spec": spec, "status": {"phase": "Available"}}
        return self._world.store.put(VOLUMES, body)

    def _tie(self, claim: Stored, volume: Stored) -> None:
        reference = {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": claim.key[0],
            "name": claim.key[1], "uid": claim.body["metadata"]["uid"],
        }  # fmt: skip
        spec = {**volume.body["spec"], "claimRef": reference}
        self._world.store.put(VOLUMES, {**volume.body, "spec": spec, "status": {"phase": "Bound"}})
        claimed = {**claim.body["spec"], "volumeName": volume.key[1]}
        claimed.setdefault("storageClassName", volume.body["spec"].get("storageClassName", ""))
        status = {
            "phase": "Bound", "accessModes": volume.body["spec"].get("accessModes") or [],
            "capacity": volume.body["spec"].get("capacity") or {},
        }  # fmt: skip
        self._world.store.put(CLAIMS, {**claim.body, "spec": claimed, "status": status})

    def _release(self, name: str) -> None:
        volume = self._world.store.get(VOLUMES, "", name)
        if volume is None:
            return
        if volume.body["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            self._world.store.remove(VOLUMES, volume.key)
        else:
            self._world.store.put(VOLUMES, {**volume.body, "status": {"phase": "Released"}})


def _request(claim: Stored) -> str:
    requests = (claim.body["spec"].get("resources") or {}).get("requests") or {}
    return str(requests.get("storage", "1Gi"))
