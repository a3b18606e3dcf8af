"""A tenant's namespace with its pod-security labels, ResourceQuota and LimitRange, by server-side
apply; called by scheduler.reconcile.

The manifests are pure functions of `NamespaceWanted`, so that drift can be computed and tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from scheduler.kube.connection import Connection
from scheduler.kube.errors import NotFound
from scheduler.kube.quantities import exact
from scheduler.kube.seen import OUR_PREFIX

FIELD_MANAGER = "muster"
OBJECT_NAME = "muster"


@dataclass(frozen=True, slots=True)
class NamespaceWanted:
    """What a tenant's namespace should look like.

    `quota` gives the ceiling per device resource (`nvidia.com/gpu` → 256); a resource without a
    ceiling is left out. `devices` names every device resource that a pod there could ask for.
    `security` is the Pod Security level that is enforced.
    """

    name: str
    tenant: str
    security: str
    quota: Mapping[str, int]
    devices: tuple[str, ...]


def namespace_manifest(wanted: NamespaceWanted) -> dict[str, Any]:
    """The Namespace. Warnings and audit stay at `restricted` where a preset asked for less."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": wanted.name,
            "labels": {
                f"{OUR_PREFIX}tenant": wanted.tenant,
                f"{OUR_PREFIX}schema": "1",
                "pod-security.kubernetes.io/enforce": wanted.security,
                "pod-security.kubernetes.io/audit": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            },
        },
    }


def quota_manifest(wanted: NamespaceWanted) -> dict[str, Any]:
    """The ResourceQuota: `requests.` keys alone, for nothing honours `limits.` of a device."""
    hard = {f"requests.{name}": str(amount) for name, amount in sorted(wanted.quota.items())}
    return _namespaced(wanted, "ResourceQuota", {"hard": hard})


def limit_range_manifest(wanted: NamespaceWanted) -> dict[str, Any]:
    """The LimitRange. It states 0 for every device: with a `max` alone the server would hand
    that many GPUs to every container that asks for none."""
    nothing = dict.fromkeys(sorted(wanted.devices), "0")
    limit = {"type": "Container", "default": nothing, "defaultRequest": dict(nothing)}
    return _namespaced(wanted, "LimitRange", {"limits": [limit]})


def _namespaced(wanted: NamespaceWanted, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": OBJECT_NAME,
            "namespace": wanted.name,
            "labels": {f"{OUR_PREFIX}tenant": wanted.tenant},
        },
        "spec": spec,
    }


def _path(name: str, collection: str = "") -> str:
    path = f"/api/v1/namespaces/{quote(name, safe='')}"
    return f"{path}/{collection}/{OBJECT_NAME}" if collection else path


async def apply_namespace(connection: Connection, wanted: NamespaceWanted) -> None:
    """Make the namespace, its quota and its limit range as wanted, in that order."""
    await connection.apply(_path(wanted.name), namespace_manifest(wanted), FIELD_MANAGER)
    for path, manifest in (
        (_path(wanted.name, "resourcequotas"), quota_manifest(wanted)),
        (_path(wanted.name, "limitranges"), limit_range_manifest(wanted)),
    ):
        await connection.apply(path, manifest, FIELD_MANAGER)


async def read_drift(connection: Connection, wanted: NamespaceWanted) -> tuple[str, ...]:
    """What differs from `wanted`, in words; empty when all is as it should be."""
    try:
        namespace = await connection.get(_path(wanted.name))
        quota = await connection.get(_path(wanted.name, "resourcequotas"))
    except NotFound as error:
        return (error.message,)
    return (
        *_label_drift(namespace["metadata"].get("labels") or {}, namespace_manifest(wanted)),
        *_quota_drift(quota["spec"].get("hard") or {}, quota_manifest(wanted)["spec"]["hard"]),
    )


def _label_drift(found: Mapping[str, str], manifest: Mapping[str, Any]) -> list[str]:
    wanted = manifest["metadata"]["labels"]
    return [
        f"label {name}: {found.get(name)!r}, wanted {value!r}"
        for name, value in wanted.items()
        if found.get(name) != value
    ]


def _quota_drift(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    return [
        f"quota {name}: {found.get(name)!r}, wanted {wanted.get(name)!r}"
        for name in sorted({*found, *wanted})
        if (name in found) != (name in wanted) or exact(found[name]) != exact(wanted[name])
    ]
