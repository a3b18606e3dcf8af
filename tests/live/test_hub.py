"""The hub by itself, with a feed that the test writes: one render per scope, merged pushes, isolated sockets."""

import asyncio
import json
import threading
import time
from collections import Counter
from itertools import count, pairwise
from typing import Any

import pytest

from controlplane.common.live import EVERY, Fragment, Heard, Hub, Rendered, Socket, Topic, Viewer
from controlplane.common.live import sockets as hub_module
from controlplane.common.live import topic as registry

PUSH = 0.2


class WrittenFeed:
    """A feed whose events come from the test."""

    def __init__(self, seq=100):
        self.kept, self.listeners, self.numbers = [], {}, count(1)
        self.oldest = self.seq = seq
        self.is_ready = True

    def listen(self, listener):
        number = next(self.numbers)
        self.listeners[number] = listener
        return number

    def unlisten(self, number):
        self.listeners.pop(number, None)

    def since(self, seq):
        return None if seq < self.oldest else [h for h in self.kept if h.seq > seq]

    def stop(self):
        self.listeners.clear()

    def tell(self, *jobs, tenant="research", kind="job.phase"):
        """Events about jobs, one each."""
        batch = [
            Heard(self.seq + n, kind, tenant, job, "", "", None) for n, job in enumerate(jobs, 1)
        ]
        self.seq = batch[-1].seq
        self.kept += batch
        for listener in list(self.listeners.values()):
            listener(batch)


class Page:
    """A browser's end: what came, and when."""

    def __init__(self, hub, key=1, actor="research", language="en"):
        self.messages, self.times, self.closed = [], [], None
        self.stuck = None
        self.socket = Socket(Viewer(key, actor, language, "UTC"), self.send, self.close)
        self.hub = hub

    async def send(self, text):
        if self.stuck is not None:
            await self.stuck.wait()
        self.messages.append(json.loads(text))
        self.times.append(time.monotonic())

    async def close(self, code):
        self.closed = code

    async def open(self, *names, after=100):
        await self.hub.join(self.socket)
        return await self.hub.subscribe(self.socket, names, after)

    def of(self, kind):
        return [m for m in self.messages if m["type"] == kind]

    def html(self):
        return [f["html"] for m in self.of("patch") for f in m["fragments"]]


async def until(condition, seconds=5.0):
    """Poll until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.01)


@pytest.fixture
def renders():
    """How often each (argument, rows, language) was rendered."""
    return Counter()


@pytest.fixture
def topics(monkeypatch, renders):
    """`jobs`: seen by the actor's own tenant; `broken`: raises; `own`: differs by viewer."""

    def render(viewer, argument, rows):
        renders[(viewer.actor, argument, rows, viewer.language)] += 1
        shown = sorted(rows)
        return Rendered([Fragment(f"#job-{r}", f"{viewer.actor}:{r}") for r in shown])

    def changes(heard):
        return (("", heard.job), (heard.tenant, heard.job))

    def crash(_viewer, _argument, _rows):
        raise RuntimeError("broken topic")

    def own(_viewer, _argument, rows):
        return Rendered([Fragment("#x", "others", variants={7: "mine"}) for _ in rows])

    def scope(viewer, argument):
        return viewer.actor if argument in ("", viewer.actor) else None

    def concerns(viewer, heard):
        return heard.tenant == viewer.actor

    found: dict[str, Any] = {}
    monkeypatch.setattr(registry, "topics", found)
    for topic in (
        Topic("jobs", changes, scope, render, concerns),
        Topic("broken", changes, lambda _v, _a: "all", crash),
        Topic("own", lambda heard: ((EVERY, heard.job),), lambda _v, _a: "all", own),
    ):
        registry.register(topic)
    monkeypatch.setattr(hub_module, "PUSH_SECONDS", PUSH)
    return found


@pytest.fixture
async def hub(topics):
    """A hub that hears what the test says."""
    made = Hub(WrittenFeed())  # type: ignore[arg-type]  # a feed by its shape
    yield made
    await made.stop()


