"""Verbs on pods: create, bind, read, delete, evict, annotate, log. Called by scheduler.reconcile.

Each verb may be repeated: what is already as wanted counts as done, but only when it is ours
(same uid, or same labels and placement), never because of the name alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import aiohttp

from scheduler.kube.connection import Connection
from scheduler.kube.errors import AlreadyExists, Conflict, NotFound, Unavailable
from scheduler.kube.parse import parse_pod, parse_time
from scheduler.kube.seen import OUR_PREFIX, PodSeen

IDENTITY_LABELS = tuple(
    f"{OUR_PREFIX}{name}" for name in ("tenant", "job", "attempt", "role", "replica", "try")
)


class NotOurs(AlreadyExists):
    """The name is taken by a pod that is not the one we would create."""


@dataclass(frozen=True, slots=True)
class PodKey:
    """Which pod, beyond doubt: a name can be taken again, a uid cannot."""

    namespace: str
    name: str
    uid: str


def pod_path(namespace: str, name: str, verb: str = "") -> str:
    """`/api/v1/namespaces/N/pods/P[/verb]`."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return f"{path}/{verb}" if verb else path


async def read_pod(connection: Connection, namespace: str, name: str) -> PodSeen:
    """The pod of that name. Raises `NotFound`."""
    return parse_pod(await connection.get(pod_path(namespace, name)))


async def create_pod(connection: Connection, manifest: Mapping[str, Any]) -> PodSeen:
    """Create a pod, or find the very same one already there (after a crash or a lost answer).

    Raises `NotOurs` when the name belongs to another pod, or to one that is being deleted.
    """
    path = f"/api/v1/namespaces/{quote(manifest['metadata']['namespace'], safe='')}/pods"
    try:
        return parse_pod(await connection.post(path, manifest))
    except AlreadyExists as error:
        return await _found_instead(connection, manifest, error)


async def create_named_pod(connection: Connection, manifest: Mapping[str, Any]) -> None:
    """Create a pod whose name alone says what it is; there already is done."""
    path = f"/api/v1/namespaces/{quote(manifest['metadata']['namespace'], safe='')}/pods"
    with contextlib.suppress(AlreadyExists):
        await connection.post(path, manifest)


async def _found_instead(
    connection: Connection, manifest: Mapping[str, Any], error: AlreadyExists
) -> PodSeen:
    metadata = manifest["metadata"]
    try:
        found = await read_pod(connection, metadata["namespace"], metadata["name"])
    except NotFound:
        # It went between the two calls: the next round creates it.
        raise Unavailable(error.message, code=error.code, reason="GoneMeanwhile") from error
    if found.terminating or not is_the_same(found, metadata.get("labels") or {}):
        raise NotOurs(error.message, code=error.code, reason=error.reason) from error
    return found


def is_the_same(found: PodSeen, labels: Mapping[str, str]) -> bool:
    """True when a pod bears the identity that `labels` give: tenant, job, attempt, …, try."""
    return all(found.labels.get(name) == labels.get(name) for name in IDENTITY_LABELS)


async def bind_pod(connection: Connection, key: PodKey, node: str) -> None:
    """Bind with the uid as precondition; done already (same uid, same node) is done.

    The server checks neither the node's existence nor its room: the ledger does.
    Raises `NotFound` or `Conflict` (bound elsewhere, being deleted, another uid).
    """
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": key.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    try:
        # The answer is a Status, not a Binding: only that it came counts.
        await connection.post(pod_path(key.namespace, key.name, "binding"), body)
    except Conflict:
        found = await read_pod(connection, key.namespace, key.name)
        if found.uid != key.uid or found.node != node or found.terminating:
            raise


async def delete_pod(connection: Connection, key: PodKey, grace_seconds: int) -> bool:
    """Begin the end of that very pod with `grace_seconds`; False when it is already gone.

    Never with grace 0: a bound pod goes only when its kubelet says so.
    """
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": max(1, grace_seconds),
        "preconditions": {"uid": key.uid},
    }
    try:
        await connection.delete(pod_path(key.namespace, key.name), options)
    except NotFound:
        return False
    except Conflict:
        # Either the name has gone to another pod, or it changed under the precondition.
        return await _still_there(connection, key)
    return True


