"""The REST doors of tenants: who gets in, what they answer, and that strangers hear 404 everywhere."""

import pytest

from tenants.models import ApiToken, AuditEntry, Membership, Secret, Tenant
from tests.world import PEOPLE

API = "/api/v1"
OF_RESEARCH = ("", "members/", "tokens/", "secrets/")


@pytest.mark.parametrize("name", ["mei", "nobody"])
@pytest.mark.parametrize("path", OF_RESEARCH)
@pytest.mark.parametrize("method", ["get", "post", "patch", "delete", "put"])
def test_stranger_never_learns_that_a_tenant_exists(world, name, path, method):
    client = world.client(name)
    hidden = getattr(client, method)(f"{API}/tenants/research/{path}", {}, format="json")
    unknown = getattr(client, method)(f"{API}/tenants/unknown/{path}", {}, format="json")
    assert hidden.status_code == unknown.status_code
    assert hidden.status_code in (404, 405)
    assert hidden.json()["detail"].replace("research", "unknown") == unknown.json()["detail"]


@pytest.mark.parametrize("name", ["mei", "nobody"])
def test_stranger_cannot_reach_single_members_tokens_or_secrets(world, name):
    world.bearer("ravi", tenant=world.tenants["research"])
    token = ApiToken.objects.get(user=world.users["ravi"])
    client = world.client(name)
    for path in ("members/ravi/", f"tokens/{token.pk}/", "secrets/wandb/"):
        assert client.delete(f"{API}/tenants/research/{path}").status_code == 404
    token.refresh_from_db()
    assert token.revoked_at is None


def test_tenants_are_listed_with_ones_own_role(world):
    answer = world.client("olivia").get(f"{API}/tenants/").json()
    assert answer["next"] is None
    assert [(t["slug"], t["role"], t["cohort"]) for t in answer["results"]] == [
        ("research", "admin", "labs")
    ]
    slugs = [t["slug"] for t in world.client("sam").get(f"{API}/tenants/").json()["results"]]
    assert slugs == ["research", "vision"]


def test_list_of_members_costs_the_same_for_any_number(world, django_assert_num_queries):
    client = world.bearer("olivia", tenant=world.tenants["research"])
    client.get(f"{API}/tenants/research/members/")  # notes the token's use
    for expected_rows in (3, 4):
        with django_assert_num_queries(4):  # token, memberships, tenant, members
            answer = client.get(f"{API}/tenants/research/members/")
        assert len(answer.json()["results"]) == expected_rows
        Membership.objects.get_or_create(
            tenant=world.tenants["research"],
            user=world.users["nobody"],
            defaults={"role": "viewer", "created_at": "2026-01-01T00:00:00Z"},
        )


def test_admin_of_tenant_adds_changes_and_removes_a_member(world):
    client = world.client("olivia")
    sent = {"user": "nobody", "role": "viewer"}
    added = client.post(f"{API}/tenants/research/members/", sent, format="json")
    assert (added.status_code, added.json()["role"]) == (201, "viewer")
    changed = client.patch(
        f"{API}/tenants/research/members/nobody/", {"role": "submitter"}, format="json"
    )
    assert (changed.status_code, changed.json()["role"]) == (200, "submitter")
    assert client.delete(f"{API}/tenants/research/members/nobody/").status_code == 204
    assert not Membership.objects.filter(user=world.users["nobody"]).exists()
    actions = AuditEntry.objects.order_by("id").values_list("action", "actor", "object_name")
    assert list(actions) == [
        ("member.added", "olivia", "nobody"),
        ("member.changed", "olivia", "nobody"),
        ("member.removed", "olivia", "nobody"),
    ]