async def test_hundred_sockets_of_one_scope_cost_one_render(hub, renders):
    pages = [Page(hub, key=n) for n in range(100)]
    for page in pages:
        assert await page.open("jobs")
    hub.feed.tell("a", "b")
    await until(lambda: all(page.of("patch") for page in pages))
    assert renders == {("research", "", frozenset({"a", "b"}), "en"): 1}
    assert pages[0].of("patch") == [
        {
            "type": "patch",
            "seq": 102,
            "fragments": [
                {"target": "#job-a", "html": "research:a", "mode": "replace"},
                {"target": "#job-b", "html": "research:b", "mode": "replace"},
            ],
        }
    ]


async def test_scopes_and_languages_are_rendered_apart(hub, renders):
    for page in (Page(hub), Page(hub, language="zh-hans"), Page(hub, actor="vision")):
        await page.open("jobs")
    hub.feed.tell("a")
    hub.feed.tell("b", tenant="vision")
    await until(lambda: sum(renders.values()) == 3)
    assert {(key[0], key[3]) for key in renders} == {
        ("research", "en"),
        ("research", "zh-hans"),
        ("vision", "en"),
    }


async def test_event_of_another_tenant_reaches_nobody_else(hub, renders):
    mine, other = Page(hub), Page(hub, actor="vision")
    await mine.open("jobs")
    await other.open("jobs")
    hub.feed.tell("secret-job", tenant="vision")
    hub.feed.tell("a")
    await until(lambda: mine.of("patch") and other.of("patch"))
    assert "secret-job" not in json.dumps(mine.messages)
    assert mine.html() == ["research:a"]


async def test_hidden_and_unknown_topics_are_refused(hub):
    for names in (["jobs:vision"], ["jobs", "jobs:vision"], ["nonsense"], ["nonsense:x"]):
        assert not await Page(hub).open(*names)


async def test_pushes_are_merged_to_one_a_period(hub):
    page = Page(hub)
    await page.open("jobs")
    began = time.monotonic()
    jobs = [f"j{n}" for n in range(60)]
    for job in jobs:
        hub.feed.tell(job)
        await asyncio.sleep(0.01)
    await until(lambda: len(page.html()) == len(jobs))
    periods = (time.monotonic() - began) / PUSH
    assert len(page.of("patch")) <= periods + 1
    patches = [t for t, m in zip(page.times, page.messages, strict=True) if m["type"] == "patch"]
    gaps = [b - a for a, b in pairwise(patches)]
    assert min(gaps) >= PUSH * 0.9


async def test_row_that_changes_often_is_sent_once_a_push(hub):
    page = Page(hub)
    await page.open("jobs")
    hub.feed.tell(*["a"] * 500)
    await until(page.html)
    assert page.html() == ["research:a"]


async def test_seq_never_falls_and_covers_what_was_said(hub):
    page = Page(hub)
    await page.open("jobs")
    for n in range(5):
        hub.feed.tell(f"a{n}")
        await until(lambda n=n: len(page.html()) > n)
    seqs = [m["seq"] for m in page.messages]
    assert seqs == sorted(seqs)
    assert seqs[-1] == hub.feed.seq


async def test_page_is_told_what_it_missed_since_it_was_rendered(hub):
    first = Page(hub)
    await first.open("jobs")
    hub.feed.tell("a", "b", "c")
    late = Page(hub)
    await late.open("jobs", after=101)
    await until(late.html)
    assert late.html() == ["research:b", "research:c"]


async def test_page_older_than_what_is_kept_is_told_to_load_again(hub):
    page = Page(hub)
    await page.open("jobs", after=42)
    await until(lambda: page.messages)
    assert [m["type"] for m in page.messages] == ["resync"]


async def test_page_that_missed_nothing_is_told_at_once_that_it_is_live(hub):
    page = Page(hub)
    await page.open("jobs")
    await until(lambda: page.messages)
    assert page.messages == [{"type": "ping", "seq": 100}]


