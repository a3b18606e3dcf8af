"""A watch survives all that a server and a network do, and never takes unknown for absent."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from scheduler.kube.connection import Connection
from scheduler.kube.watching import (
    NODES,
    PODS,
    Changed,
    Gone,
    Listed,
    Pace,
    Standing,
    Watch,
    WatchState,
)
from tests.kube.replay import (
    EXCHANGES,
    Answer,
    body_of,
    cut,
    json_answer,
    scripted_server,
    stream,
)

NOW = datetime(2026, 11, 29, tzinfo=UTC)
BUSY = json_answer({"message": "busy"}, 503)


def pod(name: str, version: str) -> dict[str, Any]:
    raw = body_of("read bound pod")
    return {**raw, "metadata": {**raw["metadata"], "name": name, "resourceVersion": version}}


def listed(version: str, *names: str, token: str | None = None) -> Answer:
    metadata = {"resourceVersion": version}
    if token:
        metadata["continue"] = token
    return json_answer({"metadata": metadata, "items": [pod(n, version) for n in names]})


def event(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "object": pod(name, version)}


def bookmark(version: str) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version}}}


def expired() -> Answer:
    lines = EXCHANGES["watch from a version that is no longer kept"]["response"]["lines"]
    return stream(lines)


async def gather(
    connection: Connection, count: int, pace: Pace | None = None
) -> tuple[list[str], list[WatchState], Watch[Any]]:
    """The first `count` observations in short, the states passed through, the watch."""
    states: list[WatchState] = []

    def note(standing: Standing) -> None:
        states.append(standing.state)

    watch = Watch(connection, PODS, pace=pace, clock=lambda: NOW, on_standing=note)
    seen: list[str] = []

    async def read() -> None:
        async for one in watch.observations():
            match one:
                case Listed(items, _):
                    seen.append("list " + " ".join(p.name for p in items))
                case Changed(item):
                    seen.append(f"changed {item.name}")
                case Gone(item):
                    seen.append(f"gone {item.name}")
            if len(seen) == count:
                return

    await asyncio.wait_for(read(), 5.0)
    return seen, states, watch


async def test_list_comes_in_pages_and_changes_follow() -> None:
    changes = stream([event("ADDED", "c", "11"), event("DELETED", "a", "12")], then_hang=True)
    async with scripted_server(listed("9", "a", token="more"), listed("9", "b"), changes) as (
        script,
        connection,
    ):
        seen, states, _ = await gather(connection, 3)
    assert seen == ["list a b", "changed c", "gone a"]
    assert script.calls[0].query == {"limit": "500"}
    assert script.calls[1].query["continue"] == "more"
    assert script.calls[2].query["resourceVersion"] == "9"
    assert script.calls[2].query["allowWatchBookmarks"] == "true"
    assert states == [WatchState.CATCHING_UP, WatchState.LIVE]


async def test_watch_that_ends_goes_on_from_the_bookmark() -> None:
    async with scripted_server(
        listed("1"),
        stream([event("ADDED", "a", "5"), bookmark("77")]),
        stream([event("ADDED", "b", "78")], then_hang=True),
    ) as (script, connection):
        seen, _, _ = await gather(connection, 3)
    assert seen == ["list ", "changed a", "changed b"]
    assert script.calls[2].query["resourceVersion"] == "77"


async def test_expired_version_lists_again() -> None:
    async with scripted_server(listed("1", "a"), expired(), listed("400", "b")) as (_, connection):
        seen, states, _ = await gather(connection, 2)
    assert seen == ["list a", "list b"]
    assert WatchState.UNREACHABLE not in states


async def test_expired_by_status_lists_again() -> None:
    gone = json_answer({"message": "too old", "reason": "Expired"}, 410)
    async with scripted_server(listed("1", "a"), gone, listed("400", "b")) as (_, connection):
        seen, _, _ = await gather(connection, 2)
    assert seen == ["list a", "list b"]


async def test_failed_list_yields_nothing_and_shows_unreachable() -> None:
    async with scripted_server(BUSY, cut, BUSY, listed("1", "a")) as (_, connection):
        seen, states, _ = await gather(connection, 1)
    assert seen == ["list a"]
    assert WatchState.UNREACHABLE in states


async def test_page_that_fails_discards_the_pages_before() -> None:
    async with scripted_server(
        listed("1", "a", token="more"), BUSY, listed("2", "a", token="more"), listed("2", "b")
    ) as (_, connection):
        seen, _, _ = await gather(connection, 1)
    assert seen == ["list a b"]


async def test_expired_continue_token_begins_the_list_again() -> None:
    gone = json_answer({"message": "token too old", "reason": "Expired"}, 410)
    async with scripted_server(listed("1", "a", token="more"), gone, listed("2", "z")) as (
        script,
        connection,
    ):
        seen, _, _ = await gather(connection, 1)
    assert seen == ["list z"]
    assert "continue" not in script.calls[2].query


async def test_dropped_connection_resumes_where_it_was() -> None:
    async with scripted_server(
        listed("1"),
        stream([event("ADDED", "a", "5")], then_cut=True),
        stream([event("ADDED", "b", "6")], then_hang=True),
    ) as (script, connection):
        seen, _, _ = await gather(connection, 3)
    assert seen == ["list ", "changed a", "changed b"]
    assert script.calls[2].query["resourceVersion"] == "5"


async def test_repeated_failure_lists_again() -> None:
    async with scripted_server(listed("1", "a"), BUSY, BUSY, listed("2", "a")) as (_, connection):
        seen, _, _ = await gather(connection, 2)
    assert seen == ["list a", "list a"]


async def test_silent_stall_is_noticed() -> None:
    pace = Pace(stall_seconds=0.05)
    async with scripted_server(
        listed("1"),
        stream([event("ADDED", "a", "5")], then_hang=True),
        stream([event("ADDED", "b", "6")], then_hang=True),
    ) as (_, connection):
        seen, states, _ = await gather(connection, 3, pace)
    assert seen == ["list ", "changed a", "changed b"]
    assert states.count(WatchState.LIVE) == 2


async def test_lines_split_over_chunks_are_joined() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        text = json.dumps(event("ADDED", "a", "5")) + "\n" + json.dumps(event("ADDED", "b", "6"))
        for start in range(0, len(text), 100):
            await response.write(text[start : start + 100].encode())
            await asyncio.sleep(0)
        await response.write(b"\n\n")
        await asyncio.sleep(60)
        return response

    async with scripted_server(listed("1"), answer) as (_, connection):
        seen, _, _ = await gather(connection, 3)
    assert seen == ["list ", "changed a", "changed b"]


async def test_object_that_cannot_be_read_does_not_end_the_watch() -> None:
    broken = {"type": "ADDED", "object": {"metadata": {"resourceVersion": "5"}}}
    async with scripted_server(
        listed("1", "a"), stream([broken]), stream([event("ADDED", "b", "6")], then_hang=True)
    ) as (script, connection):
        seen, _, _ = await gather(connection, 2)
    assert seen == ["list a", "changed b"]
    assert script.calls[2].query["resourceVersion"] == "1"


async def test_missing_right_shows_unreachable_with_the_cause() -> None:
    standings: list[Standing] = []
    async with scripted_server("no role", "no role", listed("1")) as (_, connection):
        watch = Watch(connection, NODES, clock=lambda: NOW, on_standing=standings.append)

        async def first() -> None:
            async for _ in watch.observations():
                return

        await asyncio.wait_for(first(), 5.0)
    refused = [s for s in standings if s.state is WatchState.UNREACHABLE]
    assert refused
    assert "cannot list resource" in refused[0].problem


async def test_recorded_bookmark_is_understood() -> None:
    async with scripted_server(
        json_answer({"metadata": {"resourceVersion": "236"}, "items": []}),
        "watch with bookmarks",
        stream([], then_hang=True),
    ) as (script, connection):
        watch = Watch(connection, NODES, clock=lambda: NOW)

        async def read() -> None:
            async for _ in watch.observations():
                pass

        task = asyncio.create_task(read())
        async with asyncio.timeout(5.0):
            while len(script.calls) < 3:  # noqa: ASYNC110 - the server is polled, not told
                await asyncio.sleep(0.01)
        task.cancel()
    lines = EXCHANGES["watch with bookmarks"]["response"]["lines"]
    assert (
        script.calls[2].query["resourceVersion"]
        == (lines[-1]["object"]["metadata"]["resourceVersion"])
    )
