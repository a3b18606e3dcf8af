"""axe finds nothing on any screen, in either theme; and the main screens are usable with the keyboard alone."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import SIZE, SignIn, log_in
from tests.browser.screens import SCREENS, THEMES, Screen, things_to_show
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.slow]

STANDARDS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


@pytest.fixture(scope="module")
def shown(demo: Stack) -> Iterator[dict[str, str]]:
    """What the screens speak of."""
    made = things_to_show(demo)
    yield made
    demo.api("ravi").call("POST", f"jobs/{made['waiting']}/cancel/", json={"reason": "shown"})


@pytest.fixture(scope="module")
def windows(browser: Browser, demo: Stack) -> Callable[[str], Page]:
    """A page for each person, signed in once; for a stranger with an empty name."""

    @cache
    def window(user: str) -> Page:
        page = browser.new_context(base_url=demo.url, viewport=SIZE).new_page()
        if user:
            log_in(page, user)
        return page

    return window


@pytest.fixture(scope="module")
def axe() -> Axe:
    """The checker."""
    return Axe()


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_axe_finds_nothing(
    screen: Screen, axe: Axe, windows: Callable[[str], Page], shown: dict[str, str]
) -> None:
    page = windows(screen.user)
    for theme in THEMES:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        page.goto(screen.path.format(**shown))
        settle(page)
        found = axe.run(page, options=STANDARDS)
        faults = [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found.response["violations"]]
        assert not faults, f"{screen.name} ({theme}):\n" + "\n".join(faults)


def settle(page: Page) -> None:
    """Live pages keep a socket open: wait for what they fetch at first, not for silence."""
    page.wait_for_load_state("load")
    page.wait_for_timeout(400)


def test_a_job_is_reached_and_opened_with_the_keyboard_alone(
    sign_in: SignIn, shown: dict[str, str]
) -> None:
    page = sign_in("ravi")
    page.goto("/jobs/?view=all")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/job_*/")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
