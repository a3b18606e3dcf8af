"""What became of an action; made by `enact`, written into rows by `tick`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.kube.errors import KubeError
from scheduler.kube.seen import PodSeen
from scheduler.reconcile.view import AttemptKey


@dataclass(frozen=True, slots=True)
class Launched:
    """Pods created (or found to be there) by placement, and refusals. `refusal` concerns the
    whole attempt: its namespace, Service, Secret or claims."""

    key: AttemptKey
    pods: Mapping[int, PodSeen]
    errors: Mapping[int, KubeError]
    refusal: KubeError | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """Placements whose pods are bound, and refusals."""

    key: AttemptKey
    done: tuple[int, ...]
    errors: Mapping[int, KubeError]


@dataclass(frozen=True, slots=True)
class DeleteSent:
    """The end of a placement's pod has begun (or had come already)."""

    placement_id: int
    key: AttemptKey


@dataclass(frozen=True, slots=True)
class LogKept:
    """A placement's log is in the store, or, with `size` None, can no longer be had."""

    placement_id: int
    key: AttemptKey
    size: int | None
    final: bool


@dataclass(frozen=True, slots=True)
class StartChecked:
    """Whether any pod that has not started is pulling its image."""

    key: AttemptKey
    pulling: bool


@dataclass(frozen=True, slots=True)
class ObjectsRemoved:
    """Service and Secret of an ended attempt are gone."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Again:
    """Something did not work out, and its back-off is over: look at the attempt again."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class LookAtNode:
    """The same for a node."""

    node: str


@dataclass(frozen=True, slots=True)
class NamespaceRead:
    """A tenant's namespace was compared with what is wanted: what differed, in words."""

    name: str
    differences: tuple[str, ...]


OfAttempt = Launched | Bound | DeleteSent | LogKept | StartChecked | ObjectsRemoved | Again
Result = OfAttempt | LookAtNode | NamespaceRead
