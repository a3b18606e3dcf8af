"""/ws/live/ as a browser has it: who gets in, what they are told of, and that they are shown out in time."""

import json
import time
from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from controlplane.common.live import hub
from controlplane.common.log import latest_seq
from queues.lifecycle import Phase
from queues.services.lifecycle import transition_job
from tenants.models import ApiToken, Membership, User
from tenants.services.members import change_role, remove_member
from tests.factories import make_cluster, make_flavor, make_job, make_queue
from tests.live.conftest import LiveSocket, cookie_of, page_of, rows
from tests.world import NOW

pytestmark = [pytest.mark.usefixtures("live"), pytest.mark.sqlite, pytest.mark.slow]


@pytest.fixture
def jobs(world):
    """A pending job of ravi's in research and one of mei's in vision."""
    cluster = make_cluster()
    flavor = make_flavor(cluster)
    found = {}
    for name, slug in (("ravi", "research"), ("mei", "vision")):
        queue = make_queue(world.tenants[slug], flavors=[flavor])
        found[slug] = make_job(queue, world.users[name], name=f"job-of-{slug}")
    return found


def hold(job):
    """A change that lists show."""
    job.refresh_from_db()
    transition_job(job, Phase.HELD, actor="test", now=NOW)


async def test_change_of_a_job_reaches_its_tenants_pages_as_a_row(world, jobs):
    page = await page_of(world, "vera")
    await page.subscribe("jobs", after=await rows(latest_seq))
    await page.message("ping")
    began = time.monotonic()
    await rows(hold, jobs["research"])
    patch = await page.message("patch")
    assert time.monotonic() - began < 2
    [fragment] = patch["fragments"]
    assert fragment["target"] == f"#job-{jobs['research'].pk}"
    assert 'data-state="held"' in fragment["html"]
    assert "job-of-research" in fragment["html"]
    counts = await page.message("count")
    assert (counts["counts"]["waiting"], counts["counts"]["active"]) == (1, 0)
    await page.disconnect()


async def test_nothing_of_another_tenants_job_reaches_a_page(world, jobs):
    page = await page_of(world, "ravi")
    await page.subscribe("jobs", "map:demo", after=await rows(latest_seq))
    await page.message("ping")
    await rows(hold, jobs["vision"])
    await rows(hold, jobs["research"])
    said = [await page.message("patch"), await page.message("count")]
    assert "research" in json.dumps(said)
    assert "vision" not in json.dumps(said)
    assert jobs["vision"].pk not in json.dumps(said)
    assert said[1]["counts"]["waiting"] == 1
    assert await page.receive_nothing(timeout=1.5)
    await page.disconnect()


async def test_operators_and_auditors_are_told_of_all_tenants(world, jobs):
    for name in ("ines", "sam", "admin"):
        page = await page_of(world, name)
        await page.subscribe("jobs", after=await rows(latest_seq))
        await rows(hold_both, jobs)
        targets: set[str] = set()
        while len(targets) < 2:
            targets |= {f["target"] for f in (await page.message("patch"))["fragments"]}
        assert targets == {f"#job-{job.pk}" for job in jobs.values()}
        await page.disconnect()


def hold_both(jobs):
    """Hold or release both, whichever they are not."""
    for job in jobs.values():
        job.refresh_from_db()
        to = Phase.PENDING if job.phase == Phase.HELD else Phase.HELD
        transition_job(job, to, actor="test", now=NOW)


async def test_topic_that_one_may_not_see_closes_the_socket(world, jobs):
    hidden = f"job:{jobs['vision'].pk}"
    for topic in ("jobs:vision", hidden, "quotas:vision", "jobs:none", "job:job_0", "map:x", "x"):
        page = await page_of(world, "ravi")
        await page.subscribe("jobs", topic)
        assert await page.close_code() == 4403, topic


async def test_job_page_is_nudged_by_events_of_its_job(world, jobs):
    page = await page_of(world, "ravi")
    await page.subscribe(f"job:{jobs['research'].pk}", after=await rows(latest_seq))
    await page.message("ping")
    await rows(hold, jobs["vision"])
    assert await page.receive_nothing(timeout=1.5)
    await rows(hold, jobs["research"])
    patch = await page.message("patch")
    assert [f["target"] for f in patch["fragments"]] == [f"#job-{jobs['research'].pk}"]
    await page.disconnect()


async def test_page_is_told_what_happened_while_it_was_away(world, jobs):
    before = await rows(latest_seq)
    await rows(hold, jobs["research"])
    page = await page_of(world, "ravi")
    await page.subscribe("jobs", after=before)
    patch = await page.message("patch")
    assert [f["target"] for f in patch["fragments"]] == [f"#job-{jobs['research'].pk}"]
    assert patch["seq"] > before
    await page.disconnect()


async def test_page_from_another_database_is_told_to_load_again(world, jobs):
    page = await page_of(world, "ravi")
    await page.subscribe("jobs", after=10**9)
    assert await page.message("resync")
    await page.disconnect()


async def test_page_keeps_its_language_and_zone(world, jobs):
    client = Client()
    await rows(client.force_login, world.users["ravi"])
    cookie = f"{cookie_of(client)}; django_language=zh-hans; tz=Asia/Shanghai"
    page = LiveSocket(cookie=cookie, origin="http://127.0.0.1")
    await page.connect()
    await page.subscribe("jobs", after=await rows(latest_seq))
    await page.message("ping")
    [socket] = hub.sockets
    assert (socket.viewer.language, socket.viewer.zone) == ("zh-hans", "Asia/Shanghai")
    await page.disconnect()


