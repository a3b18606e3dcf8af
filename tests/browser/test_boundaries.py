"""What a person may not do or see, in a real browser."""

import re
import time

import pytest
from playwright.sync_api import WebSocket, expect

from tests.browser.conftest import SignIn
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.slow]

QUOTAS = "/tenants/research/quotas/"


def test_olivia_edits_a_quota_within_what_she_may_and_is_refused_beyond_it(
    demo: Stack, sign_in: SignIn
) -> None:
    api = demo.api("olivia")
    page = sign_in("olivia")
    page.goto(QUOTAS)
    lending = page.locator('input[name="f:h100:lending_limit"]')
    lending.fill("128")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#quota-preview")).not_to_contain_text("Preview asks the planner")
    with page.expect_navigation():
        page.get_by_role("button", name="Save").click()
    expect(page.locator('input[name="f:h100:lending_limit"]')).to_have_value("128")
    flavors = {f["flavor"]: f for f in api.get("tenants/research/quotas/")["flavors"]}
    assert flavors["h100"]["lending_limit"] == 128

    before = api.get("tenants/research/quotas/")
    page.locator('input[name="f:h100:nominal"]').fill("300")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".note, .cell-wrong").first).to_contain_text(re.compile("platform admin"))
    assert api.get("tenants/research/quotas/") == before


@pytest.fixture
def visions_job(demo: Stack) -> dict[str, str]:
    """A job of a tenant that ravi does not belong to."""
    made = demo.api("mei").submit(
        name=f"hidden-{time.time_ns()}",
        tenant="vision",
        run_seconds=1,
        external_id=f"x{time.time_ns()}",
    )
    return {"id": made["id"], "name": made["name"]}


def test_ravi_gets_404_for_visions_job_on_every_address(
    visions_job: dict[str, str], sign_in: SignIn
) -> None:
    page = sign_in("ravi")
    for rest in ("", "live/", "log/", "explain/"):
        answer = page.goto(f"/jobs/{visions_job['id']}/{rest}")
        assert answer is not None
        assert answer.status == 404, rest
        assert visions_job["name"] not in page.content()


def test_ravi_sees_visions_job_in_no_list_and_no_count(
    demo: Stack, visions_job: dict[str, str], sign_in: SignIn
) -> None:
    demo.api("mei").until(visions_job["id"], "finished", 30)
    page = sign_in("ravi")
    for path in ("/jobs/?view=all", f"/jobs/?search={visions_job['name']}", "/", "/map/demo/"):
        page.goto(path)
        assert visions_job["id"] not in page.content()
        assert visions_job["name"] not in page.locator("main").inner_text().replace(path, "")
    all_of_ravis = len(demo.api("ravi").get("jobs/", limit=200)["results"])
    page.goto("/jobs/?view=all")
    shown = page.locator(".tabs [aria-current=page] .n")
    if shown.count():
        assert int(re.sub(r"\D", "", shown.inner_text())) == all_of_ravis


def test_nothing_of_visions_job_comes_over_ravis_websocket(demo: Stack, sign_in: SignIn) -> None:
    received: list[str] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: received.append(str(payload)))

    page = sign_in("ravi")
    page.on("websocket", listen)
    page.goto("/jobs/")
    expect(page.locator(".badge").first).to_contain_text("live")
    mei = demo.api("mei")
    name = f"hidden-{time.time_ns()}"
    theirs = mei.submit(name=name, tenant="vision", run_seconds=1)
    ours = demo.api("ravi").submit(name="seen", run_seconds=1)
    mei.until(theirs["id"], "finished", 30)
    demo.api("ravi").until(ours["id"], "finished", 30)
    page.wait_for_timeout(2_000)
    told = "\n".join(received)
    assert ours["id"] in told, "the socket said nothing of ravi's own job either"
    assert theirs["id"] not in told
    assert name not in told
