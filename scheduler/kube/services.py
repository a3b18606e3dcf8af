"""The headless Service and the Secret of an attempt; called by scheduler.reconcile.

The Service gives every replica a DNS name before it is ready. The Secret holds what the pods read
as environment and nobody else should see: the tenant's secrets that the job names, and the
attempt's own token. Both bear the attempt's name, and go when its pods have gone.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from scheduler.kube.connection import Connection
from scheduler.kube.errors import AlreadyExists, Conflict, NotFound
from scheduler.kube.manifests import AttemptName
from scheduler.kube.namespaces import FIELD_MANAGER
from scheduler.kube.seen import OUR_PREFIX

COLLECTIONS = ("services", "secrets")


def service_manifest(attempt: AttemptName, port: int) -> dict[str, Any]:
    """A headless Service that publishes addresses before the pods are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(attempt),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {
                f"{OUR_PREFIX}job": attempt.job,
                f"{OUR_PREFIX}attempt": str(attempt.number),
            },
            "ports": [{"name": "master", "port": port, "protocol": "TCP"}],
        },
    }


def secret_manifest(attempt: AttemptName, values: Mapping[str, str]) -> dict[str, Any]:
    """An Opaque Secret with one key per environment variable."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(attempt),
        "type": "Opaque",
        "data": {k: base64.b64encode(v.encode()).decode() for k, v in sorted(values.items())},
    }


def pull_secret_manifest(namespace: str, name: str, docker_config: str) -> dict[str, Any]:
    """A registry's credentials under the tenant's own name for them."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {f"{OUR_PREFIX}schema": "1", f"{OUR_PREFIX}secret": "pull"},
        },
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(docker_config.encode()).decode()},
    }


def _metadata(attempt: AttemptName) -> dict[str, Any]:
    return {
        "name": attempt.service,
        "namespace": attempt.namespace,
        "labels": {
            f"{OUR_PREFIX}tenant": attempt.tenant,
            f"{OUR_PREFIX}job": attempt.job,
            f"{OUR_PREFIX}attempt": str(attempt.number),
            f"{OUR_PREFIX}schema": "1",
        },
    }


async def make_object(connection: Connection, collection: str, manifest: Mapping[str, Any]) -> str:
    """Create a Service or Secret in its namespace; its uid. One that is there already is applied."""
    metadata = manifest["metadata"]
    try:
        answer = await connection.post(_path(metadata["namespace"], collection), manifest)
    except AlreadyExists:
        return await apply_object(connection, collection, manifest)
    return str(answer["metadata"]["uid"])


async def apply_object(connection: Connection, collection: str, manifest: Mapping[str, Any]) -> str:
    """Server-side apply of a Service or Secret in its namespace; its uid."""
    metadata = manifest["metadata"]
    path = _path(metadata["namespace"], collection, metadata["name"])
    answer = await connection.apply(path, manifest, FIELD_MANAGER)
    return str(answer["metadata"]["uid"])


async def remove_attempt_objects(
    connection: Connection, namespace: str, name: str, uids: Mapping[str, str]
) -> None:
    """Delete the attempt's Service and Secret; absent is done. `uids` by collection, where they are known: whose an
    object is need not be asked then."""
    for collection in COLLECTIONS:
        await _remove(connection, _path(namespace, collection, name), uids.get(collection))


async def _remove(connection: Connection, path: str, uid: str | None) -> None:
    try:
        if uid is None:
            found = await connection.get(path)
            labels = found["metadata"].get("labels") or {}
            if f"{OUR_PREFIX}attempt" not in labels:
                return
            uid = found["metadata"]["uid"]
        await connection.delete(path, {"preconditions": {"uid": uid}})
    except (NotFound, Conflict):
        return


def _path(namespace: str, collection: str, name: str = "") -> str:
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/{collection}"
    return f"{path}/{quote(name, safe='')}" if name else path
