"""What each person sees of tenants and what belongs to them; strangers see nothing."""

import pytest

from controlplane.common import log
from controlplane.common.errors import NotVisibleError
from tenants import selectors
from tenants.models import ApiToken, AuditEntry, Membership, Secret
from tests.world import NOW

BOTH, RESEARCH, VISION = {"research", "vision"}, {"research"}, {"vision"}
SEEN = {
    "admin": BOTH,
    "ines": BOTH,
    "sam": BOTH,
    "olivia": RESEARCH,
    "ravi": RESEARCH,
    "vera": RESEARCH,
    "mei": VISION,
    "nobody": set(),
}


@pytest.mark.parametrize("name", SEEN)
def test_tenants_and_members_are_seen_by_their_own_and_by_platform_roles(world, name):
    actor = world.actor(name)
    assert {t.slug for t in selectors.tenants_visible_to(actor)} == SEEN[name]
    assert {m.tenant.slug for m in selectors.memberships_visible_to(actor)} == SEEN[name]
    for slug in BOTH - SEEN[name]:
        with pytest.raises(NotVisibleError):
            selectors.tenant_of(actor, slug)


@pytest.mark.parametrize("name", SEEN)
def test_hidden_and_unknown_tenants_are_answered_alike(world, name):
    actor = world.actor(name)
    texts = set()
    for slug in (BOTH - SEEN[name]) | {"unknown"}:
        with pytest.raises(NotVisibleError) as refused:
            selectors.tenant_of(actor, slug)
        texts.add((refused.value.detail.replace(slug, "…"), refused.value.code))
    assert len(texts) == 1


def test_secrets_are_seen_by_those_who_may_use_them(world):
    for slug, tenant in world.tenants.items():
        Secret.objects.create(
            tenant=tenant, name=slug, encrypted_value=b"x", created_at=NOW, changed_at=NOW
        )
    seen = {
        name: {s.name for s in selectors.secrets_visible_to(world.actor(name))} for name in SEEN
    }
    assert {name: found for name, found in seen.items() if found} == {
        "admin": BOTH,
        "olivia": RESEARCH,
        "ravi": RESEARCH,
        "mei": VISION,
    }


def test_tokens_are_seen_by_their_owner_and_by_those_who_manage_them(world):
    for name, slug in (("ravi", "research"), ("mei", "vision"), ("vera", "research")):
        ApiToken.objects.create(
            user=world.users[name],
            tenant=world.tenants[slug],
            name=name,
            prefix=name,
            token_hash=name,
            created_at=NOW,
        )
    seen = {name: {t.name for t in selectors.tokens_visible_to(world.actor(name))} for name in SEEN}
    assert {name: found for name, found in seen.items() if found} == {
        "admin": {"ravi", "mei", "vera"},
        "olivia": {"ravi", "vera"},
        "ravi": {"ravi"},
        "vera": {"vera"},
        "mei": {"mei"},
    }


def test_audit_trail_is_read_by_auditors_platform_admins_and_the_tenants_admins(world):
    for tenant in (*world.tenants.values(), None):
        AuditEntry.objects.create(
            at=NOW,
            actor="x",
            action="a",
            tenant=tenant,
            object_kind="k",
            object_name=tenant.slug if tenant else "platform",
        )
    seen = {
        name: {e.object_name for e in selectors.audit_visible_to(world.actor(name))}
        for name in SEEN
    }
    assert {name: found for name, found in seen.items() if found} == {
        "admin": BOTH | {"platform"},
        "sam": BOTH | {"platform"},
        "olivia": RESEARCH,
    }


def test_events_of_other_tenants_are_not_seen(world):
    with log.writing():
        for slug in ("research", "vision", ""):
            log.record(log.NewEvent(kind=f"of.{slug or 'all'}", at=NOW, tenant=slug))
    for name, tenants in SEEN.items():
        kinds = {e.kind for e in selectors.events_visible_to(world.actor(name))}
        assert kinds == {f"of.{slug}" for slug in tenants} | {"of.all"}


def test_token_of_one_tenant_sees_nothing_of_its_owners_others(world):
    research = world.tenants["research"]
    for name in ("admin", "sam", "olivia", "mei"):
        actor = world.actor(
            name, scopes=frozenset({"jobs:read"}), token_tenant_id=research.pk, token_id=1
        )
        expected = SEEN[name] & RESEARCH
        assert {t.slug for t in selectors.tenants_visible_to(actor)} == expected
        rows = Membership.objects.filter(selectors.visible_tenants(actor))
        assert {m.tenant.slug for m in rows} == expected
