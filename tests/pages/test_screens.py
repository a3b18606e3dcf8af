"""Every screen on a phone of 360 px, with the scene's states: nothing wider than the window, nothing that axe
finds, no script error, nothing that the content policy refuses. Needs no process but the test's own server.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from scheduler.models import Alert, MaintenanceWindow
from tests.pages import scene as scenes
from tests.pages.operations import add_operations

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT.joinpath(".venv/lib/python3.11/site-packages/axe_playwright_python/axe.min.js")
RULES = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 780}, "has_touch": True}


def screens(scene: scenes.Scene) -> dict[str, tuple[str, str]]:
    """Name → who looks, and where."""
    job = {name: f"/jobs/{each.pk}/" for name, each in scene.jobs.items()}
    window, alert = MaintenanceWindow.objects.all()[0], Alert.objects.all()[0]
    return {
        "login": ("", "/accounts/login/"),
        "not-found": ("", "/nowhere/"),
        "now": ("ravi", "/"),
        "queue": ("ravi", "/jobs/"),
        "queue-waiting": ("ravi", "/jobs/?view=waiting"),
        "queue-empty": ("ravi", "/jobs/?search=nothing-like-it"),
        "job-running": ("ravi", job["pretrain-7b"]),
        "job-waiting": ("ravi", job["sft-math-v4"]),
        "job-failed": ("ravi", job["probe-nccl"]),
        "submit": ("ravi", "/jobs/new/"),
        "map": ("ravi", "/map/demo/"),
        "nodes": ("ines", "/nodes/?search=leaf-01"),
        "node": ("ines", "/nodes/demo/gpu-00019/"),
        "quotas": ("olivia", "/tenants/research/quotas/"),
        "queues": ("olivia", "/tenants/research/queues/"),
        "queue-settings": ("olivia", "/tenants/research/queues/train/"),
        "members": ("olivia", "/tenants/research/members/"),
        "secrets": ("olivia", "/tenants/research/secrets/"),
        "tokens": ("olivia", "/tenants/research/tokens/"),
        "your-tokens": ("ravi", "/tokens/"),
        "tenants": ("admin", "/tenants/"),
        "people": ("admin", "/people/"),
        "quotas-of-others": ("admin", "/tenants/vision/quotas/"),
        "design": ("admin", "/design/"),
        "plan": ("ravi", "/plan/"),
        "plan-week": ("ines", "/plan/?hours=168"),
        "evictions": ("ines", "/plan/evictions/"),
        "clusters": ("ravi", "/clusters/"),
        "cluster": ("ines", "/clusters/demo/"),
        "levels": ("admin", "/clusters/demo/levels/"),
        "drain": ("ines", "/clusters/demo/drain/?node=gpu-00000"),
        "map-of-a-spine": ("ravi", "/map/demo/?zoom=spine-00"),
        "calendar": ("ravi", "/calendar/"),
        "window": ("ines", f"/calendar/{window.pk}/"),
        "window-new": ("ines", "/calendar/new/"),
        "window-edit": ("ines", f"/calendar/{window.pk}/edit/"),
        "alerts": ("ines", "/alerts/"),
        "alerts-none": ("mei", "/alerts/"),
        "alert": ("ines", f"/alerts/{alert.pk}/"),
        "health": ("ravi", "/health/"),
        "health-all": ("ravi", "/health/?state=all"),
        "gpu": ("ines", "/health/gpus/GPU-0019-7-ab12-cd34/"),
        "quarantine": ("ines", "/health/quarantine/"),
        "rules": ("admin", "/health/rules/"),
        "rule": ("admin", "/health/rules/temperature/"),
        "policy": ("admin", "/health/policy/demo/"),
        "flavors": ("admin", "/flavors/"),
        "flavor": ("admin", "/flavors/demo.h100/"),
        "presets": ("admin", "/presets/"),
        "audit": ("sam", "/audit/"),
        "webhooks": ("olivia", "/tenants/research/webhooks/"),
        "notices": ("ravi", "/notices/"),
    }


@contextmanager
def launched(path: str) -> Iterator[Browser]:
    """Chromium, gone before the database is emptied: its event loop would be in the way."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_every_screen_is_sound_on_a_phone(transactional_db, live_server, chromium_path):
    scene = scenes.build()
    add_operations(scene)
    wanted = screens(scene)  # read now: the browser's event loop forbids it later
    wrong: list[str] = []
    with launched(chromium_path) as browser:
        pages: dict[str, Page] = {}
        for name, (who, path) in wanted.items():
            if who not in pages:
                pages[who] = _window(browser, live_server.url, who, wrong)
            wrong += [f"{name}: {what}" for what in _look(pages[who], name, path)]
    assert not wrong, "\n".join(wrong)


def _window(browser: Browser, url: str, who: str, wrong: list[str]) -> Page:
    window = browser.new_context(base_url=url, locale="en-GB", **PHONE)
    page = window.new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on(
        "console",
        lambda m: wrong.append(m.text) if "Content Security Policy" in m.text else None,
    )
    if who:
        page.goto("/accounts/login/")
        page.fill("#id_login", who)
        page.fill("#id_password", scenes.PASSWORD)
        page.click("button.main")
        page.wait_for_url(lambda found: "/accounts/login/" not in found)
    return page


def _look(page: Page, name: str, path: str) -> list[str]:
    """Open, and say what is wrong."""
    answer = page.goto(path)
    page.wait_for_timeout(300)
    wrong = []
    expected = 404 if name == "not-found" else 200
    if answer is None or answer.status != expected:
        wrong.append(f"status {answer and answer.status}")
    width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    if width > 0:
        wrong.append(f"{width} px wider than the window")
    return wrong + _violations(page)


def _violations(page: Page) -> list[str]:
    """What axe finds. It is run by the debugger: the page's policy allows no script of others."""
    debugger = page.context.new_cdp_session(page)
    run = (
        f"axe.run(document, {{runOnly: {RULES}}}).then(r => r.violations.map("
        "v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 120)).join(' | ')))"
    )
    asked = {
        "expression": f"{AXE.read_text()};{run}",
        "awaitPromise": True,
        "returnByValue": True,
    }
    found = debugger.send("Runtime.evaluate", asked)
    return list(found["result"].get("value") or [])