async def _still_there(connection: Connection, key: PodKey) -> bool:
    try:
        found = await read_pod(connection, key.namespace, key.name)
    except NotFound:
        return False
    if found.uid != key.uid:
        return False
    raise Unavailable(f"pod {key.name} is there, but was not deleted", code=409, reason="Conflict")


async def evict_pod(connection: Connection, key: PodKey, grace_seconds: int | None = None) -> bool:
    """Evict through the disruption budgets; False when already gone.

    Raises `TooManyRequests` (with `is_budget`) where a budget says "not now".
    """
    options: dict[str, Any] = {"preconditions": {"uid": key.uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "deleteOptions": options,
    }
    try:
        await connection.post(pod_path(key.namespace, key.name, "eviction"), body)
    except NotFound:
        return False
    except Conflict:
        return await _still_there(connection, key)
    return True


async def annotate_pod(
    connection: Connection, key: PodKey, annotations: Mapping[str, str | None]
) -> None:
    """Set annotations (None removes one) on that very pod; `Conflict` for another uid."""
    body = {"metadata": {"uid": key.uid, "annotations": dict(annotations)}}
    await connection.merge_patch(pod_path(key.namespace, key.name), body)


@dataclass(frozen=True, slots=True)
class LogRange:
    """Which part of a log: the last lines, at most so many bytes, since when."""

    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
    timestamps: bool = False

    def params(self) -> dict[str, str | int]:
        """As query parameters."""
        chosen: dict[str, str | int] = {}
        if self.tail_lines is not None:
            chosen["tailLines"] = self.tail_lines
        if self.limit_bytes is not None:
            chosen["limitBytes"] = self.limit_bytes
        if self.since is not None:
            chosen["sinceTime"] = self.since.strftime("%Y-%m-%dT%H:%M:%SZ")
        if self.timestamps:
            chosen["timestamps"] = "true"
        return chosen


async def read_log(
    connection: Connection, namespace: str, name: str, wanted: LogRange | None = None
) -> bytes:
    """A pod's log as it is now; empty for a pod without a node. Raises `NotFound`, `BadRequest`
    (its container waits to start) or `Unavailable` (its kubelet does not answer)."""
    params = (wanted or LogRange()).params()
    return await connection.get_bytes(pod_path(namespace, name, "log"), params)


async def follow_log(
    connection: Connection,
    namespace: str,
    name: str,
    wanted: LogRange | None = None,
    *,
    follow: bool = True,
) -> AsyncIterator[bytes]:
    """Pieces of a pod's log: until its container ends, or, without `follow`, as it is now.

    Raises as `read_log`, and `Unavailable` when the line drops.
    """
    params = (wanted or LogRange()).params() | ({"follow": "true"} if follow else {})
    async with connection.stream(pod_path(namespace, name, "log"), params) as reader:
        try:
            while piece := await reader.readany():
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class PodEvent:
    """What the kubelet last said of a pod (`Pulling`, `Pulled`, `Failed`, …)."""

    reason: str
    message: str
    at: datetime | None


async def last_event(connection: Connection, key: PodKey) -> PodEvent | None:
    """The newest event about that pod, if any is kept."""
    path = f"/api/v1/namespaces/{quote(key.namespace, safe='')}/events"
    answer = await connection.get(path, {"fieldSelector": f"involvedObject.uid={key.uid}"})
    events = [_event(raw) for raw in answer.get("items") or ()]
    return max(events, key=lambda e: e.at.timestamp() if e.at else 0.0, default=None)


def _event(raw: Mapping[str, Any]) -> PodEvent:
    at = raw.get("lastTimestamp") or raw.get("eventTime") or raw.get("firstTimestamp")
    return PodEvent(raw.get("reason") or "", raw.get("message") or "", parse_time(at))
