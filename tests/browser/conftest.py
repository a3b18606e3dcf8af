"""A real Chromium, and people who are signed in there."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from tests.e2e.stack import Stack

# Without these Chromium looks for its maker's servers at every start.
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TIMEOUT_MS = 15_000
SIZE: ViewportSize = {"width": 1440, "height": 900}

SignIn = Callable[[str], Page]


# Not for the session: its event loop must be gone before asynchronous tests of the same worker run.
@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    """The system's Chromium, headless."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path, args=list(QUIET))
        yield launched
        launched.close()


@pytest.fixture
def sign_in(browser: Browser, demo: Stack) -> Iterator[SignIn]:
    """`sign_in("ravi")` answers a page on which ravi is signed in. Each person has a window of their own."""
    windows: list[BrowserContext] = []
    troubles: list[str] = []

    def signed_in(user: str) -> Page:
        window = browser.new_context(base_url=demo.url, viewport=SIZE, locale="en-GB")
        windows.append(window)
        page = window.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda m: troubles.append(m.text) if _is_trouble(m.text) else None)
        log_in(page, user)
        return page

    yield signed_in
    for window in windows:
        window.close()
    assert not troubles, troubles


def log_in(page: Page, user: str) -> None:
    """Through the form, with the demo's password."""
    page.goto("/accounts/login/")
    page.get_by_label("Username").fill(user)
    page.get_by_label("Password").fill("muster")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/accounts/login/" not in url)


def _is_trouble(text: str) -> bool:
    """What the strict policy for scripts and styles forbids must not be attempted."""
    return "Content Security Policy" in text
