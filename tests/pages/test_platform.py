"""What tenant admins and platform admins do on pages: quota, queues, members, tenants, accounts, clusters."""

import re

import pytest

from queues.models import Cluster, Queue, Quota, QuotaRequest
from scheduler.models import Node
from tenants.models import ApiToken, Membership, Secret, Tenant, User


def quota_form(**changes: str) -> dict[str, str]:
    sent: dict[str, str] = {}
    for flavor, nominal in (("h100", "256"), ("a100", "32")):
        sent |= {
            f"f:{flavor}:nominal": nominal,
            f"f:{flavor}:borrowing_limit": "",
            f"f:{flavor}:lending_limit": "",
            f"f:{flavor}:weight": "1",
            f"f:{flavor}:headroom": "0",
        }
    return sent | changes


def h100(scene) -> Quota:
    return Quota.objects.get(tenant__slug="research", flavor__name="h100")


def test_tenant_admin_saves_what_they_may(scene, sign_in):
    sent = quota_form(
        **{"f:h100:lending_limit": "64", "f:h100:headroom": "8", "q:debug:h100": "16"}
    )
    answer = sign_in("olivia").post("/tenants/research/quotas/", sent, follow=True)
    assert "The quotas are saved." in answer.content.decode()
    assert (h100(scene).lending_limit, h100(scene).headroom) == (64, 8)
    assert Queue.objects.get(name="debug").limits.get().limit == 16


@pytest.mark.parametrize(
    ("cell", "value", "told"),
    [
        ("f:h100:nominal", "512", "only a platform admin changes it"),
        ("f:h100:weight", "9", "only a platform admin changes it"),
        ("f:h100:lending_limit", "999", "must be at most nominal"),
        ("f:h100:headroom", "many", "must be a whole number"),
        ("f:h100:nominal", "-1", "must be a whole number"),
    ],
)
def test_tenant_admin_is_refused_beyond_it_at_the_cell(scene, sign_in, cell, value, told):
    answer = sign_in("olivia").post("/tenants/research/quotas/", quota_form(**{cell: value}))
    text = answer.content.decode()
    assert answer.status_code == 200
    place = text.index(f'name="{cell}"')
    assert told in text[place : place + 600]
    assert h100(scene).nominal == 256


def test_submitter_changes_no_quota(scene, sign_in):
    sent = quota_form(**{"f:h100:lending_limit": "64"})
    assert sign_in("ravi").post("/tenants/research/quotas/", sent).status_code == 200
    assert h100(scene).lending_limit is None


def test_stale_form_changes_nothing(scene, sign_in):
    client = sign_in("olivia")
    sent = quota_form(**{"f:h100:lending_limit": "64", "version": "99"})
    assert (
        "changed after you read" in client.post("/tenants/research/quotas/", sent).content.decode()
    )
    assert h100(scene).lending_limit is None


def test_request_is_asked_accepted_and_applied(scene, sign_in):
    sent = quota_form(**{"f:h100:nominal": "300", "do": "ask", "comment": "a paper is due"})
    sign_in("olivia").post("/tenants/research/quotas/", sent)
    request = QuotaRequest.objects.get()
    assert h100(scene).nominal == 256
    path = f"/tenants/research/quotas/requests/{request.pk}/"
    assert sign_in("olivia").post(path, {"do": "accept"}, follow=True).status_code in (200, 403)
    assert h100(scene).nominal == 256
    sign_in("admin").post(path, {"do": "accept", "comment": "granted"})
    assert h100(scene).nominal == 300


def test_preview_says_what_does_not_hold_without_a_planner(scene, sign_in, settings):
    settings.WHATIF_URL = "http://127.0.0.1:9"
    client = sign_in("olivia")
    beyond = quota_form(**{"f:h100:nominal": "512"})
    text = client.post("/tenants/research/quotas/preview/", beyond).content.decode()
    assert "Does not hold" in text
    same = client.post("/tenants/research/quotas/preview/", quota_form()).content.decode()
    assert "Changes nothing" in same
    away = quota_form(**{"f:h100:lending_limit": "1"})
    assert (
        "No verdict now" in client.post("/tenants/research/quotas/preview/", away).content.decode()
    )


