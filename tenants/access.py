"""Who may do what (CONTRACT). Called by every service, selector and page before it reads or changes.

`Actor` says who asks and by which door; `may` and `require` answer from two small tables. A token narrows what
its user may do (scopes, one tenant), never widens it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from django.utils.translation import gettext as _

from controlplane.common.errors import ForbiddenError, NotVisibleError
from tenants.models import Membership, PlatformRole, Tenant, TenantRole, User

SCOPES = (
    "jobs:read",
    "jobs:write",
    "quotas:read",
    "quotas:write",
    "nodes:read",
    "nodes:write",
    "audit:read",
)


class Right(Enum):
    """One thing that may be done, and the scope a token needs for it."""

    VIEW_NODES = ("view_nodes", "nodes:read")
    VIEW_TENANT = ("view_tenant", "jobs:read")
    VIEW_QUOTAS = ("view_quotas", "quotas:read")
    VIEW_MEMBERS = ("view_members", "quotas:read")
    VIEW_SECRETS = ("view_secrets", "quotas:read")  # their names; nobody reads a value back
    VIEW_AUDIT = ("view_audit", "audit:read")
    SUBMIT_JOBS = ("submit_jobs", "jobs:write")
    ACT_ON_OWN_JOBS = ("act_on_own_jobs", "jobs:write")
    ACT_ON_ANY_JOB = ("act_on_any_job", "jobs:write")
    DIVIDE_QUOTA = ("divide_quota", "quotas:write")  # per queue and user; lend, borrow less
    ASK_FOR_QUOTA = ("ask_for_quota", "quotas:write")
    MANAGE_QUEUES = ("manage_queues", "quotas:write")
    MANAGE_MEMBERS = ("manage_members", "quotas:write")
    MANAGE_SECRETS = ("manage_secrets", "quotas:write")
    MANAGE_TOKENS = ("manage_tokens", "quotas:write")
    SET_NOMINAL_QUOTA = ("set_nominal_quota", "quotas:write")  # and borrowing limit, priorities
    DECIDE_QUOTA_REQUESTS = ("decide_quota_requests", "quotas:write")
    MANAGE_TENANTS = ("manage_tenants", "quotas:write")
    MANAGE_USERS = ("manage_users", "quotas:write")
    EDIT_CATALOGUE = ("edit_catalogue", "nodes:write")  # clusters, flavors, levels, presets
    OPERATE_NODES = ("operate_nodes", "nodes:write")
    OPERATE_WINDOWS = ("operate_windows", "nodes:write")
    ANSWER_ALERTS = ("answer_alerts", "nodes:write")  # acknowledge, silence, resolve
    MANAGE_WEBHOOKS = ("manage_webhooks", "quotas:write")  # a tenant's, or the platform's

    @property
    def key(self) -> str:
        """The right's stable name."""
        return self.value[0]

    @property
    def scope(self) -> str:
        """What a token must be allowed for this."""
        return self.value[1]


_VIEWER = frozenset({Right.VIEW_TENANT, Right.VIEW_QUOTAS, Right.VIEW_MEMBERS})
_SUBMITTER = _VIEWER | {
    Right.SUBMIT_JOBS,
    Right.ACT_ON_OWN_JOBS,
    Right.VIEW_SECRETS,
    Right.ANSWER_ALERTS,
}
_TENANT_ADMIN = _SUBMITTER | {
    Right.ACT_ON_ANY_JOB,
    Right.DIVIDE_QUOTA,
    Right.ASK_FOR_QUOTA,
    Right.MANAGE_QUEUES,
    Right.MANAGE_MEMBERS,
    Right.MANAGE_SECRETS,
    Right.MANAGE_TOKENS,
    Right.MANAGE_WEBHOOKS,
    Right.VIEW_AUDIT,
}
IN_TENANT: Mapping[str, frozenset[Right]] = {
    TenantRole.VIEWER: _VIEWER,
    TenantRole.SUBMITTER: _SUBMITTER,
    TenantRole.ADMIN: _TENANT_ADMIN,
}
# Rights of a platform role in every tenant, and (those that concern no tenant) on the platform.
ON_PLATFORM: Mapping[str, frozenset[Right]] = {
    PlatformRole.NONE: frozenset(),
    PlatformRole.ADMIN: frozenset(Right),
    PlatformRole.OPERATOR: _VIEWER
    | {Right.OPERATE_NODES, Right.OPERATE_WINDOWS, Right.ANSWER_ALERTS},
    PlatformRole.AUDITOR: _VIEWER | {Right.VIEW_AUDIT},
}
# Everyone who is signed in sees nodes' used, free and out counts.
FOR_EVERYONE = frozenset({Right.VIEW_NODES})
SEE_ALL_TENANTS = frozenset({PlatformRole.ADMIN, PlatformRole.OPERATOR, PlatformRole.AUDITOR})


@dataclass(frozen=True)
class Member:
    """A tenant that the actor belongs to, and as what."""

    tenant_id: int
    slug: str
    role: TenantRole


