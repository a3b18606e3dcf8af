"""Calls are repeated when that helps, bounded always, and refused with the right error."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from scheduler.kube.connection import Connection, Limits
from scheduler.kube.credentials import Credentials, CredentialsError, load_credentials
from scheduler.kube.errors import Forbidden, TooManyRequests, Unauthorized, Unavailable
from tests.kube.replay import QUICK, cut, json_answer, scripted_server

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "%s"}}]
users: [{name: u, user: %s}]
"""


async def test_version_is_read() -> None:
    async with scripted_server("version") as (script, connection):
        assert (await connection.get("/version"))["minor"] == "36"
    assert script.calls[0].headers["User-Agent"] == "muster"


async def test_busy_and_dropped_calls_are_repeated() -> None:
    busy = json_answer({"message": "busy"}, 503)
    async with scripted_server(cut, busy, "version") as (script, connection):
        assert (await connection.get("/version"))["major"] == "1"
    assert len(script.calls) == 3


async def test_tries_are_bounded() -> None:
    busy = json_answer({"message": "busy"}, 503)
    async with scripted_server(*[busy] * 10) as (script, connection):
        with pytest.raises(Unavailable, match="busy"):
            await connection.get("/version")
    assert len(script.calls) == QUICK.tries


async def test_refusal_is_not_repeated() -> None:
    async with scripted_server("no role") as (script, connection):
        with pytest.raises(Forbidden, match="sched"):
            await connection.get("/api/v1/nodes")
    assert len(script.calls) == 1


async def test_disruption_budget_is_not_repeated() -> None:
    async with scripted_server("evict against the budget") as (script, connection):
        with pytest.raises(TooManyRequests):
            await connection.post("/api/v1/namespaces/team-a/pods/a-0/eviction", {})
    assert len(script.calls) == 1


async def test_retry_after_is_waited_for() -> None:
    busy = json_answer({"message": "busy"}, 429, **{"Retry-After": "0.2"})
    loop = asyncio.get_running_loop()
    async with scripted_server(busy, "version") as (_, connection):
        began = loop.time()
        await connection.get("/version")
    assert loop.time() - began >= 0.2


async def test_server_that_never_answers_times_out() -> None:
    async def never(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    limits = Limits(tries=2, call_seconds=0.1, first_delay_seconds=0.001)
    async with scripted_server(never, never, limits=limits) as (script, connection):
        with pytest.raises(Unavailable, match="TimeoutError"):
            await connection.get("/version")
    assert len(script.calls) == 2


async def test_nobody_listening_is_unavailable() -> None:
    async with Connection(Credentials("http://127.0.0.1:1", None), limits=QUICK) as connection:
        with pytest.raises(Unavailable):
            await connection.get("/version")


async def test_calls_in_flight_are_bounded() -> None:
    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(0.02)
        return web.json_response({})

    limits = Limits(in_flight=4)
    async with scripted_server(*[slow] * 20, limits=limits) as (script, connection):
        await asyncio.gather(*(connection.get("/x") for _ in range(20)))
    assert script.most_in_flight == 4


async def test_delay_grows_with_jitter_and_stays_bounded() -> None:
    limits = Limits(first_delay_seconds=1.0, longest_delay_seconds=8.0)
    for jitter in (0.0, 0.5, 1.0):
        connection = Connection(
            Credentials("http://x", None), limits=limits, jitter=partial(float, jitter)
        )
        delays = [connection.delay_seconds(n) for n in range(1, 40)]
        assert delays == sorted(delays)
        assert delays[0] == 0.5 + jitter
        assert delays[-1] == 8.0 * (0.5 + jitter)
        assert connection.delay_seconds(1, 30.0) >= 30.0


async def test_meter_sees_every_answer() -> None:
    seen: list[tuple[str, int]] = []
    async with (
        scripted_server("no role", cut, cut, "version") as (script, _),
        Connection(
            Credentials(script.url, None),
            limits=QUICK,
            meter=lambda method, code, seconds: seen.append((method, code)),
        ) as connection,
    ):
        with pytest.raises(Forbidden):
            await connection.delete("/x")
        # aiohttp itself repeats a GET whose connection broke, once, unseen by us.
        await connection.get("/version")
    assert seen == [("DELETE", 403), ("GET", 0), ("GET", 200)]


async def test_token_of_a_kubeconfig_is_sent(tmp_path: Path) -> None:
    async with scripted_server("version") as (script, _):
        file = tmp_path / "config"
        file.write_text(KUBECONFIG % (script.url, "{token: abc}"))
        async with Connection(load_credentials(file), limits=QUICK) as connection:
            await connection.get("/version")
    assert script.calls[0].headers["Authorization"] == "Bearer abc"


async def test_expired_token_is_renewed_once(tmp_path: Path) -> None:
    """An exec plugin gives a new token each time it runs; a 401 makes it run again."""
    plugin = tmp_path / "plugin.sh"
    plugin.write_text(
        "#!/bin/sh\nn=$(cat $0.n 2>/dev/null || echo 0); echo $((n+1)) > $0.n\n"
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"t\'$n\'","expirationTimestamp":"2020-01-01T00:00:00Z"}}\'\n'
    )
    plugin.chmod(0o755)
    user = (
        "{exec: {apiVersion: client.authentication.k8s.io/v1, command: %s, interactiveMode: Never}}"
    )
    async with scripted_server("bad token", "version", "bad token", "bad token") as (script, _):
        file = tmp_path / "config"
        file.write_text(KUBECONFIG % (script.url, user % plugin))
        async with Connection(load_credentials(file), limits=QUICK) as connection:
            await connection.get("/version")
            with pytest.raises(Unauthorized):
                await connection.get("/version")
    tokens = [call.headers["Authorization"] for call in script.calls]
    assert len(tokens) == 4
    assert tokens[0] != tokens[1]


def test_missing_kubeconfig_says_so(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError):
        load_credentials(tmp_path / "none")


def test_outside_a_cluster_there_is_no_service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsError):
        load_credentials()


def test_a_persons_own_kubeconfig_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(KUBECONFIG % ("http://mine:1", "{token: abc}"))
    assert load_credentials().base_url == "http://mine:1"


async def test_stream_gives_what_is_sent() -> None:
    async def pieces(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one ")
        await response.write(b"two")
        return response

    async def read(connection: Connection) -> AsyncIterator[bytes]:
        async with connection.stream("/log") as reader:
            while piece := await reader.readany():
                yield piece

    async with scripted_server(pieces) as (_, connection):
        assert b"".join([p async for p in read(connection)]) == b"one two"


async def test_refused_stream_raises() -> None:
    async with scripted_server("no role") as (_, connection):
        with pytest.raises(Forbidden):
            async with connection.stream("/api/v1/nodes"):
                pass
