"""Who must bind a pod with volumes: us, or the default scheduler; called by scheduler.reconcile.

A claim that is not bound yet, or whose volume is tied to certain nodes, needs the default
scheduler's volume binding and its last check; all others are bound by us.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from scheduler.kube.connection import Connection


async def need_default_scheduler(
    connection: Connection, namespace: str, claims: Iterable[str]
) -> tuple[str, ...]:
    """Those of `claims` that only the default scheduler can serve. `NotFound` names a missing one."""
    return tuple([c for c in sorted(set(claims)) if await _is_tied(connection, namespace, c)])


async def _is_tied(connection: Connection, namespace: str, claim: str) -> bool:
    claims = f"/api/v1/namespaces/{quote(namespace, safe='')}/persistentvolumeclaims"
    found = await connection.get(f"{claims}/{quote(claim, safe='')}")
    volume = (found.get("spec") or {}).get("volumeName")
    if (found.get("status") or {}).get("phase") != "Bound" or not volume:
        return True
    answer = await connection.get(f"/api/v1/persistentvolumes/{quote(volume, safe='')}")
    return bool((answer.get("spec") or {}).get("nodeAffinity"))