def test_platform_admin_makes_a_tenant_and_gives_it_a_flavor(scene, sign_in):
    client = sign_in("admin")
    sent = {"slug": "speech", "name": "Speech", "cohort": "lab"}
    assert client.post("/tenants/", sent)["Location"] == "/tenants/speech/quotas/"
    given = {"add_flavor": "h100", "add_nominal": "64"}
    client.post("/tenants/speech/quotas/", given)
    assert Quota.objects.get(tenant__slug="speech").nominal == 64


def test_tenant_whose_cohort_is_refused_is_not_made(scene, sign_in):
    sent = {"slug": "speech", "name": "Speech", "cohort": "No Such Name!"}
    answer = sign_in("admin").post("/tenants/", sent)
    assert answer.status_code == 200
    assert not Tenant.objects.filter(slug="speech").exists()


@pytest.mark.parametrize("name", ["olivia", "ines", "sam"])
def test_tenants_and_accounts_are_made_by_platform_admins_alone(scene, sign_in, name):
    sent = {"slug": "speech", "name": "Speech"}
    assert sign_in(name).post("/tenants/", sent).status_code == 403
    assert sign_in(name).get("/people/").status_code == 403
    assert not Tenant.objects.filter(slug="speech").exists()


def test_account_is_made_with_its_role_and_closed(scene, sign_in):
    client = sign_in("admin")
    sent = {"username": "nora", "password": "a long pass phrase", "platform_role": "operator"}
    client.post("/people/", sent)
    nora = User.objects.get(username="nora")
    assert nora.platform_role == "operator"
    assert nora.check_password("a long pass phrase")
    client.post(f"/people/{nora.pk}/", {"do": "close"})
    nora.refresh_from_db()
    assert nora.is_active is False


def test_weak_password_is_told_at_its_field_and_makes_no_account(scene, sign_in):
    answer = sign_in("admin").post("/people/", {"username": "nora", "password": "123"})
    assert "password" in answer.context["form"].errors
    assert not User.objects.filter(username="nora").exists()


def test_members_come_change_and_go(scene, sign_in):
    client = sign_in("olivia")
    client.post("/tenants/research/members/", {"user": "mei", "role": "viewer"})
    member = Membership.objects.get(tenant__slug="research", user__username="mei")
    client.post(f"/tenants/research/members/{member.pk}/", {"role": "submitter"})
    member.refresh_from_db()
    assert member.role == "submitter"
    client.post(f"/tenants/research/members/{member.pk}/", {"role": ""})
    assert not Membership.objects.filter(pk=member.pk).exists()


def test_last_admin_stays(scene, sign_in):
    member = Membership.objects.get(tenant__slug="research", user__username="olivia")
    path = f"/tenants/research/members/{member.pk}/"
    text = sign_in("olivia").post(path, {"role": "viewer"}, follow=True).content.decode()
    assert "A tenant keeps at least one admin." in text
    member.refresh_from_db()
    assert member.role == "admin"


def test_member_of_another_tenant_is_not_found(scene, sign_in):
    member = Membership.objects.get(user__username="mei")
    path = f"/tenants/research/members/{member.pk}/"
    assert sign_in("olivia").post(path, {"role": "viewer"}).status_code == 404


def test_secret_is_stored_and_its_value_shown_nowhere(scene, sign_in):
    client = sign_in("olivia")
    sent = {"name": "wandb", "kind": "opaque", "value": "hunter2-hunter2"}
    text = client.post("/tenants/research/secrets/", sent, follow=True).content.decode()
    assert "wandb" in text
    assert "hunter2" not in text
    wrong = client.post("/tenants/research/secrets/", sent | {"name": "Not A Name"})
    assert "name" in wrong.context["form"].errors
    assert Secret.objects.count() == 1


def test_token_is_shown_once_and_revoked(scene, sign_in):
    client = sign_in("olivia")
    sent = {"name": "ci", "user": "ravi", "days": "30", "scopes": ["jobs:read", "jobs:write"]}
    answer = client.post("/tenants/research/tokens/", sent)
    text = answer.content.decode()
    token = ApiToken.objects.get()
    assert answer["Cache-Control"] == "no-store"
    assert text.count(token.prefix) >= 2
    shown = text.split('id="made">')[1].split("<")[0]
    assert shown.startswith(token.prefix)
    assert shown not in client.get("/tenants/research/tokens/").content.decode()
    client.post(f"/tokens/{token.pk}/revoke/", {"next": "/tenants/research/tokens/"})
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_stranger_revokes_nothing(scene, sign_in):
    sent = {"name": "ci", "user": "ravi", "days": "30", "scopes": ["jobs:read"]}
    sign_in("olivia").post("/tenants/research/tokens/", sent)
    token = ApiToken.objects.get()
    assert sign_in("mei").post(f"/tokens/{token.pk}/revoke/").status_code == 404
    token.refresh_from_db()
    assert token.revoked_at is None


