"""The body limit where bodies come in: no more is read into memory, and the client hears why."""

import asyncio
import json

import pytest

from controlplane.asgi import application, handler
from controlplane.common import bodies
from tests.live.conftest import Caller, call, rows

pytestmark = [pytest.mark.usefixtures("live"), pytest.mark.sqlite, pytest.mark.slow]
MEMBERS = "/api/v1/tenants/research/members/"
JSON = {"content-type": "application/json"}


@pytest.fixture
async def token(world):
    """Olivia's."""
    return await rows(lambda: world.token("olivia"))


async def test_announced_body_over_the_limit_is_413_before_anybody_reads_it(token):
    headers = JSON | {"content-length": str(10 * 1024 * 1024)}
    caller = Caller(MEMBERS, token, "POST", **headers)
    await caller.ask(*[b" " * 1024 * 1024] * 10)
    answer = await caller.answer()
    assert (answer.status, answer.json()["code"]) == (413, "too_large")
    assert answer.json()["limit_bytes"] == 8 * 1024 * 1024
    assert answer.headers["content-type"] == "application/problem+json"


async def test_body_without_length_is_cut_off_at_the_limit(token):
    caller = Caller(MEMBERS, token, "POST", **JSON, **{"transfer-encoding": "chunked"})
    await caller.ask(*[b" " * 1024 * 1024] * 12)
    assert (await caller.answer()).status == 413


async def test_body_without_length_within_the_limit_is_read(token):
    caller = Caller(MEMBERS, token, "POST", **JSON, **{"transfer-encoding": "chunked"})
    body = json.dumps({"user": "nobody", "role": "viewer"}).encode()
    await caller.ask(body[:10], body[10:], b"")
    assert (await caller.answer()).status == 201


async def test_broken_json_in_chunks_names_its_place(token):
    caller = Caller(MEMBERS, token, "POST", **JSON, **{"transfer-encoding": "chunked"})
    await caller.ask(b'{\n"user"', b": }")
    answer = (await caller.answer()).json()
    assert (answer["code"], answer["line"], answer["column"]) == ("malformed_json", 2, 9)


async def test_body_that_arrives_too_slowly_is_given_up(token, monkeypatch):
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)
    caller = Caller(MEMBERS, token, "POST", **JSON, **{"content-length": "100"})
    await caller.send_input({"type": "http.request", "body": b"{", "more_body": True})
    answer = await caller.answer()
    assert (answer.status, answer.json()["code"]) == (408, "body_timeout")


async def test_slow_senders_keep_nobody_waiting(token, monkeypatch):
    """Fewer requests at once than there are slow senders, and a quick one still gets through."""
    monkeypatch.setattr(handler, "_turns", asyncio.Semaphore(2))
    slow = [Caller(MEMBERS, token, "POST", **JSON, **{"content-length": "100"}) for _ in range(5)]
    for caller in slow:
        await caller.send_input({"type": "http.request", "body": b"{", "more_body": True})
    assert (await call("/healthz")).status == 200
    for caller in slow:
        await caller.send_input({"type": "http.disconnect"})


async def test_half_a_body_is_acted_on_by_nobody(token, monkeypatch):
    asked = []

    async def app(scope, receive, send):
        asked.append(scope)

    monkeypatch.setattr(application.application_mapping["http"], "app", app)
    caller = Caller(MEMBERS, token, "POST", **JSON, **{"content-length": "100"})
    await caller.send_input({"type": "http.request", "body": b"{", "more_body": True})
    await caller.send_input({"type": "http.disconnect"})
    await caller.wait(timeout=5)
    assert asked == []
