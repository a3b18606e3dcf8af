"""Verbs on pods count as done only what is ours, and say the rest."""

import asyncio
from typing import Any

import pytest

from scheduler.kube.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    TooManyRequests,
    Unavailable,
)
from scheduler.kube.manifests import NOTICE_ANNOTATION
from scheduler.kube.pods import (
    LogRange,
    NotOurs,
    PodKey,
    annotate_pod,
    bind_pod,
    create_pod,
    delete_pod,
    evict_pod,
    follow_log,
    last_event,
    read_log,
)
from tests.kube.replay import body_of, json_answer, scripted_server

OURS = {
    f"muster.dev/{name}": value
    for name, value in {
        "tenant": "a",
        "job": "job_1",
        "attempt": "1",
        "role": "main",
        "replica": "0",
        "try": "1",
    }.items()
}
MANIFEST = {"metadata": {"namespace": "team-a", "name": "a-0", "labels": OURS}}
KEY = PodKey("team-a", "a-0", body_of("read bound pod")["metadata"]["uid"])
BUSY = json_answer({"message": "busy"}, 503)


def pod(**metadata: Any) -> dict[str, Any]:
    raw = body_of("read bound pod")
    return {**raw, "metadata": {**raw["metadata"], "labels": OURS, **metadata}}


async def test_pod_is_created() -> None:
    async with scripted_server("create pod") as (script, connection):
        created = await create_pod(connection, MANIFEST)
    assert created.uid == body_of("create pod")["metadata"]["uid"]
    assert script.calls[0].path == "/api/v1/namespaces/team-a/pods"
    assert script.calls[0].body == MANIFEST


async def test_lost_answer_finds_the_pod_that_was_created() -> None:
    async with scripted_server(BUSY, "create pod again", json_answer(pod())) as (_, connection):
        assert (await create_pod(connection, MANIFEST)).uid == KEY.uid


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {**OURS, "muster.dev/job": "job_2"}},
        {"labels": {**OURS, "muster.dev/try": "2"}},
        {"labels": {}},
        {"deletionTimestamp": "2026-11-29T12:00:00Z"},
    ],
)
async def test_taken_name_is_not_ours(metadata: dict[str, Any]) -> None:
    async with scripted_server("create pod again", json_answer(pod(**metadata))) as (
        _,
        connection,
    ):
        with pytest.raises(NotOurs):
            await create_pod(connection, MANIFEST)


async def test_name_of_a_pod_being_deleted_is_not_ours() -> None:
    async with scripted_server(
        "create under the name of a pod that is being deleted", "delete a bound pod"
    ) as (_, connection):
        with pytest.raises(NotOurs, match="being deleted"):
            await create_pod(connection, MANIFEST)


async def test_name_that_frees_itself_meanwhile_is_tried_later() -> None:
    async with scripted_server("create pod again", "gone") as (_, connection):
        with pytest.raises(Unavailable):
            await create_pod(connection, MANIFEST)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pod over the quota", QuotaExceeded),
        ("privileged pod under baseline", Forbidden),
        ("bad name", Invalid),
        ("namespace missing", NotFound),
    ],
)
async def test_refused_pod_says_why(name: str, kind: type[Exception]) -> None:
    async with scripted_server(name) as (_, connection):
        with pytest.raises(kind):
            await create_pod(connection, MANIFEST)


async def test_bind_carries_the_uid() -> None:
    async with scripted_server("bind with the right uid") as (script, connection):
        await bind_pod(connection, KEY, "gpu-01")
    assert script.calls[0].body["metadata"]["uid"] == KEY.uid
    assert script.calls[0].body["target"]["name"] == "gpu-01"


async def test_bind_that_was_done_already_is_done() -> None:
    async with scripted_server(BUSY, "bind again", json_answer(pod())) as (_, connection):
        await bind_pod(connection, KEY, "gpu-01")


