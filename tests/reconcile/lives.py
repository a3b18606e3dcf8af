"""Rows and pods for the pure rooms, made with the fewest words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from scheduler.kube.seen import ContainerSeen, PodSeen, Requests
from scheduler.reconcile.ledger import AttemptLife, PlacementLife

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def placement(replica: int = 0, **changes: Any) -> PlacementLife:
    """A bound, waiting replica of role main on node n<replica>."""
    columns: dict[str, Any] = {
        "id": 100 + replica,
        "attempt_id": 1,
        "role": "main",
        "replica": replica,
        "rank": replica,
        "node": f"n{replica}",
        "gpus": 8,
        "try_number": 1,
        "pod_name": f"j12345678-1-main-{replica}-1",
        "pod_uid": f"u{replica}",
        "created_at": NOW,
        "bound_at": NOW,
        "delete_requested_at": None,
        "delete_sent_at": None,
        "pod_phase": "Pending",
        "waiting_reason": "",
        "waiting_since": None,
        "started_at": None,
        "ended_at": None,
        "exit_code": None,
        "end_reason": "",
        "message": "",
        "released_at": None,
        "gone_at": None,
    }
    return PlacementLife(**(columns | changes))


def running(replica: int = 0, **changes: Any) -> PlacementLife:
    return placement(replica, **({"pod_phase": "Running", "started_at": at(1)} | changes))


def ended(replica: int = 0, exit_code: int | None = 0, **changes: Any) -> PlacementLife:
    columns = {"ended_at": at(50), "exit_code": exit_code, "pod_phase": "Succeeded"}
    return running(replica, **(columns | changes))


def attempt(*placements: PlacementLife, **changes: Any) -> AttemptLife:
    """A running attempt without a limit, unless it is changed."""
    columns: dict[str, Any] = {
        "id": 1,
        "number": 1,
        "job_id": "job_1",
        "job8": "j12345678",
        "tenant": "research",
        "phase": "running",
        "decides": "main",
        "max_runtime_seconds": None,
        "grace_seconds": 30,
        "checkpoint_grace_seconds": None,
        "checkpoint_notice": "signal",
        "placed_at": NOW,
        "started_at": at(2),
        "ended_at": None,
        "stop_cause": "",
        "stop_requested_at": None,
        "stop_grace_seconds": None,
        "unknown_since": None,
        "service_created_at": NOW,
        "last_checkpoint_at": None,
        "message": "",
        "placements": list(placements),
    }
    return AttemptLife(**(columns | changes))


def starting(*placements: PlacementLife, **changes: Any) -> AttemptLife:
    return attempt(*placements, **({"phase": "starting", "started_at": None} | changes))


def container(state: str, **changes: Any) -> ContainerSeen:
    columns: dict[str, Any] = {
        "name": "main",
        "init": False,
        "state": state,
        "reason": "",
        "message": "",
        "exit_code": None,
        "started_at": None,
        "finished_at": None,
        "restarts": 0,
    }
    return ContainerSeen(**(columns | changes))


def pod(replica: int = 0, *containers: ContainerSeen, **changes: Any) -> PodSeen:
    """The pod of `placement(replica)`, as the watch shows it."""
    made = PodSeen(
        namespace="muster-research",
        name=f"j12345678-1-main-{replica}-1",
        uid=f"u{replica}",
        version="1",
        node=f"n{replica}",
        phase="Pending",
        reason="",
        message="",
        labels={
            "muster.dev/job": "job_1",
            "muster.dev/attempt": "1",
            "muster.dev/role": "main",
            "muster.dev/replica": str(replica),
            "muster.dev/try": "1",
        },
        annotations={},
        requests=Requests({"nvidia.com/gpu": 8}, 1000, 1024),
        scheduler="muster",
        owner=None,
        priority_class="muster",
        created_at=NOW,
        started_at=None,
        deleting_since=None,
        deletion_grace_seconds=None,
        disruption="",
        containers=tuple(containers),
    )
    return replace(made, **changes)
