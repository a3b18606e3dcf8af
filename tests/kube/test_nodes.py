"""Cordons and taints leave alone what others put on a node."""

from typing import Any

import pytest

from scheduler.kube.errors import Conflict, Invalid
from scheduler.kube.nodes import add_taint, read_node, remove_taint, set_cordon
from scheduler.kube.seen import TaintSeen
from tests.kube.replay import Answer, body_of, json_answer, scripted_server

STALE = "replace with a stale resourceVersion"
BAD = TaintSeen("muster.dev/unhealthy", "xid-79", "NoSchedule")
THEIRS = {
    "key": "node.kubernetes.io/unreachable",
    "effect": "NoExecute",
    "timeAdded": "2026-11-29T11:00:00Z",
}


def node(*taints: dict[str, Any], version: str = "7") -> dict[str, Any]:
    raw = body_of("create node")
    return {
        **raw,
        "metadata": {**raw["metadata"], "resourceVersion": version},
        "spec": {"taints": list(taints)} if taints else {},
    }


async def test_cordon_is_a_merge_patch() -> None:
    async with scripted_server("cordon") as (script, connection):
        assert (await set_cordon(connection, "gpu-02", unschedulable=True)).unschedulable
    assert script.calls[0].body == {"spec": {"unschedulable": True}}


async def test_taint_is_added_beside_others_with_the_version_read() -> None:
    async with scripted_server(json_answer(node(THEIRS)), "taint") as (script, connection):
        await add_taint(connection, "gpu-01", BAD)
    sent = script.calls[1].body
    assert sent["metadata"]["resourceVersion"] == "7"
    assert sent["spec"]["taints"] == [
        THEIRS,
        {"key": BAD.key, "value": BAD.value, "effect": BAD.effect},
    ]


async def test_stale_version_is_read_again() -> None:
    async with scripted_server(
        json_answer(node()), STALE, json_answer(node(THEIRS, version="8")), "taint"
    ) as (script, connection):
        await add_taint(connection, "gpu-01", BAD)
    assert script.calls[3].body["metadata"]["resourceVersion"] == "8"
    assert THEIRS in script.calls[3].body["spec"]["taints"]


async def test_endless_conflict_is_told() -> None:
    answers: list[str | Answer] = [json_answer(node()), STALE] * 5
    async with scripted_server(*answers) as (script, connection):
        with pytest.raises(Conflict):
            await add_taint(connection, "gpu-01", BAD)
    assert len(script.calls) == 10


async def test_taint_that_is_there_is_not_written() -> None:
    there = {"key": BAD.key, "value": BAD.value, "effect": BAD.effect}
    async with scripted_server(json_answer(node(there))) as (script, connection):
        await add_taint(connection, "gpu-01", BAD)
    assert [c.method for c in script.calls] == ["GET"]


async def test_taint_with_a_new_value_replaces_the_old() -> None:
    there = {"key": BAD.key, "value": "xid-31", "effect": BAD.effect}
    async with scripted_server(json_answer(node(there)), "taint") as (script, connection):
        await add_taint(connection, "gpu-01", BAD)
    assert [t["value"] for t in script.calls[1].body["spec"]["taints"]] == ["xid-79"]


async def test_taint_is_removed_and_others_stay() -> None:
    there = {"key": BAD.key, "effect": BAD.effect}
    async with scripted_server(json_answer(node(there, THEIRS)), "taint", json_answer(node())) as (
        script,
        connection,
    ):
        await remove_taint(connection, "gpu-01", BAD.key, BAD.effect)
        await remove_taint(connection, "gpu-01", BAD.key, BAD.effect)
    assert script.calls[1].body["spec"]["taints"] == [THEIRS]
    assert len(script.calls) == 3


async def test_unknown_effect_is_invalid() -> None:
    async with scripted_server(json_answer(node()), "bad taint effect") as (_, connection):
        with pytest.raises(Invalid):
            await add_taint(connection, "gpu-01", TaintSeen("a", "", "Nope"))


async def test_node_is_read() -> None:
    async with scripted_server("create node") as (script, connection):
        assert (await read_node(connection, "gpu 01/x")).name == "gpu-01"
    assert script.calls[0].path == "/api/v1/nodes/gpu 01/x"
