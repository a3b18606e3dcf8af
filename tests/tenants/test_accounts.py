"""Accounts, platform roles, cohorts and the keys that encrypt: the services behind them."""

import pytest
from cryptography.fernet import Fernet

from controlplane.common import log
from controlplane.common.errors import ApplicationError, ConflictError, ForbiddenError, InvalidError
from controlplane.common.models import Event
from tenants import vault
from tenants.models import ApiToken, AuditEntry, Cohort, Secret, User
from tenants.services import members, secrets, tenants, tokens, users
from tests.world import NOW


def test_platform_admin_makes_an_account_that_can_log_in(world):
    made = users.create_user(world.actor("admin"), "new-person", "a long pass phrase", NOW)
    assert made.check_password("a long pass phrase")
    assert made.platform_role == ""
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.object_name) == ("user.created", "new-person")
    assert "phrase" not in str(list(AuditEntry.objects.values()))


def test_account_without_password_opens_by_single_sign_on_only(world):
    made = users.create_user(world.actor("admin"), "sso", "", NOW)
    assert not made.has_usable_password()


@pytest.mark.parametrize(
    ("username", "password", "email", "pointer"),
    [
        ("", "", "", "/username"),
        ("has space", "", "", "/username"),
        ("x" * 151, "", "", "/username"),
        ("fine", "short", "", "/password"),
        ("fine", "password123", "", "/password"),
        ("fine", "", "no-address", "/email"),
    ],
)
def test_bad_account_is_refused_at_its_field(world, username, password, email, pointer):
    with pytest.raises(InvalidError) as refused:
        users.create_user(world.actor("admin"), username, password, NOW, email=email)
    assert pointer in {e.pointer for e in refused.value.errors}
    assert User.objects.count() == 8


def test_account_names_are_unique_whatever_their_case(world):
    with pytest.raises(ConflictError):
        users.create_user(world.actor("admin"), "Ravi", "", NOW)


@pytest.mark.parametrize("name", ["olivia", "ines", "sam", "ravi"])
def test_only_platform_admins_manage_accounts_and_tenants(world, name):
    actor = world.actor(name)
    acts = (
        lambda: users.create_user(actor, "x", "", NOW),
        lambda: users.set_platform_role(actor, world.users[name], "admin", NOW),
        lambda: users.close_account(actor, world.users["admin"], NOW),
        lambda: tenants.create_cohort(actor, "x", "", NOW),
        lambda: tenants.create_tenant(actor, "x", tenants.TenantFields("X"), NOW),
    )
    for act in acts:
        with pytest.raises(ForbiddenError):
            act()
    assert not AuditEntry.objects.exists()
    assert not Event.objects.exists()


def test_last_platform_admin_stays(world):
    actor, admin = world.actor("admin"), world.users["admin"]
    for act in (
        lambda: users.set_platform_role(actor, admin, "operator", NOW),
        lambda: users.close_account(actor, admin, NOW),
    ):
        with pytest.raises(ConflictError) as refused:
            act()
        assert refused.value.code == "last_admin"
    users.set_platform_role(actor, world.users["ines"], "admin", NOW)
    assert users.set_platform_role(actor, admin, "", NOW).platform_role == ""


def test_closed_account_loses_its_tokens(world):
    world.token("ravi")
    closed = users.close_account(world.actor("admin"), world.users["ravi"], NOW)
    assert not closed.is_active
    assert ApiToken.objects.get().revoked_at == NOW


def test_first_admin_is_made_once(db):
    made = users.first_admin("root", "a long pass phrase", NOW)
    assert made is not None
    assert made.platform_role == "admin"
    assert users.first_admin("other", "another phrase", NOW) is None


def test_cohorts_form_a_tree_and_never_a_circle(world):
    actor = world.actor("admin")
    top = tenants.create_cohort(actor, "top", "", NOW)
    middle = tenants.create_cohort(actor, "middle", "top", NOW)
    low = tenants.create_cohort(actor, "low", "middle", NOW)
    for under in ("low", "middle", "top"):
        with pytest.raises(InvalidError) as refused:
            tenants.move_cohort(actor, top, under, NOW)
        assert refused.value.errors[0].code == "circle"
    tenants.move_cohort(actor, low, "top", NOW)
    tenants.move_cohort(actor, middle, "low", NOW)
    found = dict(Cohort.objects.values_list("name", "parent__name"))
    assert found == {"labs": None, "top": None, "low": "top", "middle": "low"}


def test_every_change_leaves_an_event_that_names_no_secret(world):
    olivia, admin = world.actor("olivia"), world.actor("admin")
    research = world.tenants["research"]
    secrets.set_secret(olivia, research, name="wandb", value="v", kind="opaque", now=NOW)
    wanted = tokens.NewToken(world.users["ravi"], research, "nightly-ci", ["jobs:read"])
    token, _text = tokens.create_token(olivia, wanted, NOW)
    tokens.revoke_token(olivia, token, NOW)
    members.add_member(olivia, research, "nobody", "viewer", NOW)
    tenants.change_tenant(admin, research, {"highest_priority": 900}, NOW)
    events = list(Event.objects.order_by("seq").values("kind", "tenant", "message", "numbers"))
    assert [e["kind"] for e in events] == [
        "secret.created",
        "token.created",
        "token.revoked",
        "member.added",
        "tenant.changed",
    ]
    assert {e["tenant"] for e in events} == {"research"}
    for hidden in ("wandb", "nightly-ci", token.prefix):
        assert hidden not in str(events)


def test_refused_change_leaves_neither_row_nor_entry_nor_event(world, monkeypatch):
    def crash(*_events):
        raise RuntimeError("while recording")

    monkeypatch.setattr(log, "record", crash)
    with pytest.raises(RuntimeError):
        members.add_member(
            world.actor("olivia"), world.tenants["research"], "nobody", "viewer", NOW
        )
    assert not world.users["nobody"].memberships.exists()
    assert not AuditEntry.objects.exists()


def test_secret_survives_a_change_of_keys(world, settings):
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.FIELD_KEY = old
    olivia, research = world.actor("olivia"), world.tenants["research"]
    secrets.set_secret(olivia, research, name="s", value="välue\n", kind="opaque", now=NOW)
    settings.FIELD_KEY = f"{new}, {old}"
    assert secrets.secret_value(Secret.objects.get()) == "välue\n".encode()
    settings.FIELD_KEY = new
    with pytest.raises(ApplicationError) as refused:
        secrets.secret_value(Secret.objects.get())
    assert refused.value.code == "no_field_key"


def test_malformed_key_is_found_at_start(settings):
    settings.FIELD_KEY = "not a key"
    assert [error.id for error in vault.check_field_key()] == ["tenants.E001"]
    settings.FIELD_KEY = ""
    assert vault.check_field_key() == []
