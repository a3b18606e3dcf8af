"""The main job in a real browser: submit by form, watch it start without a reload, read its log, cancel another."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.e2e.api import H100, Api
from tests.e2e.stack import Stack, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.slow]

# Notes every state that the row of a job is shown in, from the moment it is there.
WATCH_ROW = """(name) => {
    window.shown = [];
    const look = () => {
        const row = document.querySelector(`tr[data-name="${name}"]`);
        if (row && window.shown.at(-1) !== row.dataset.state) window.shown.push(row.dataset.state);
    };
    new MutationObserver(look).observe(document.body, {subtree: true, childList: true, attributes: true});
    look();
}"""


@dataclass
class FullCluster:
    """Both teams use all they have: who comes next waits for as long as the test looks."""

    fillers: list[tuple[Api, str]] = field(default_factory=list)

    def fill(self, demo: Stack) -> None:
        for user, tenant in (("ravi", "research"), ("mei", "vision")):
            api = demo.api(user)
            rest = {"name": "filler", "run_seconds": 900, "grace_seconds": 1}
            made = api.submit(tenant=tenant, replicas=32, **rest)
            self.fillers.append((api, made["id"]))
        for api, filler in self.fillers:
            api.until(filler, "running", 30)

    def empty(self) -> None:
        """Cancel what is there; what is gone already answers 409."""
        for api, filler in self.fillers:
            api.call("POST", f"jobs/{filler}/cancel/", json={"reason": "make room"})


@pytest.fixture
def full_cluster(demo: Stack) -> Iterator[FullCluster]:
    """A cluster without a free H100."""
    full = FullCluster()
    full.fill(demo)
    yield full
    full.empty()


def test_ravi_submits_by_form_and_sees_the_row_go_from_pending_to_running(
    full_cluster: FullCluster, sign_in: SignIn
) -> None:
    page = sign_in("ravi")
    page.goto("/jobs/")
    page.get_by_role("link", name="Submit a job").first.click()
    name = f"by-form-{time.time_ns() % 10**9}"
    fill_form(page, name)

    other = page.context.new_page()
    other.goto("/jobs/")
    other.evaluate("window.sameDocument = true")
    other.evaluate(WATCH_ROW, name)
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)

    expect(other.locator(f'tr[data-name="{name}"]')).to_have_attribute("data-state", "pending")
    full_cluster.empty()
    expect(other.locator(f'tr[data-name="{name}"]')).to_have_attribute(
        "data-state", "running", timeout=30_000
    )
    shown = other.evaluate("window.shown")
    assert shown[0] == "pending"
    assert shown[-1] == "running"
    assert other.evaluate("window.sameDocument") is True

    other.get_by_role("link", name=name).click()
    expect(other.locator("#log pre")).to_contain_text("step", timeout=30_000)


def fill_form(page: Page, name: str) -> None:
    """Few fields, and one under "more"."""
    page.locator("#id_name").fill(name)
    page.locator("#id_image").fill("registry.example/train:1")
    page.locator("#id_command").fill("torchrun train.py")
    page.locator("#id_gpus").fill("16")
    page.locator("#id_limit").fill("1h")
    open_all_of_more(page)
    page.locator("#id_gpu_model").select_option(H100)
    page.locator("#id_annotations").fill(
        "sim.muster.dev/run-seconds=60\nsim.muster.dev/log-lines=40"
    )


def open_all_of_more(page: Page) -> None:
    """Unfold what is folded, as a person does who looks for a field."""
    folded = page.locator("#more details:not([open]) > summary")
    while folded.count():
        folded.first.click()


def test_the_verdict_stands_beside_the_form_before_it_is_sent(sign_in: SignIn) -> None:
    page = sign_in("ravi")
    page.goto("/jobs/new/")
    page.locator("#id_name").fill("would-it")
    page.locator("#id_image").fill("registry.example/train:1")
    page.locator("#id_gpus").fill("8")
    expect(page.locator("#verdict")).to_contain_text(re.compile("starts now", re.I))
    page.locator("#id_gpus").fill("4096")
    expect(page.locator("#verdict")).to_contain_text(re.compile("never", re.I))


def test_ravi_cancels_a_running_job_after_being_asked(demo: Stack, sign_in: SignIn) -> None:
    api = demo.api("ravi")
    job = api.submit(name="to-cancel", run_seconds=600, grace_seconds=1)
    api.until(job["id"], "running", 20)
    page = sign_in("ravi")
    page.goto(f"/jobs/{job['id']}/")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#job-live .big")).to_contain_text("cancelled", timeout=30_000)
    assert api.job(job["id"])["outcome"] == "cancelled"


def test_a_mistake_is_shown_at_its_field_and_what_was_typed_stays(sign_in: SignIn) -> None:
    page = sign_in("ravi")
    page.goto("/jobs/new/")
    page.locator("#id_name").fill("🚀")
    page.locator("#id_image").fill("my image")
    page.locator("#id_gpus").fill("8")
    page.get_by_role("button", name="Submit").click()
    for wrong in ("name", "image"):
        expect(page.locator(f"#field-{wrong} .errs li")).not_to_have_count(0)
        expect(page.locator(f"#id_{wrong}")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#id_image")).to_have_value("my image")


def test_a_page_says_when_it_is_stale_and_that_it_is_live_again(
    demo: Stack, sign_in: SignIn
) -> None:
    page = sign_in("vera")
    page.goto("/jobs/")
    badge = page.locator(".badge").first
    expect(badge).to_contain_text("live")
    page.context.set_offline(True)
    demo.kill("web")
    expect(badge).to_contain_text("stale", timeout=30_000)
    page.context.set_offline(False)
    wait_until(demo.api("vera").ready, 30)
    expect(badge).to_contain_text("live", timeout=45_000)
