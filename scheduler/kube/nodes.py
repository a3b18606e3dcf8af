"""Verbs on nodes: read, cordon, uncordon, taint, label. Called by scheduler.reconcile.

The list of taints can only be replaced whole, and other controllers edit it too: it is read,
edited and written with the version that was read, and read again when that version is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from scheduler.kube.connection import Connection
from scheduler.kube.errors import Conflict
from scheduler.kube.parse import parse_node
from scheduler.kube.seen import OUR_PREFIX, NodeSeen, TaintSeen

TRIES = 5
# NoSchedule, with the party that wants the node out as its value.
OUT_TAINT = f"{OUR_PREFIX}out"


def _path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


async def read_node(connection: Connection, name: str) -> NodeSeen:
    """The node of that name. Raises `NotFound`."""
    return parse_node(await connection.get(_path(name)))


async def set_cordon(connection: Connection, name: str, *, unschedulable: bool) -> NodeSeen:
    """Cordon or uncordon; repeating it changes nothing."""
    body = {"spec": {"unschedulable": unschedulable}}
    return parse_node(await connection.merge_patch(_path(name), body))


async def set_labels(
    connection: Connection, name: str, labels: Mapping[str, str | None]
) -> NodeSeen:
    """Set labels; None takes one off. All others stay."""
    body = {"metadata": {"labels": dict(labels)}}
    return parse_node(await connection.merge_patch(_path(name), body))


async def set_out_taint(connection: Connection, name: str, value: str) -> NodeSeen:
    """Put our own taint on with that value, or, with an empty one, take it off."""
    if value:
        return await add_taint(connection, name, TaintSeen(OUT_TAINT, value, "NoSchedule"))
    return await remove_taint(connection, name, OUT_TAINT, "NoSchedule")


async def add_taint(connection: Connection, name: str, taint: TaintSeen) -> NodeSeen:
    """Put a taint on, replacing one of the same key and effect; all others stay."""

    def edit(taints: Sequence[TaintSeen]) -> tuple[TaintSeen, ...]:
        others = tuple(t for t in taints if (t.key, t.effect) != (taint.key, taint.effect))
        return (*others, taint)

    return await _edit_taints(connection, name, edit)


async def remove_taint(connection: Connection, name: str, key: str, effect: str) -> NodeSeen:
    """Take a taint off; absent is done."""

    def edit(taints: Sequence[TaintSeen]) -> tuple[TaintSeen, ...]:
        return tuple(t for t in taints if (t.key, t.effect) != (key, effect))

    return await _edit_taints(connection, name, edit)


async def _edit_taints(
    connection: Connection,
    name: str,
    edit: Callable[[Sequence[TaintSeen]], tuple[TaintSeen, ...]],
) -> NodeSeen:
    for number in range(1, TRIES + 1):
        raw = await connection.get(_path(name))
        node = parse_node(raw)
        wanted = edit(node.taints)
        if set(wanted) == set(node.taints):
            return node
        try:
            return parse_node(await connection.merge_patch(_path(name), _body(raw, wanted)))
        except Conflict:
            if number == TRIES:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


def _body(raw: dict[str, Any], wanted: Sequence[TaintSeen]) -> dict[str, Any]:
    """A merge patch with the version read; taints that stay are written back as they came."""
    kept = {(t["key"], t["effect"]): t for t in (raw.get("spec") or {}).get("taints") or ()}
    taints = [_taint(t, kept.get((t.key, t.effect))) for t in wanted]
    return {
        "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
        "spec": {"taints": taints or None},
    }


def _taint(wanted: TaintSeen, found: dict[str, Any] | None) -> dict[str, Any]:
    # `timeAdded` and whatever else others keep there survives.
    if found is not None and (found.get("value") or "") == wanted.value:
        return found
    body = {"key": wanted.key, "effect": wanted.effect}
    return {**body, "value": wanted.value} if wanted.value else body
