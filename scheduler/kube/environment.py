"""The environment of a replica's container: rendezvous, Muster's own variables, preset, user;
pure. Called by `manifests` alone.

`WORLD_SIZE` and `RANK` count pods, not processes: torchrun, which gives each process its own,
reads `PET_*` and `NPROC_PER_NODE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EnvValue:
    """A value kept in a Secret of the pod's namespace."""

    secret: str
    key: str


@dataclass(frozen=True, slots=True)
class PodEnvironment:
    """All that a container's environment is made of. `gpus` is that of this replica."""

    job: str
    attempt: int
    url: str
    rank: int
    world_size: int
    min_world_size: int
    gpus: int
    master_host: str
    master_port: int
    preset: Mapping[str, str]
    user: Mapping[str, str]
    secrets: Mapping[str, EnvValue]


def environment_of(pod: PodEnvironment) -> list[dict[str, Any]]:
    """Kubernetes `env` entries. A user's value wins over the preset's, never over ours.

    Ours come first, for `$(NAME)` in a value refers only to variables before it.
    """
    ours = {**_rendezvous(pod), **_identity(pod), **_devices(pod)}
    values: dict[str, str | EnvValue] = {**ours, **pod.preset, **pod.user, **pod.secrets, **ours}
    return [_entry(name, value) for name, value in values.items()]


def _entry(name: str, value: str | EnvValue) -> dict[str, Any]:
    if isinstance(value, EnvValue):
        return {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}},
        }
    return {"name": name, "value": value}


def _rendezvous(pod: PodEnvironment) -> dict[str, str]:
    port, rank, size = str(pod.master_port), str(pod.rank), str(pod.world_size)
    processes = str(max(pod.gpus, 1))
    elastic = pod.min_world_size < pod.world_size
    return {
        "MASTER_ADDR": pod.master_host,
        "MASTER_PORT": port,
        "WORLD_SIZE": size,
        "RANK": rank,
        "NNODES": size,
        "NODE_RANK": rank,
        "NPROC_PER_NODE": processes,
        "PET_NNODES": f"{pod.min_world_size}:{size}" if elastic else size,
        "PET_NPROC_PER_NODE": processes,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": pod.master_host,
        "PET_MASTER_PORT": port,
    }


def _identity(pod: PodEnvironment) -> dict[str, str]:
    return {"MUSTER_JOB": pod.job, "MUSTER_ATTEMPT": str(pod.attempt), "MUSTER_URL": pod.url}


def _devices(pod: PodEnvironment) -> dict[str, str]:
    # Many images set NVIDIA_VISIBLE_DEVICES=all; a pod without GPUs would see every one.
    return {} if pod.gpus else {"NVIDIA_VISIBLE_DEVICES": "void"}
