"""What every part of a simulated cluster shares: the store, the clock, identities, admission.

Built by `cluster.SimCluster`; handed to the API, the controllers, the kubelets and the faults.
"""

from dataclasses import dataclass
from typing import Any

from scheduler.simcluster.admission.chain import Admission
from scheduler.simcluster.clock import Clock, Timers, micro_stamp, stamp
from scheduler.simcluster.naming import Identities
from scheduler.simcluster.store.resources import EVENTS, NAMESPACES, Registry
from scheduler.simcluster.store.store import Store

Json = dict[str, Any]
EVENT_LIFE_SECONDS = 3600
FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    field_path: str = ""


class World:
    """The shared parts, and the few things that everyone does with them."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock = clock
        self.seed = seed
        self.timers = Timers(clock)
        self.store = Store()
        self.registry = Registry()
        self.identities = Identities(seed)
        self.admission = Admission(self.store, clock)
        self._event_count = 0

    def now_text(self) -> str:
        """The time now, as `metav1.Time`."""
        return stamp(self.clock.now())

    def make_namespaces(self) -> None:
        """The namespaces that every cluster has."""
        for name in FIRST_NAMESPACES:
            metadata: Json = {
                "name": name, "uid": self.identities.uid(), "creationTimestamp": self.now_text(),
                "labels": {"kubernetes.io/metadata.name": name},
            }  # fmt: skip
            body = {
                "metadata": metadata, "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }  # fmt: skip
            self.store.put(NAMESPACES, body)

    def record(self, subject: Subject, type_: str, reason: str, message: str, source: Json) -> None:
        """Writes a Kubernetes event. `source` has `component` and perhaps `host`."""
        namespace = subject.namespace or "default"
        found = self.store.get(NAMESPACES, "", namespace)
        if found is None or "deletionTimestamp" in found.body["metadata"]:
            return
        self._event_count += 1
        now = self.clock.now()
        involved: Json = {"kind": subject.kind, "name": subject.name, "apiVersion": "v1"}
        if subject.namespace:
            involved["namespace"] = subject.namespace
        if subject.uid:
            involved["uid"] = subject.uid
        if subject.field_path:
            involved["fieldPath"] = subject.field_path
        name = f"{subject.name}.{int(now * 1000) & 0xFFFFFFFFFF:x}{self._event_count:06x}"
        body: Json = {
            "metadata": {
                "name": name, "namespace": namespace, "uid": self.identities.uid(),
                "creationTimestamp": stamp(now),
            },
            "involvedObject": involved, "reason": reason, "message": message, "source": source,
            "firstTimestamp": stamp(now), "lastTimestamp": stamp(now), "count": 1, "type": type_,
            "eventTime": None, "reportingComponent": source.get("component", ""),
            "reportingInstance": source.get("host", ""),
        }  # fmt: skip
        self.store.put(EVENTS, body)

    def expire_events(self) -> None:
        """Removes events older than an hour, and asks to be called again in five minutes."""
        oldest = stamp(self.clock.now() - EVENT_LIFE_SECONDS)
        events = self.store.collection(EVENTS).objects
        old = [key for key, item in events.items() if _last_seen(item.body) < oldest]
        for key in old:
            self.store.remove(EVENTS, key)
        self.timers.after(300, self.expire_events)


def _last_seen(body: Json) -> str:
    seen = body.get("lastTimestamp") or body["metadata"]["creationTimestamp"]
    return str(seen)


def micro_now(world: World) -> str:
    """The time now, as `metav1.MicroTime`."""
    return micro_stamp(world.clock.now())