async def test_nobody_is_told_to_log_in(world):
    for cookie in ("", "sessionid=made-up", "sessionid="):
        page = LiveSocket(cookie=cookie, origin="http://127.0.0.1")
        assert await page.connect()
        assert await page.close_code() == 4401


async def test_page_of_another_site_is_refused(world):
    client = Client()
    await rows(client.force_login, world.users["ravi"])
    for origin in ("http://evil.example", "null", "http://127.0.0.1.evil.example"):
        assert not await LiveSocket(cookie=cookie_of(client), origin=origin).connect()


async def test_unknown_host_and_unknown_address_are_refused(world):
    client = Client()
    await rows(client.force_login, world.users["ravi"])
    rebound = LiveSocket(
        cookie=cookie_of(client), host="evil.example", origin="http://evil.example"
    )
    assert not await rebound.connect()
    elsewhere = LiveSocket("/ws/else/", cookie=cookie_of(client))
    assert not await elsewhere.connect()


NONSENSE = (
    "", "{", "[]", "7", '{"type": "publish"}', '{"type": "subscribe"}',
    '{"type": "subscribe", "topics": "jobs"}', '{"type": "subscribe", "topics": [7]}',
    '{"type": "subscribe", "topics": ["jobs"], "after": -1}',
    '{"type": "subscribe", "topics": ["jobs"], "after": true}',
    '{"type": "subscribe", "topics": ["a\\u0000"]}',
    json.dumps({"type": "subscribe", "topics": ["jobs"] * 21}),
    json.dumps({"type": "subscribe", "topics": ["jobs"], "x": "y" * 20_000}),
    "[" * 10_000,
)  # fmt: skip


async def test_nonsense_closes_the_socket(world):
    for text in NONSENSE:
        page = await page_of(world, "ravi")
        await page.send_text(text)
        assert await page.close_code() == 4400, text[:80]
    page = await page_of(world, "ravi")
    await page.send_input({"type": "websocket.receive", "bytes": b"\xff\x00"})
    assert await page.close_code() == 4400


async def closes_within_5_seconds(page, act, *args):
    """The close code after something was done; asserts the delay."""
    await page.subscribe("jobs")
    began = time.monotonic()
    await rows(act, *args)
    code = await page.close_code(seconds=6)
    assert time.monotonic() - began < 5
    return code


async def test_changed_role_closes_the_socket(world, jobs):
    page = await page_of(world, "ravi")

    def demote():
        membership = Membership.objects.get(user=world.users["ravi"])
        change_role(world.actor("olivia"), membership, "viewer", NOW)

    assert await closes_within_5_seconds(page, demote) == 4403


async def test_removed_member_hears_nothing_more(world, jobs):
    page = await page_of(world, "vera")

    def remove():
        membership = Membership.objects.get(user=world.users["vera"])
        remove_member(world.actor("olivia"), membership, NOW)

    assert await closes_within_5_seconds(page, remove) == 4403


async def test_changed_platform_role_closes_the_socket(world, jobs):
    page = await page_of(world, "sam")
    take = User.objects.filter(username="sam").update
    assert await closes_within_5_seconds(page, lambda: take(platform_role="")) == 4403


async def test_logout_closes_the_socket(world, jobs):
    page = await page_of(world, "ravi")
    assert await closes_within_5_seconds(page, page.client.logout) == 4401


async def test_expired_session_closes_the_socket(world, jobs):
    page = await page_of(world, "ravi")
    past = timezone.now() - timedelta(seconds=1)
    expire = Session.objects.update
    assert await closes_within_5_seconds(page, lambda: expire(expire_date=past)) == 4401


async def test_closed_account_and_changed_password_close_the_socket(world, jobs):
    page = await page_of(world, "ravi")
    close = User.objects.filter(username="ravi").update
    assert await closes_within_5_seconds(page, lambda: close(is_active=False)) == 4401
    page = await page_of(world, "mei")
    assert await closes_within_5_seconds(page, lambda: change_password("mei")) == 4403


def change_password(name):
    """What the password form does."""
    user = User.objects.get(username=name)
    user.set_password("another-one")
    user.save()


async def test_token_opens_a_socket_and_its_end_closes_it(world, jobs):
    token = await rows(
        lambda: world.token("ravi", ("jobs:read",), tenant=world.tenants["research"])
    )
    page = LiveSocket(authorization=f"Bearer {token}")
    assert await page.connect()
    revoke = ApiToken.objects.update
    assert await closes_within_5_seconds(page, lambda: revoke(revoked_at=timezone.now())) == 4401
    refused = LiveSocket(authorization=f"Bearer {token}")
    await refused.connect()
    assert await refused.close_code() == 4401


async def test_others_stay_when_one_is_shown_out(world, jobs):
    ravi, vera = await page_of(world, "ravi"), await page_of(world, "vera")
    await vera.subscribe("jobs", after=await rows(latest_seq))
    await closes_within_5_seconds(ravi, ravi.client.logout)
    await rows(hold, jobs["research"])
    assert await vera.message("patch")
    await vera.disconnect()
