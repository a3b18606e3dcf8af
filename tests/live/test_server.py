"""The web process as it is started: a real server, real sockets, a real stop."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from django.db import connection
from django.test import Client
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from controlplane.common import log
from controlplane.processes.lineup import web
from tests.live.conftest import cookie_of, rows
from tests.live.test_longpoll import record
from tests.live.test_socket import hold, jobs
from tests.world import World

__all__ = ["jobs"]
pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.sqlite]
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Server:
    """The running web process."""

    url: str
    process: subprocess.Popen[bytes]


def database_url() -> str:
    """Of the test's own database."""
    found = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{found['NAME']}"
    return f"postgres://{found['USER']}:{found['PASSWORD']}@{found['HOST']}:{found['PORT']}/{found['NAME']}"


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`controlplane.processes.lineup.web` on a free port, for all tests here; no broker runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "DATABASE_URL": database_url(),
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
        "VAR": str(tmp_path_factory.mktemp("web")),
        "PYTHONWARNINGS": "ignore",
    }
    # The tables were made from the models: say that they are as new as the code, as /readyz wants it.
    fake = [sys.executable, "manage.py", "migrate", "--fake", "--verbosity", "0"]
    subprocess.run(fake, cwd=ROOT, env=env, check=True)
    command = [sys.executable, *web("127.0.0.1", port).command[1:]]
    process = subprocess.Popen(command, cwd=ROOT, env=env)
    server = Server(f"http://127.0.0.1:{port}", process)
    try:
        wait_until_healthy(server)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_until_healthy(server: Server) -> None:
    """At most a minute: the machine may be busy."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{server.url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail("the web process did not come up")


async def page(server: Server, world: World, name: str):
    """An open, subscribed socket of somebody's page, and where it was rendered."""
    client = Client()
    await rows(client.force_login, world.users[name])
    socket = await connect(
        f"{server.url.replace('http', 'ws', 1)}/ws/live/",
        origin=Origin(server.url),
        additional_headers={"Cookie": cookie_of(client)},
    )
    after = await rows(log.latest_seq)
    await socket.send(json.dumps({"type": "subscribe", "topics": ["jobs"], "after": after}))
    return socket


async def next_of(socket, kind: str):
    """The next message of this type."""
    while True:
        message = json.loads(await asyncio.wait_for(socket.recv(), 15))
        if message["type"] == kind:
            return message


async def test_change_reaches_an_open_page_within_two_seconds_without_a_broker(server, world, jobs):
    async with await page(server, world, "vera") as socket:
        await next_of(socket, "ping")
        began = time.monotonic()
        await rows(hold, jobs["research"])
        patch = await next_of(socket, "patch")
        assert time.monotonic() - began < 2
        assert patch["fragments"][0]["target"] == f"#job-{jobs['research'].pk}"


async def test_large_body_is_answered_though_it_is_still_being_sent(server, world):
    token = await rows(lambda: world.token("olivia"))
    body = b'{"user": "' + b"x" * 10_000_000 + b'"}'

    async def chunks():
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        for content in (body, chunks()):
            answer = await client.post(
                "/api/v1/tenants/research/members/",
                content=content,
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_page_of_another_site_gets_no_socket(server, world):
    client = Client()
    await rows(client.force_login, world.users["ravi"])
    with pytest.raises(InvalidStatus) as refused:
        await connect(
            f"{server.url.replace('http', 'ws', 1)}/ws/live/",
            origin=Origin("https://evil.example"),
            additional_headers={"Cookie": cookie_of(client)},
        )
    assert refused.value.response.status_code == 403


async def test_server_that_stops_tells_pages_to_come_back_and_ends_in_time(server, world):
    """The last test here: nothing is left of the server."""
    token = await rows(lambda: world.token("ravi"))
    newest = await rows(record, "research")
    async with httpx.AsyncClient(
        base_url=server.url, headers={"Authorization": f"Bearer {token}"}
    ) as client:
        waiting = asyncio.create_task(
            client.get(f"/api/v1/events/?after={newest}&wait=60", timeout=90)
        )
        socket = await page(server, world, "ravi")
        await next_of(socket, "ping")
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            await next_of(socket, "nothing more")
        assert socket.close_code == 1012
        await asyncio.to_thread(server.process.wait, 10)
        waiting.cancel()