@pytest.mark.parametrize(
    ("node", "metadata"),
    [
        ("gpu-02", {}),
        ("gpu-01", {"uid": "another"}),
        ("gpu-01", {"deletionTimestamp": "2026-11-29T12:00:00Z"}),
    ],
)
async def test_bind_elsewhere_is_a_conflict(node: str, metadata: dict[str, Any]) -> None:
    async with scripted_server("bind again", json_answer(pod(**metadata))) as (_, connection):
        with pytest.raises(Conflict):
            await bind_pod(connection, KEY, node)


async def test_bind_of_a_missing_pod_is_not_found() -> None:
    async with scripted_server("bind missing pod") as (_, connection):
        with pytest.raises(NotFound):
            await bind_pod(connection, KEY, "gpu-01")


async def test_delete_names_uid_and_grace_and_never_forces() -> None:
    async with scripted_server("delete a bound pod", "delete a bound pod") as (script, connection):
        assert await delete_pod(connection, KEY, 45)
        assert await delete_pod(connection, KEY, 0)
    assert script.calls[0].body["preconditions"] == {"uid": KEY.uid}
    assert [c.body["gracePeriodSeconds"] for c in script.calls] == [45, 1]


async def test_delete_of_a_missing_pod_is_done() -> None:
    async with scripted_server("gone") as (_, connection):
        assert not await delete_pod(connection, KEY, 30)


async def test_delete_spares_another_pod_of_that_name() -> None:
    other = json_answer(pod(uid="another"))
    async with scripted_server("delete with uid precondition", other) as (script, connection):
        assert not await delete_pod(connection, KEY, 30)
    assert [c.method for c in script.calls] == ["DELETE", "GET"]


async def test_delete_that_conflicts_on_the_same_pod_is_tried_later() -> None:
    async with scripted_server("delete with uid precondition", json_answer(pod())) as (_, conn):
        with pytest.raises(Unavailable):
            await delete_pod(conn, KEY, 30)


async def test_eviction_honours_budgets() -> None:
    async with scripted_server("evict", "evict against the budget", "gone") as (_, connection):
        assert await evict_pod(connection, KEY, 60)
        with pytest.raises(TooManyRequests):
            await evict_pod(connection, KEY)
        assert not await evict_pod(connection, KEY)


async def test_annotation_carries_the_uid() -> None:
    async with scripted_server("label merge patch") as (script, connection):
        await annotate_pod(connection, KEY, {NOTICE_ANNOTATION: "{}", "gone": None})
    assert script.calls[0].body["metadata"]["uid"] == KEY.uid
    assert script.calls[0].headers["Content-Type"] == "application/merge-patch+json"


async def test_log_of_a_pod_without_a_node_is_empty() -> None:
    wanted = LogRange(tail_lines=10, limit_bytes=100)
    async with scripted_server("pod log of a pod without a node") as (script, connection):
        assert await read_log(connection, "default", "g-0", wanted) == b""
    assert script.calls[0].query == {"tailLines": "10", "limitBytes": "100"}


async def test_log_is_followed_to_its_end() -> None:
    async with scripted_server("readyz") as (script, connection):
        pieces = [piece async for piece in follow_log(connection, "default", "g-0")]
    assert b"".join(pieces) == b"ok"
    assert script.calls[0].query == {"follow": "true"}


async def test_newest_event_is_found() -> None:
    events = [
        {"reason": "Pulling", "message": "m", "lastTimestamp": "2026-11-29T12:00:05Z"},
        {"reason": "Scheduled", "eventTime": "2026-11-29T12:00:00.5Z"},
    ]
    async with scripted_server(json_answer({"items": events}), json_answer({"items": []})) as (
        script,
        connection,
    ):
        newest = await last_event(connection, KEY)
        assert await last_event(connection, KEY) is None
    assert newest is not None
    assert newest.reason == "Pulling"
    assert script.calls[0].query["fieldSelector"] == f"involvedObject.uid={KEY.uid}"


async def test_many_creates_go_at_once() -> None:
    answers = ["create pod"] * 64
    async with scripted_server(*answers) as (script, connection):
        await asyncio.gather(*(create_pod(connection, MANIFEST) for _ in range(64)))
    assert len(script.calls) == 64
