"""Waiting over HTTP, through the whole application: `GET events/?after=&wait=`."""

import asyncio
import threading
import time

import pytest

from controlplane.common import log
from controlplane.common.live import hub
from controlplane.common.models import Event
from tests.live.conftest import Caller, call, rows
from tests.live.test_hub import until
from tests.world import NOW

pytestmark = [pytest.mark.usefixtures("live"), pytest.mark.sqlite, pytest.mark.slow]
EVENTS = "/api/v1/events/"


def record(*tenants, kind="job.phase"):
    """Append an event for each tenant; returns the newest number."""
    with log.writing():
        log.record(*(log.NewEvent(kind=kind, at=NOW, tenant=tenant) for tenant in tenants))
    return log.latest_seq()


@pytest.fixture
async def token(world):
    """Ravi's, for reading jobs."""
    return await rows(lambda: world.token("ravi", ("jobs:read",)))


async def waiting(path, token):
    """A request that has been asked and waits on the hub."""
    before = len(hub.feed._listeners)
    caller = Caller(path, token)
    await caller.ask()
    await until(lambda: len(hub.feed._listeners) > before)
    return caller


async def test_events_are_read_in_order_and_only_ones_own(token):
    await rows(record, "research", "vision", "", "research")
    answer = (await call(EVENTS, token)).json()
    assert [event["tenant"] for event in answer["results"]] == ["research", None, "research"]
    seqs = [event["seq"] for event in answer["results"]]
    assert seqs == sorted(seqs)
    assert (answer["next"], answer["after"]) == (None, seqs[-1])


async def test_pages_of_events_meet_without_gap(token):
    await rows(record, *["research", "vision"] * 30)
    found, address = [], f"{EVENTS}?limit=7"
    while address:
        page = (await call(address, token)).json()
        found += [event["seq"] for event in page["results"]]
        address = page["next"] and page["next"].removeprefix("http://127.0.0.1")
    assert len(found) == len(set(found)) == 30
    assert found == sorted(found)


async def test_waiting_request_is_answered_when_the_event_comes(token):
    newest = await rows(record, "research")
    caller = await waiting(f"{EVENTS}?after={newest}&wait=30", token)
    began = time.monotonic()
    await rows(record, "research")
    answer = await caller.answer()
    assert time.monotonic() - began < 2
    assert [event["seq"] for event in answer.json()["results"]] == [newest + 1]


async def test_others_events_do_not_answer_a_waiting_request(token):
    newest = await rows(record, "research")
    caller = await waiting(f"{EVENTS}?after={newest}&wait=2", token)
    await rows(record, "vision", "vision")
    answer = (await caller.answer()).json()
    assert answer["results"] == []
    assert answer["after"] > newest, "the caller need not read past hidden events again"


async def test_waiting_may_be_narrowed_by_kind_and_tenant(token):
    newest = await rows(record, "research")
    caller = await waiting(f"{EVENTS}?after={newest}&wait=20&kind=node.&tenant=research", token)
    await rows(record, "research")
    await rows(lambda: record("research", kind="node.cordoned"))
    answer = (await caller.answer()).json()
    assert [event["kind"] for event in answer["results"]] == ["node.cordoned"]


async def test_time_out_answers_200_with_nothing(token):
    newest = await rows(record, "research")
    began = time.monotonic()
    answer = await call(f"{EVENTS}?after={newest}&wait=1", token)
    assert 0.9 < time.monotonic() - began < 5
    assert (answer.status, answer.json()["results"]) == (200, [])


async def test_event_between_look_and_wait_is_not_lost(token, monkeypatch):
    """The event is written after the view has looked and before the hub is asked."""
    newest = await rows(record, "research")
    really = hub.wait_for

    async def late(after_seq, predicate, timeout_seconds):
        await rows(record, "research")
        monkeypatch.setattr(hub, "wait_for", really)
        return await really(after_seq, predicate, timeout_seconds)

    monkeypatch.setattr(hub, "wait_for", late)
    began = time.monotonic()
    answer = await call(f"{EVENTS}?after={newest}&wait=20", token)
    assert len(answer.json()["results"]) == 1
    assert time.monotonic() - began < 5


async def test_many_waiting_requests_hold_no_thread_and_no_connection(token):
    newest = await rows(record, "research")
    path = f"{EVENTS}?after={newest}&wait=50"
    callers = [await waiting(path, token)]
    before = threading.active_count()
    for _ in range(39):
        callers.append(await waiting(path, token))
    assert threading.active_count() <= before + 1
    await rows(record, "research")
    answers = await asyncio.gather(*(caller.answer() for caller in callers))
    assert all(len(answer.json()["results"]) == 1 for answer in answers)


async def test_client_that_goes_away_leaves_nothing_behind(token):
    newest = await rows(record, "research")
    caller = await waiting(f"{EVENTS}?after={newest}&wait=50", token)
    await caller.send_input({"type": "http.disconnect"})
    await caller.wait(timeout=5)
    await until(lambda: not hub.feed._listeners)


async def test_revoked_token_ends_at_the_next_look(world, token):
    newest = await rows(record, "research")
    caller = await waiting(f"{EVENTS}?after={newest}&wait=50", token)
    await rows(lambda: world.users["ravi"].api_tokens.update(revoked_at=NOW))
    await rows(record, "research")
    assert (await caller.answer()).status == 401


async def test_waiting_counts_as_one_call(token, settings):
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "read": (1, 1)}
    newest = await rows(record, "research")
    caller = await waiting(f"{EVENTS}?after={newest}&wait=20", token)
    await rows(record, "research")
    assert (await caller.answer()).status == 200
    assert (await call(EVENTS, token)).status == 429


async def test_events_older_than_kept_are_410_resync(token):
    newest = await rows(record, *["research"] * 10)
    await rows(Event.objects.filter(seq__lte=newest - 5).delete)
    gone = await call(f"{EVENTS}?after={newest - 8}&wait=20", token)
    assert (gone.status, gone.json()["code"]) == (410, "resync")
    assert gone.json()["newest"] == newest
    kept = await call(f"{EVENTS}?after={newest - 5}", token)
    assert len(kept.json()["results"]) == 5
    start = await call(EVENTS, token)
    assert len(start.json()["results"]) == 5
    ahead = await call(f"{EVENTS}?after={newest + 1}", token)
    assert ahead.status == 410


async def test_bad_parameters_are_refused_at_once(token):
    sent = ("after=x", "after=-1", "wait=x", "wait=-1", "wait=1.5", "limit=0", "after=²")
    for query in sent:
        answer = await call(f"{EVENTS}?{query}", token)
        assert answer.status == 422, query
        assert answer.json()["errors"][0]["pointer"] == f"?{query.partition('=')[0]}"