def test_queue_is_held_tuned_and_made(scene, sign_in):
    client = sign_in("olivia")
    settings_form = {
        "state": "held",
        "flavors": "a100, h100",
        "default_limit": "12h",
        "longest_limit": "3d",
        "highest_priority_submitter": "400",
        "highest_priority_admin": "1000",
        "bookings": "2",
        "booking_after": "6h",
        "backfill_order": "order",
    }
    answer = client.post("/tenants/research/queues/train/", settings_form)
    assert answer.status_code == 302, answer.context["form"].errors
    queue = Queue.objects.get(tenant__slug="research", name="train")
    assert (queue.state, queue.default_max_runtime_seconds, queue.bookings) == ("held", 43_200, 2)
    assert [row.flavor.name for row in queue.queue_flavors.all()] == ["a100", "h100"]
    wrong = client.post("/tenants/research/queues/train/", settings_form | {"default_limit": "9d"})
    assert "default_limit" in wrong.context["form"].errors
    client.post(
        "/tenants/research/queues/", {"name": "night", "cluster": "demo", "flavors": "h100"}
    )
    assert Queue.objects.get(name="night").state == "closed"


def test_submitter_tunes_no_queue(scene, sign_in):
    answer = sign_in("ravi").post(
        "/tenants/research/queues/", {"name": "night", "cluster": "demo", "flavors": "h100"}
    )
    assert answer.status_code in (200, 403)
    assert not Queue.objects.filter(name="night").exists()


def test_operator_cordons_with_a_reason_and_nobody_else(scene, sign_in):
    path = "/nodes/demo/gpu-00005/cordon/"
    node = Node.objects.get(name="gpu-00005")
    assert sign_in("olivia").post(path, {"reason": "x"}).status_code == 403
    assert sign_in("ines").post(path, {"reason": " "}).status_code == 422
    node.refresh_from_db()
    assert not node.cordon_wanted
    text = sign_in("ines").post(path, {"reason": "fan"}, follow=True).content.decode()
    assert "cordoned" in text
    node.refresh_from_db()
    assert node.cordon_by == "ines"
    assert Node.objects.filter(name="gpu-00005", cordon_wanted=True).exists()
    sign_in("ines").post(path, {"do": "uncordon", "reason": "mended"})
    assert Node.objects.filter(name="gpu-00005", cordon_wanted=False).exists()


def test_platform_admin_sets_the_mode_of_a_cluster(scene, sign_in):
    path = "/map/demo/mode/"
    assert sign_in("ines").post(path, {"mode": "paused"}).status_code == 403
    text = sign_in("admin").post(path, {"mode": "paused"}, follow=True).content.decode()
    assert "nothing starts there" in text
    assert Cluster.objects.get().mode == "paused"
    assert sign_in("admin").post(path, {"mode": "explode"}).status_code == 422


def test_refused_secret_is_not_shown_again(scene, sign_in):
    sent = {"name": "not a name!", "kind": "opaque", "value": "hunter2-hunter2"}
    answer = sign_in("olivia").post("/tenants/research/secrets/", sent)
    assert answer.status_code == 200
    assert "not a name!" in answer.content.decode()
    assert "hunter2" not in answer.content.decode()
    assert not Secret.objects.filter(name="not a name!").exists()


def test_map_tells_its_numbers_anew_without_being_drawn_anew(scene, sign_in):
    client = sign_in("ravi")
    page = client.get("/map/demo/").content.decode()
    part = client.get("/map/demo/", headers={"HX-Request": "true"}).content.decode()
    assert "<svg" in page
    told = re.findall(r'<span id="([^"]+)" hx-swap-oob="innerHTML">([^<]*)</span>', part)
    assert len(told) == 1 + 3 + 5, "the cluster, its spines and its leaves"
    for where, text in told:
        assert re.search(rf'id="{re.escape(where)}">{re.escape(text)}<', page)