@pytest.mark.parametrize("name", sorted(set(PEOPLE) - {"admin", "olivia", "mei", "nobody"}))
def test_only_admins_change_members_secrets_and_tokens(world, name):
    client = world.client(name)
    sent = {
        "members/": {"user": "nobody", "role": "viewer"},
        "secrets/": {"name": "wandb", "value": "x"},
        "tokens/": {"name": "ci", "scopes": ["jobs:read"]},
    }
    for path, body in sent.items():
        answer = client.post(f"{API}/tenants/research/{path}", body, format="json")
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
    assert not Secret.objects.exists()
    assert not ApiToken.objects.exists()
    assert Membership.objects.count() == 4


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({}, "/user", "required"),
        ({"user": "nobody"}, "/role", "required"),
        ({"user": "nobody", "role": "emperor"}, "/role", "invalid_choice"),
        ({"user": "unheard-of", "role": "viewer"}, "/user", "unknown_user"),
        ({"user": 7, "role": ["viewer"]}, "/role", "invalid_choice"),
        ({"user": "nobody", "role": "viewer", "extra": 1}, "/extra", "unknown_field"),
        ([], "", "not_an_object"),
        ("text", "", "not_an_object"),
    ],
)
def test_bad_member_is_refused_with_the_field_and_leaves_no_row(world, body, pointer, code):
    answer = world.client("olivia").post(f"{API}/tenants/research/members/", body, format="json")
    assert answer.status_code == 422
    assert (pointer, code) in {(e["pointer"], e["code"]) for e in answer.json()["errors"]}
    assert Membership.objects.count() == 4
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("method", "path", "body", "right"),
    [
        ("post", "tenants/research/members/", {"user": "mei", "role": "boss"}, "submitter"),
        ("post", "tenants/research/tokens/", {"name": "t", "scopes": ["jobs:fly"]}, "jobs:read"),
        ("put", "me/mail/", {"alerts": "x" * 10_000}, "critical"),
    ],
)
def test_a_word_that_is_no_choice_is_answered_with_those_that_are(world, method, path, body, right):
    answer = getattr(world.client("olivia"), method)(f"{API}/{path}", body, format="json")
    assert answer.status_code == 422
    message = answer.json()["errors"][0]["message"]
    assert right in message
    assert len(message) < 300


def test_member_added_twice_is_a_conflict(world):
    sent = {"user": "ravi", "role": "viewer"}
    answer = world.client("olivia").post(f"{API}/tenants/research/members/", sent, format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "already_member")


def test_last_admin_stays_unless_a_platform_admin_says_otherwise(world):
    path = f"{API}/tenants/research/members/olivia/"
    for answer in (
        world.client("olivia").delete(path),
        world.client("olivia").patch(path, {"role": "viewer"}, format="json"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "last_admin")
    assert world.client("admin").delete(path).status_code == 204


def test_secret_is_stored_encrypted_and_never_answered(world):
    client = world.client("olivia")
    path = f"{API}/tenants/research/secrets/"
    sent = {"name": "wandb", "value": "s3cr3t-value"}
    first = client.post(path, sent, format="json")
    again = client.post(path, {**sent, "value": "other-value"}, format="json")
    assert (first.status_code, first.json()["version"]) == (201, 1)
    assert (again.status_code, again.json()["version"]) == (200, 2)
    listed = client.get(path)
    for answer in (first, again, listed):
        assert "value" not in answer.content.decode().replace("encrypted_value", "")
    stored = bytes(Secret.objects.get().encrypted_value)
    assert b"s3cr3t" not in stored
    assert b"other" not in stored
    assert "other-value" not in str(list(AuditEntry.objects.values()))


def test_secret_without_field_key_is_refused_clearly(world, settings):
    settings.FIELD_KEY = ""
    sent = {"name": "wandb", "value": "x"}
    answer = world.client("olivia").post(f"{API}/tenants/research/secrets/", sent, format="json")
    assert (answer.status_code, answer.json()["code"]) == (503, "no_field_key")
    assert "FIELD_KEY" in answer.json()["detail"]
    assert not Secret.objects.exists()


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": "Not A Slug"}, "/name"),
        ({"name": "🚀"}, "/name"),
        ({"name": "trailing-\n"}, "/name"),
        ({"value": ""}, "/value"),
        ({"value": "x" * (512 * 1024 + 1)}, "/value"),
        ({"kind": "ssh"}, "/kind"),
        ({"kind": "dockerconfigjson", "value": "{}"}, "/value"),
    ],
)
def test_bad_secret_is_refused_at_its_field(world, change, pointer):
    sent = {"name": "wandb", "value": "x", **change}
    answer = world.client("olivia").post(f"{API}/tenants/research/secrets/", sent, format="json")
    assert answer.status_code == 422
    assert pointer in {e["pointer"] for e in answer.json()["errors"]}
    assert not Secret.objects.exists()


def test_viewers_auditors_and_operators_do_not_see_secrets(world):
    for name in ("vera", "sam", "ines"):
        answer = world.client(name).get(f"{API}/tenants/research/secrets/")
        assert answer.status_code == 403, name


def test_token_is_shown_once_and_works_at_once(world):
    client = world.client("olivia")
    sent = {"name": "ci", "user": "ravi", "scopes": ["jobs:read"], "days": 7}
    made = client.post(f"{API}/tenants/research/tokens/", sent, format="json").json()
    assert made["token"].startswith("mst_")
    assert made["prefix"] == made["token"][:12]
    row = ApiToken.objects.get()
    assert made["token"] not in str(list(ApiToken.objects.values()))
    assert row.expires_at is not None
    assert (row.expires_at - row.created_at).days == 7
    listed = client.get(f"{API}/tenants/research/tokens/").content.decode()
    assert made["token"] not in listed
    who = client.get(f"{API}/whoami/", HTTP_AUTHORIZATION=f"Bearer {made['token']}").json()
    assert who == {
        "user": "ravi",
        "platform_role": None,
        "via": f"token:{made['prefix']}",
        "scopes": ["jobs:read"],
        "tenants": [{"tenant": "research", "role": "submitter"}],
    }


