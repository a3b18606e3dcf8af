"""Every right, for everyone, against CONTRACT's "Who may do what" written out by hand."""

import pytest

from controlplane.common.errors import ForbiddenError, NotVisibleError
from tenants.access import SCOPES, Right, may, may_act_on, require, require_act_on
from tests.world import PEOPLE

# Who has each right in tenant `research`. Nobody else has it.
IN_RESEARCH = {
    "view_nodes": "admin ines sam olivia ravi vera mei nobody",
    "view_tenant": "admin ines sam olivia ravi vera",
    "view_quotas": "admin ines sam olivia ravi vera",
    "view_members": "admin ines sam olivia ravi vera",
    "view_secrets": "admin olivia ravi",
    "view_audit": "admin sam olivia",
    "submit_jobs": "admin olivia ravi",
    "act_on_own_jobs": "admin olivia ravi",
    "act_on_any_job": "admin olivia",
    "divide_quota": "admin olivia",
    "ask_for_quota": "admin olivia",
    "manage_queues": "admin olivia",
    "manage_members": "admin olivia",
    "manage_secrets": "admin olivia",
    "manage_tokens": "admin olivia",
    "set_nominal_quota": "admin",
    "decide_quota_requests": "admin",
    "manage_tenants": "admin",
    "manage_users": "admin",
    "edit_catalogue": "admin",
    "operate_nodes": "admin ines",
    "operate_windows": "admin ines",
    "answer_alerts": "admin ines olivia ravi",
    "manage_webhooks": "admin olivia",
}


@pytest.mark.parametrize("right", list(Right), ids=lambda right: right.key)
def test_right_in_a_tenant_is_had_by_exactly_those_the_contract_names(world, right):
    tenant = world.tenants["research"]
    having = {name for name in PEOPLE if may(world.actor(name), right, tenant)}
    assert having == set(IN_RESEARCH[right.key].split())


@pytest.mark.parametrize("right", list(Right), ids=lambda right: right.key)
def test_right_without_a_tenant_is_had_by_platform_roles_only(world, right):
    having = {name for name in PEOPLE if may(world.actor(name), right)}
    expected = set(IN_RESEARCH[right.key].split())
    if right is not Right.VIEW_NODES:
        expected &= {"admin", "ines", "sam"}
    assert having == expected


def test_every_right_names_a_scope_of_the_contract():
    assert {right.scope for right in Right} == set(SCOPES)
    assert set(IN_RESEARCH) == {right.key for right in Right}


@pytest.mark.parametrize("scope", SCOPES)
def test_token_with_one_scope_has_only_that_scopes_rights(world, scope):
    tenant = world.tenants["research"]
    actor = world.actor("admin", scopes=frozenset({scope}), token_id=1)
    having = {right for right in Right if may(actor, right, tenant)}
    assert having == {right for right in Right if right.scope == scope}


def test_token_of_one_tenant_has_no_rights_elsewhere(world):
    research, vision = world.tenants["research"], world.tenants["vision"]
    actor = world.actor("admin", scopes=frozenset(SCOPES), token_tenant_id=research.pk, token_id=1)
    assert may(actor, Right.SUBMIT_JOBS, research)
    for right in set(Right) - {Right.VIEW_NODES}:
        assert not may(actor, right, vision)
        assert not may(actor, right)


def test_auditor_who_is_a_tenants_admin_still_changes_nothing(world):
    world.users["olivia"].platform_role = "auditor"
    world.users["olivia"].save()
    actor = world.actor("olivia")
    writing = {right for right in Right if right.scope.endswith(":write")}
    assert not [right for right in writing if may(actor, right, world.tenants["research"])]


def test_closed_account_has_no_rights(world):
    world.users["admin"].is_active = False
    world.users["admin"].save()
    actor = world.actor("admin")
    assert not [right for right in Right if may(actor, right, world.tenants["research"])]


def test_staff_and_superuser_flags_give_no_right(world):
    world.users["nobody"].is_staff = world.users["nobody"].is_superuser = True
    world.users["nobody"].save()
    actor = world.actor("nobody")
    having = {right for right in Right if may(actor, right, world.tenants["research"])}
    assert having == {Right.VIEW_NODES}


def test_submitter_acts_on_own_jobs_only_and_admin_on_all(world):
    tenant, users = world.tenants["research"], world.users
    assert may_act_on(world.actor("ravi"), tenant, users["ravi"].pk)
    assert not may_act_on(world.actor("ravi"), tenant, users["olivia"].pk)
    assert may_act_on(world.actor("olivia"), tenant, users["ravi"].pk)
    assert not may_act_on(world.actor("ines"), tenant, users["ines"].pk)
    assert not may_act_on(world.actor("mei"), tenant, users["mei"].pk)
    with pytest.raises(ForbiddenError):
        require_act_on(world.actor("ravi"), tenant, users["olivia"].pk)
    with pytest.raises(NotVisibleError):
        require_act_on(world.actor("mei"), tenant, users["ravi"].pk)


def test_require_hides_the_tenant_from_strangers_and_names_what_members_lack(world):
    tenant = world.tenants["research"]
    with pytest.raises(NotVisibleError):
        require(world.actor("mei"), Right.VIEW_TENANT, tenant)
    with pytest.raises(ForbiddenError, match="may not") as refused:
        require(world.actor("ravi"), Right.MANAGE_MEMBERS, tenant)
    assert "admin of the tenant" in refused.value.hint
    actor = world.actor("ravi", scopes=frozenset({"jobs:read"}), token_id=1)
    with pytest.raises(ForbiddenError, match="scope jobs:write") as refused:
        require(actor, Right.SUBMIT_JOBS, tenant)
    assert refused.value.code == "missing_scope"


def test_memberships_are_read_once_per_actor(world, django_assert_num_queries):
    actor = world.actor("ravi")
    with django_assert_num_queries(1):
        for right in Right:
            may(actor, right, world.tenants["research"])
            may(actor, right, world.tenants["vision"])
