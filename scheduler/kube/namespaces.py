"""A tenant's namespace with its pod-security labels, ResourceQuota and LimitRange, by server-side
apply; called by scheduler.reconcile.

The manifests are pure functions of `NamespaceWanted`, so that drift can be computed and tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def policy_manifest(wanted: NamespaceWanted) -> dict[str, Any]:
    """The NetworkPolicy: in come pods of the same namespace alone; out, to these, to DNS, to Muster's web process
    (nothing else in its namespace), and to what is not in the cluster; never to the machines' metadata service."""
    each_other: list[dict[str, Any]] = [{"podSelector": {}}]
    spec = {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": each_other}],
        "egress": [
            {"to": each_other},
            {"ports": [{"protocol": name, "port": DNS_PORT} for name in ("UDP", "TCP")]},
            {"to": [_MUSTER], "ports": [{"protocol": "TCP", "port": WEB_PORT}]},
            {"to": [{"ipBlock": block} for block in _OUTSIDE]},
        ],
    }
    return {**_namespaced(wanted, "NetworkPolicy", spec), "apiVersion": "networking.k8s.io/v1"}


DNS_PORT, WEB_PORT = 53, 8000
_MUSTER = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "muster-system"}},
    "podSelector": {
        "matchLabels": {"app.kubernetes.io/name": "muster", "app.kubernetes.io/component": "web"}
    },
}
# Data, registries and licences live at addresses that only the tenant knows. Link-local is where clouds serve
# the machine's own credentials.
_OUTSIDE = (
    {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]},
    {"cidr": "::/0", "except": ["fe80::/10", "fd00:ec2::254/128"]},
)


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


_COLLECTIONS: tuple[tuple[str, Callable[[NamespaceWanted], dict[str, Any]]], ...] = (
    ("resourcequotas", quota_manifest),
    ("limitranges", limit_range_manifest),
    ("networkpolicies", policy_manifest),
)


def _path(name: str, collection: str = "") -> str:
    group = "apis/networking.k8s.io/v1" if collection == "networkpolicies" else "api/v1"
    path = f"/{group}/namespaces/{quote(name, safe='')}"
    return f"{path}/{collection}/{OBJECT_NAME}" if collection else path


async def apply_namespace(connection: Connection, wanted: NamespaceWanted) -> None:
    """Make the namespace, its quota, its limit range and its network policy as wanted, in that order."""
    await connection.apply(_path(wanted.name), namespace_manifest(wanted), FIELD_MANAGER)
    for collection, manifest in _COLLECTIONS:
        await connection.apply(_path(wanted.name, collection), manifest(wanted), FIELD_MANAGER)


async def read_drift(connection: Connection, wanted: NamespaceWanted) -> tuple[str, ...]:
    """What differs from `wanted`, in words; empty when all is as it should be."""
    try:
        namespace = await connection.get(_path(wanted.name))
        found = [await connection.get(_path(wanted.name, name)) for name, _ in _COLLECTIONS]
    except NotFound as error:
        return (error.message,)
    quota, limits, policy = (each.get("spec") or {} for each in found)
    return (
        *_label_drift(namespace["metadata"].get("labels") or {}, namespace_manifest(wanted)),
        *_quota_drift(quota.get("hard") or {}, quota_manifest(wanted)["spec"]["hard"]),
        *_spec_drift("limit range", limits, limit_range_manifest(wanted)),
        *_spec_drift("network policy", policy, policy_manifest(wanted)),
    )


def _spec_drift(what: str, found: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """Which of our top-level fields do not hold what we put there; what the server adds is none."""
    wanted = manifest["spec"]
    return [
        f"{what} {name}: changed" for name in wanted if not _holds(found.get(name), wanted[name])
    ]


def _holds(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            _holds(found.get(k), v) for k, v in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(map(_holds, found, wanted))
        )
    return bool(found == wanted)


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