async def test_quiet_sockets_are_pinged(hub, monkeypatch):
    monkeypatch.setattr(hub_module, "PING_SECONDS", 0.05)
    page = Page(hub)
    await page.open("jobs")
    hub.feed.tell("x", tenant="vision")
    await until(lambda: len(page.of("ping")) >= 3)
    assert page.of("ping")[-1]["seq"] == 101
    assert not page.of("patch")


async def test_broken_topic_is_resynced_and_hurts_no_other(hub):
    broken, whole = Page(hub), Page(hub)
    await broken.open("broken")
    await whole.open("jobs")
    hub.feed.tell("a")
    await until(lambda: broken.of("resync") and whole.html())


async def test_slow_socket_holds_up_nobody_and_is_told_to_load_again(hub, monkeypatch):
    monkeypatch.setattr(hub_module, "PUSH_SECONDS", 0.01)
    slow, quick = Page(hub), Page(hub, key=2)
    slow.stuck = asyncio.Event()
    await slow.open("jobs")
    await quick.open("jobs")
    for n in range(30):
        hub.feed.tell(f"j{n}")
        await until(lambda n=n: f"research:j{n}" in quick.html())
    assert slow.messages == []
    slow.stuck.set()
    await until(lambda: slow.of("resync"))
    assert len(slow.messages) < 15


async def test_socket_that_takes_nothing_is_let_go(hub, monkeypatch):
    monkeypatch.setattr(hub_module, "SEND_SECONDS", 0.05)
    page = Page(hub)
    page.stuck = asyncio.Event()
    await page.open("jobs")
    hub.feed.tell("a")
    await until(lambda: page.closed is not None)
    assert page.closed == hub_module.CLOSE_SLOW
    assert page.socket not in hub.sockets


async def test_fragment_may_differ_for_its_owner(hub):
    owner, other = Page(hub, key=7), Page(hub, key=8)
    await owner.open("own")
    await other.open("own")
    hub.feed.tell("a")
    await until(lambda: owner.html() and other.html())
    assert (owner.html(), other.html()) == (["mine"], ["others"])


async def test_hub_rests_when_the_last_page_leaves(hub):
    page = Page(hub)
    await page.open("jobs")
    assert hub.feed.listeners
    await hub.leave(page.socket)
    assert not hub.feed.listeners
    again = Page(hub)
    await again.open("jobs")
    hub.feed.tell("a")
    await until(again.html)


async def test_waiting_for_an_event_that_is_known_already_returns_at_once(hub):
    hub.feed.tell("a")
    heard = await hub.wait_for(100, lambda h: h.job == "a", 5)
    assert heard.seq == 101
    assert await hub.wait_for(42, lambda h: True, 5) is None
    assert not hub.feed.listeners


async def test_waiting_ends_with_the_event_or_at_the_time_out(hub):
    waiting = asyncio.create_task(hub.wait_for(100, lambda h: h.job == "b", 5))
    await until(lambda: hub.feed.listeners)
    hub.feed.tell("a")
    hub.feed.tell("b")
    assert (await waiting).job == "b"
    assert await hub.wait_for(hub.feed.seq, lambda h: True, 0.02) is None
    assert not hub.feed.listeners


async def test_thousand_waiting_requests_hold_no_thread(hub):
    before = threading.active_count()
    waiting = [
        asyncio.create_task(hub.wait_for(100, lambda h, n=n: h.job == f"j{n % 10}", 10))
        for n in range(1000)
    ]
    await until(lambda: len(hub.feed.listeners) == 1000)
    assert threading.active_count() == before
    hub.feed.tell(*[f"j{n}" for n in range(10)])
    found = await asyncio.gather(*waiting)
    assert all(heard is not None for heard in found)


async def test_cancelled_wait_leaves_nothing_behind(hub):
    waiting = asyncio.create_task(hub.wait_for(100, lambda h: False, 60))
    await until(lambda: hub.feed.listeners)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not hub.feed.listeners


def test_two_topics_of_one_name_are_a_defect(topics):
    topic = topics["jobs"]
    registry.register(topic)
    with pytest.raises(ValueError, match="already"):
        registry.register(Topic("jobs", topic.changes, topic.scope_of, topic.render))
