"""`make screenshots`: every screen in both themes, for people to look at. Under VAR/screenshots.

Run with SCREENSHOTS=folder; without it nothing is drawn, since looking is the point.
"""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import SignIn
from tests.browser.screens import SCREENS, THEMES, things_to_show
from tests.e2e.stack import Stack

pytestmark = [
    pytest.mark.browser,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.xdist_group("demo"),
]


def test_every_screen_is_drawn_in_both_themes(
    demo: Stack, browser: Browser, sign_in: SignIn, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    shown = things_to_show(demo)
    pages = {user: sign_in(user) for user in {s.user for s in SCREENS} - {""}}
    pages[""] = browser.new_page(base_url=demo.url, viewport={"width": 1440, "height": 900})
    for screen in SCREENS:
        page = pages[screen.user]
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            answer = page.goto(screen.path.format(**shown))
            assert answer is not None
            assert answer.status == (404 if screen.name == "not-found" else 200), screen
            page.wait_for_timeout(600)
            page.screenshot(path=folder / f"{screen.name}-{theme}.png", full_page=True)
    assert len(list(folder.glob("*.png"))) >= len(SCREENS) * len(THEMES)