@dataclass(frozen=True)
class Actor:
    """Who asks. Made once a request (`tenants.authentication.actor_of`); memberships are read once.

    scopes: what the token allows; None for a browser session, which may all that its user may.
    token_tenant_id: the one tenant that the token reaches; None for all of the user's.
    via: "browser", "token:<prefix>" or "command", for the audit trail. address: where from.
    """

    user: User
    scopes: frozenset[str] | None = None
    token_tenant_id: int | None = None
    via: str = "browser"
    address: str = ""
    token_id: int | None = None

    @cached_property
    def memberships(self) -> tuple[Member, ...]:
        """The user's tenants, cut down to the token's."""
        rows = Membership.objects.filter(user_id=self.user.pk)
        if self.token_tenant_id is not None:
            rows = rows.filter(tenant_id=self.token_tenant_id)
        found = rows.order_by("tenant__slug").values_list("tenant_id", "tenant__slug", "role")
        return tuple(Member(pk, slug, TenantRole(role)) for pk, slug, role in found)

    @cached_property
    def roles(self) -> Mapping[int, TenantRole]:
        """Role by tenant id."""
        return {member.tenant_id: member.role for member in self.memberships}

    @property
    def sees_all_tenants(self) -> bool:
        """Whether a platform role opens every tenant (a token may still be limited to one)."""
        return self.user.platform_role in SEE_ALL_TENANTS

    @property
    def name(self) -> str:
        """As written in events and audit entries."""
        return self.user.get_username()

    @property
    def owner(self) -> str:
        """Whose idempotency keys and rate limits these are."""
        return f"token:{self.token_id}" if self.token_id is not None else f"user:{self.user.pk}"


def role_in(actor: Actor, tenant: Tenant) -> TenantRole | None:
    """The actor's role as a member of `tenant`; None for a stranger. Platform roles are not counted."""
    return actor.roles.get(tenant.pk)


def sees(actor: Actor, tenant: Tenant) -> bool:
    """Whether the tenant exists for this actor. What it may do there is `may`'s answer."""
    if actor.token_tenant_id is not None and actor.token_tenant_id != tenant.pk:
        return False
    return actor.sees_all_tenants or tenant.pk in actor.roles


def may(actor: Actor, right: Right, tenant: Tenant | None = None) -> bool:
    """Whether the actor has `right`, in `tenant` where the right concerns one.

    A token limited to a tenant has no rights outside it, so none that concern no tenant but seeing nodes.
    An auditor changes nothing, member of a tenant or not.
    """
    if not actor.user.is_active or (actor.scopes is not None and right.scope not in actor.scopes):
        return False
    if right in FOR_EVERYONE:
        return True
    if actor.token_tenant_id is not None and (tenant is None or tenant.pk != actor.token_tenant_id):
        return False
    return right in _rights(actor, tenant)


def require(actor: Actor, right: Right, tenant: Tenant | None = None) -> None:
    """Raise ForbiddenError without the right, NotVisibleError where the tenant itself is hidden."""
    if may(actor, right, tenant):
        return
    if tenant is not None and not sees(actor, tenant):
        raise NotVisibleError(_("There is no such tenant, or you may not see it."))
    if actor.scopes is not None and right.scope not in actor.scopes:
        raise ForbiddenError(
            _("This token lacks the scope {scope}.").format(scope=right.scope),
            code="missing_scope",
            hint=_("Use a token with the scope {scope}.").format(scope=right.scope),
        )
    raise ForbiddenError(_("You may not do this."), hint=_who_may(right))


def may_act_on(actor: Actor, tenant: Tenant, owner_id: int) -> bool:
    """Whether the actor may cancel, hold or change a job in `tenant` that user `owner_id` submitted."""
    if may(actor, Right.ACT_ON_ANY_JOB, tenant):
        return True
    return owner_id == actor.user.pk and may(actor, Right.ACT_ON_OWN_JOBS, tenant)


def require_act_on(actor: Actor, tenant: Tenant, owner_id: int) -> None:
    """Raise as `require` does unless `may_act_on`."""
    if not may_act_on(actor, tenant, owner_id):
        require(actor, Right.ACT_ON_ANY_JOB, tenant)


def _rights(actor: Actor, tenant: Tenant | None) -> frozenset[Right]:
    platform = ON_PLATFORM.get(actor.user.platform_role, frozenset())
    if tenant is None or actor.user.platform_role == PlatformRole.AUDITOR:
        return platform
    role = role_in(actor, tenant)
    return platform | IN_TENANT[role] if role else platform


def _who_may(right: Right) -> str:
    """A sentence that names who has the right."""
    if right in IN_TENANT[TenantRole.SUBMITTER]:
        return _("A submitter or an admin of the tenant may.")
    if right in IN_TENANT[TenantRole.ADMIN]:
        return _("An admin of the tenant may.")
    if right in ON_PLATFORM[PlatformRole.OPERATOR]:
        return _("An operator may.")
    return _("A platform admin may.")
