"""The browser's half of docs/live.md, in a real browser against a scripted socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, WebSocketRoute, sync_playwright

STATIC = Path(__file__).resolve().parents[2] / "static"
HOST = "http://muster.test"
PAGE = """<!doctype html><html><head><title>t</title>
<script src="/js/shell.js"></script></head>
<body data-live-topics="jobs:research" data-live-seq="7" data-units="{n} s|{n} min|{h} h {m}|{d} d {h} h|{d} d">
<button id="live-news" hidden data-one="{n} update" data-many="{n} updates"></button>
<span id="live-badge" data-state="catching" data-live="live" data-catching="catching up"
  data-stale="stale {n}" data-out="signed out"><i></i><span></span></span>
<b data-count="waiting">1</b>
<div id="jobs" data-live-list><table><tbody id="job-rows">
<tr id="job-a" data-state="pending"><td><input type="checkbox" name="job" value="a"></td>
  <td><a href="#" data-key="open">a pending</a></td></tr>
<tr id="job-b" data-state="pending"><td><a href="#">b pending</a></td></tr>
</tbody></table></div>
<svg><g id="n-gpu-1" class="n free u0"></g></svg><div id="toasts"></div>
<div style="height: 3000px"></div>
<script src="/js/times.js"></script><script src="/js/live.js"></script></body></html>"""


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    # Its own Playwright: the tests of this file share no event loop with others.
    with sync_playwright() as playwright:
        yield _launch(playwright, chromium_path)


def _launch(playwright: Playwright, path: str) -> Browser:
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


class Server:
    """The scripted server: remembers what was said to it, and says what the test wants."""

    def __init__(self, page: Page) -> None:
        self.sockets: list[WebSocketRoute] = []
        self.heard: list[str] = []
        page.route_web_socket("**/ws/live/", self._accept)
        page.route(f"{HOST}/**", self._serve)
        page.clock.install()
        page.goto(f"{HOST}/")
        page.wait_for_function("() => window.muster")
        self.page = page
        self.until(lambda: self.heard)

    def _accept(self, socket: WebSocketRoute) -> None:
        self.sockets.append(socket)
        socket.on_message(lambda text: self.heard.append(str(text)))

    @staticmethod
    def _serve(route: object) -> None:
        path = route.request.url.removeprefix(HOST)  # type: ignore[attr-defined]
        if path == "/":
            route.fulfill(body=PAGE, content_type="text/html")  # type: ignore[attr-defined]
        else:
            route.fulfill(path=STATIC / path.lstrip("/"))  # type: ignore[attr-defined]

    def until(self, true: object) -> None:
        """Let the browser run until something holds."""
        for _turn in range(100):
            if true():  # type: ignore[operator]
                return
            self.page.wait_for_timeout(20)
        raise AssertionError("it never happened")

    def say(self, text: str) -> None:
        self.sockets[-1].send(text)
        self.page.wait_for_timeout(30)

    @property
    def badge(self) -> str:
        return self.page.inner_text("#live-badge")


@pytest.fixture
def server(browser: Browser) -> Iterator[Server]:
    context = browser.new_context()
    yield Server(context.new_page())
    context.close()


pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_page_subscribes_with_its_topics_and_the_event_it_is_as_new_as(server):
    assert server.heard == ['{"type":"subscribe","topics":["jobs:research"],"after":7}']
    server.say('{"type":"ping","seq":8}')
    assert server.badge == "live"


def test_patch_replaces_a_row_in_place_and_keeps_focus_and_tick(server):
    page = server.page
    page.check("input[value=a]")
    page.focus("[data-key=open]")
    server.say(
        '{"type":"patch","seq":9,"fragments":[{"target":"#job-a","mode":"replace","html":'
        '"<tr id=job-a data-state=running><td><input type=checkbox name=job value=a></td>'
        '<td><a href=# data-key=open>a running</a></td></tr>"}]}'
    )
    assert page.inner_text("#job-rows tr:first-child").strip() == "a running"
    assert page.is_checked("input[value=a]")
    assert page.evaluate("document.activeElement.textContent") == "a running"


def test_count_and_svg_change_numbers_and_classes(server):
    server.say('{"type":"count","seq":9,"counts":{"waiting":12}}')
    server.say('{"type":"svg","seq":9,"changes":[["n-gpu-1","n used u8"],["n-unknown","n"]]}')
    assert server.page.inner_text("[data-count=waiting]") == "12"
    assert server.page.get_attribute("#n-gpu-1", "class") == "n used u8"


def test_removed_row_fades_in_place_under_the_pointer_and_goes_otherwise(server):
    page = server.page
    page.hover("#job-a a")
    server.say(
        '{"type":"patch","seq":9,"fragments":[{"target":"#job-a","mode":"remove","html":""}]}'
    )
    assert "gone" in (page.get_attribute("#job-a", "class") or "")
    page.mouse.move(0, 2000)
    server.say(
        '{"type":"patch","seq":10,"fragments":[{"target":"#job-b","mode":"remove","html":""}]}'
    )
    assert page.query_selector("#job-b") is None


def test_news_under_the_pointer_is_counted_and_moves_nothing(server):
    server.page.hover("#job-a a")
    for seq, name in ((9, "x"), (10, "y")):
        server.say(
            f'{{"type":"patch","seq":{seq},"fragments":[{{"target":"#job-{name}",'
            f'"mode":"replace","html":"<tr id=job-{name}></tr>"}}]}}'
        )
    assert server.page.inner_text("#live-news") == "2 updates"
    assert server.page.query_selector("#job-x") is None


def test_news_does_not_take_away_what_was_ticked(server):
    server.page.check("input[value=a]")
    server.page.mouse.move(0, 2000)
    server.page.evaluate("document.activeElement.blur()")
    server.say(
        '{"type":"patch","seq":9,"fragments":[{"target":"#job-x","mode":"replace",'
        '"html":"<tr id=job-x></tr>"}]}'
    )
    assert server.page.inner_text("#live-news") == "1 update"
    assert server.page.is_checked("input[value=a]")


def test_append_adds_a_row_once_and_replaces_it_after(server):
    fragment = '{"target":"#job-rows","mode":"append","html":"<tr id=job-c><td>c %s</td></tr>"}'
    for seq, word in ((9, "one"), (10, "two")):
        server.say(f'{{"type":"patch","seq":{seq},"fragments":[{fragment % word}]}}')
    assert server.page.locator("#job-c").all_inner_texts() == ["c two"]


def test_lost_connection_comes_back_and_asks_for_what_was_missed(server):
    server.say('{"type":"ping","seq":21}')
    server.sockets[-1].close(code=1001)
    server.page.wait_for_timeout(30)
    assert server.badge == "catching up"
    server.page.clock.run_for(3000)
    server.until(lambda: len(server.heard) == 2)
    assert server.heard[1].endswith('"after":21}')


def test_silence_shows_as_stale_with_its_age(server):
    server.say('{"type":"ping","seq":9}')
    server.page.clock.run_for(42_000)
    assert server.badge.startswith("stale 4")


@pytest.mark.parametrize("code", [4401, 4403])
def test_signed_out_says_so_and_does_not_come_back(server, code):
    server.sockets[-1].close(code=code)
    server.page.wait_for_timeout(30)
    assert server.badge == "signed out"
    server.page.clock.run_for(120_000)
    assert len(server.heard) == 1


def test_resync_loads_the_page_again(server):
    server.say('{"type":"resync"}')
    server.until(lambda: len(server.heard) == 2)
    assert server.heard[1].endswith('"after":7}')