def test_revoked_token_is_refused_at_once(world):
    client = world.client("olivia")
    sent = {"name": "ci", "user": "ravi", "scopes": ["jobs:read"]}
    made = client.post(f"{API}/tenants/research/tokens/", sent, format="json").json()
    header = {"HTTP_AUTHORIZATION": f"Bearer {made['token']}"}
    assert client.get(f"{API}/tenants/", **header).status_code == 200
    assert client.delete(f"{API}/tenants/research/tokens/{made['id']}/").status_code == 204
    refused = client.get(f"{API}/tenants/", **header)
    assert (refused.status_code, refused.json()["code"]) == (401, "bad_token")


def test_removed_member_loses_the_tokens_of_that_tenant(world):
    client = world.bearer("ravi", tenant=world.tenants["research"])
    assert client.get(f"{API}/tenants/").status_code == 200
    world.client("olivia").delete(f"{API}/tenants/research/members/ravi/")
    assert client.get(f"{API}/tenants/").status_code == 401


def test_tenant_admin_cannot_borrow_a_platform_role_by_token(world):
    Membership.objects.create(
        tenant=world.tenants["research"],
        user=world.users["ines"],
        role="viewer",
        created_at="2026-01-01T00:00:00Z",
    )
    sent = {"name": "ci", "user": "ines", "scopes": ["nodes:write"]}
    answer = world.client("olivia").post(f"{API}/tenants/research/tokens/", sent, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "platform_role")


def test_token_cannot_hand_out_more_than_it_has(world):
    client = world.bearer("olivia", ("quotas:write",), tenant=world.tenants["research"])
    sent = {"name": "ci", "scopes": ["quotas:write", "jobs:write"]}
    answer = client.post(f"{API}/tenants/research/tokens/", sent, format="json")
    assert answer.status_code == 422
    assert [(e["pointer"], e["code"]) for e in answer.json()["errors"]] == [
        ("/scopes/1", "scope_not_held")
    ]


def test_token_for_a_stranger_is_refused(world):
    sent = {"name": "ci", "user": "mei", "scopes": ["jobs:read"]}
    answer = world.client("olivia").post(f"{API}/tenants/research/tokens/", sent, format="json")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == "not_member"


def test_platform_admin_makes_and_changes_a_tenant(world):
    client = world.client("admin")
    sent = {"slug": "speech", "name": "Speech", "cohort": "labs"}
    made = client.post(f"{API}/tenants/", sent, format="json")
    assert made.status_code == 201
    assert made["Location"].endswith("/api/v1/tenants/speech/")
    again = client.post(f"{API}/tenants/", sent, format="json")
    assert (again.status_code, again.json()["code"]) == (409, "slug_in_use")
    changed = client.patch(f"{API}/tenants/speech/", {"highest_priority": 700}, format="json")
    assert changed.json()["highest_priority"] == 700
    wrong = client.patch(f"{API}/tenants/speech/", {"lowest_priority": 900}, format="json")
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/lowest_priority")
    entry = AuditEntry.objects.get(action="tenant.changed")
    assert (entry.before, entry.after) == ({"highest_priority": 1000}, {"highest_priority": 700})


def test_tenant_admin_sets_log_retention_and_nothing_else(world):
    client = world.client("olivia")
    path = f"{API}/tenants/research/"
    assert client.patch(path, {"log_retention_days": 30}, format="json").status_code == 200
    assert client.patch(path, {"highest_priority": 900}, format="json").status_code == 403
    assert (
        client.post(f"{API}/tenants/", {"slug": "a", "name": "A"}, format="json").status_code == 403
    )
    assert Tenant.objects.get(slug="research").log_retention_days == 30


def test_audit_trail_is_filtered_and_paged(world):
    client = world.client("olivia")
    for role in ("viewer", "submitter", "viewer"):
        client.patch(f"{API}/tenants/research/members/vera/", {"role": "admin"}, format="json")
        client.patch(f"{API}/tenants/research/members/vera/", {"role": role}, format="json")
    first = world.client("sam").get(f"{API}/audit/?limit=4&action=member.changed").json()
    second = world.client("sam").get(first["next"]).json()
    ids = [e["id"] for e in first["results"] + second["results"]]
    assert len(ids) == 6
    assert ids == sorted(ids, reverse=True)
    assert second["next"] is None
    assert world.client("ravi").get(f"{API}/audit/").json()["results"] == []
