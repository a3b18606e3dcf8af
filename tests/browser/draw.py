"""`make screenshots`: every screen in both themes, for people to look at. `python -m tests.browser.draw FOLDER`.

Draws a demo of its own; with E2E_DEMO=VAR the one that runs there, with whatever it shows.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import QUIET, SIZE, log_in
from tests.browser.screens import SCREENS, THEMES, things_to_show
from tests.e2e.stack import Stack, attached_demo, running_demo
from tests.services.binaries import chromium

SETTLE_MS = 800


def main(folder: Path) -> int:
    """Exit code 1 where Chromium is missing, or a screen does not answer as it should."""
    program = chromium()
    if program is None:
        print("Chromium is not installed (Debian: chromium)", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with a_demo() as demo, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(program), args=list(QUIET))
        wrong = draw(demo, browser, folder)
        browser.close()
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


@contextmanager
def a_demo() -> Iterator[Stack]:
    """The one that E2E_DEMO names, or one of our own."""
    running = os.environ.get("E2E_DEMO")
    if running:
        yield attached_demo(Path(running))
        return
    with tempfile.TemporaryDirectory() as var, running_demo(Path(var)) as stack:
        yield stack


def draw(demo: Stack, browser: Browser, folder: Path) -> list[str]:
    """A picture of each screen and theme; answers what did not come as it should."""
    shown = things_to_show(demo)
    pages = {user: window(browser, demo, user) for user in {s.user for s in SCREENS}}
    wrong = []
    for screen in SCREENS:
        page = pages[screen.user]
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            answer = page.goto(screen.path.format(**shown))
            if answer is None or answer.status != (404 if screen.name == "not-found" else 200):
                wrong.append(f"{screen.name}: {answer.status if answer else 'no answer'}")
            page.wait_for_timeout(SETTLE_MS)
            page.screenshot(path=folder / f"{screen.name}-{theme}.png", full_page=True)
    return wrong


def window(browser: Browser, demo: Stack, user: str) -> Page:
    """A page on which the person is signed in; a stranger's for an empty name."""
    page = browser.new_context(base_url=demo.url, viewport=SIZE).new_page()
    if user:
        log_in(page, user)
    return page


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
