"""A witness on the Kubernetes API: follows all pods there and judges what it saw, knowing none of our rows.

DESIGN section 9: no GPU is given twice; the number of bound, unfinished pods of an attempt is 0 or at least
`min_replicas`, except for at most 30 s while binding, during rollback, and after its first pod ended or was lost.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

GPU = "nvidia.com/gpu"
PARTIAL_SECONDS = 30.0
# After the first pod ended or was asked to, the others get their grace (30 s unless a job says otherwise) as well.
WINDING_DOWN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """One pod as the API server showed it at a moment (seconds, monotonic)."""

    at: float
    deleted: bool
    uid: str
    name: str
    job: str
    attempt: str
    node: str
    gpus: int
    phase: str
    terminating: bool

    @property
    def holds_gpus(self) -> bool:
        """Bound and not finished: what counts against a node and as a member of its gang."""
        return bool(self.node) and not self.deleted and self.phase not in {"Succeeded", "Failed"}


def sighting_of(event: Mapping[str, Any], at: float) -> Sighting:
    """Read a watch event of a pod."""
    pod = event["object"]
    labels = pod["metadata"].get("labels") or {}
    containers = pod["spec"]["containers"]
    requests = [(c.get("resources") or {}).get("requests") or {} for c in containers]
    return Sighting(
        at=at,
        deleted=event["type"] == "DELETED",
        uid=pod["metadata"]["uid"],
        name=pod["metadata"]["name"],
        job=labels.get("muster.dev/job", ""),
        attempt=labels.get("muster.dev/attempt", ""),
        node=pod["spec"].get("nodeName") or "",
        gpus=sum(int(r.get(GPU, 0)) for r in requests),
        phase=(pod.get("status") or {}).get("phase", ""),
        terminating="deletionTimestamp" in pod["metadata"],
    )


def gpus_given_twice(sightings: Iterable[Sighting], gpus_of_node: Mapping[str, int]) -> list[str]:
    """Every moment at which bound, unfinished pods asked more of a node than it has."""
    found: list[str] = []
    now_there: dict[str, Sighting] = {}
    used: dict[str, int] = defaultdict(int)
    for seen in sightings:
        before = now_there.get(seen.uid)
        if before is not None and before.holds_gpus:
            used[before.node] -= before.gpus
        now_there[seen.uid] = seen
        if seen.holds_gpus:
            used[seen.node] += seen.gpus
            if used[seen.node] > gpus_of_node[seen.node]:
                found.append(f"{seen.node}: {used[seen.node]} GPUs in use when {seen.name} came")
    return found


@dataclass(slots=True)
class _Gang:
    """What the witness remembers of one attempt."""

    pods: dict[str, Sighting] = field(default_factory=dict)
    partial_since: float | None = None
    has_lost_one: bool = False

    @property
    def bound(self) -> int:
        return sum(p.holds_gpus for p in self.pods.values())


def gangs_in_part(
    sightings: Iterable[Sighting], min_replicas: Mapping[str, int], ended_at: float
) -> list[str]:
    """Attempts that held some of their GPUs for longer than binding or rolling back may take.

    min_replicas: by job label. ended_at: when the witness stopped looking (seconds, monotonic).
    """
    found: list[str] = []
    gangs: dict[tuple[str, str], _Gang] = defaultdict(_Gang)
    for seen in sightings:
        if not seen.job:
            continue
        gang = gangs[seen.job, seen.attempt]
        _complain_if_late(gang, seen.at, (seen.job, seen.attempt), found)
        gang.pods[seen.uid] = seen
        loses_one = bool(seen.node) and (not seen.holds_gpus or seen.terminating)
        if loses_one and not gang.has_lost_one:
            gang.has_lost_one, gang.partial_since = True, None
        partial = 0 < gang.bound < min_replicas[seen.job]
        gang.partial_since = (gang.partial_since or seen.at) if partial else None
    for key, gang in gangs.items():
        _complain_if_late(gang, ended_at, key, found)
    return found


def _complain_if_late(gang: _Gang, now: float, key: tuple[str, str], found: list[str]) -> None:
    allowed = WINDING_DOWN_SECONDS if gang.has_lost_one else PARTIAL_SECONDS
    if gang.partial_since is not None and now - gang.partial_since > allowed:
        found.append(f"{key}: {gang.bound} pods bound for {now - gang.partial_since:.0f} s")
        gang.partial_since = None


class Witness:
    """Watches pods in a thread: `with Witness(kubeconfig) as witness: …; witness.sightings`."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self.server: str = config["clusters"][0]["cluster"]["server"]
        token = config["users"][0]["user"].get("token", "")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.sightings: list[Sighting] = []
        self._version = ""
        self._seen = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness", daemon=True)

    def __enter__(self) -> "Witness":
        self._thread.start()
        assert self._seen.wait(10), "the witness could not open its watch"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)

    def get(self, path: str) -> Any:
        """GET on the Kubernetes API."""
        answer = httpx.get(f"{self.server}{path}", headers=self._headers, timeout=20)
        answer.raise_for_status()
        return answer.json()

    def gpus_of_nodes(self) -> dict[str, int]:
        """Allocatable GPUs by node."""
        nodes = self.get("/api/v1/nodes")["items"]
        return {n["metadata"]["name"]: int(n["status"]["allocatable"].get(GPU, 0)) for n in nodes}

    def pods_now(self) -> list[Any]:
        """Pods that bear our labels."""
        found: list[Any] = self.get("/api/v1/pods?labelSelector=muster.dev/job")["items"]
        return found

    def delete_pod(self, pod: Mapping[str, Any]) -> None:
        """Delete a pod as a person with kubectl would."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        httpx.delete(f"{self.server}{path}", headers=self._headers, timeout=20).raise_for_status()

    @staticmethod
    def now() -> float:
        """The clock of the sightings."""
        return time.monotonic()

    def _watch(self) -> None:
        listed = self.get("/api/v1/pods")
        self._version = listed["metadata"]["resourceVersion"]
        for pod in listed["items"]:
            self.sightings.append(sighting_of({"type": "ADDED", "object": pod}, time.monotonic()))
        while not self._stop.is_set():
            try:
                self._watch_on()
            except httpx.HTTPError:
                self._stop.wait(0.05)

    def _watch_on(self) -> None:
        query = {"watch": "1", "resourceVersion": self._version, "timeoutSeconds": "300"}
        # The read time-out is how often a quiet watch looks whether it should stop.
        options: Any = {
            "params": query,
            "headers": self._headers,
            "timeout": httpx.Timeout(10, read=1),
        }
        with httpx.stream("GET", f"{self.server}/api/v1/pods", **options) as answer:
            answer.raise_for_status()
            self._seen.set()
            for line in answer.iter_lines():
                event = json.loads(line)
                assert event["type"] != "ERROR", event
                self._version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.sightings.append(sighting_of(event, time.monotonic()))
                if self._stop.is_set():
                    return
