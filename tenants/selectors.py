"""What an actor may see of tenants, members, secrets, tokens, the audit trail and the event log.

One `<things>_visible_to(actor)` per model: pages, API lists, counts and streams all read through these.
"""

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from controlplane.common.errors import NotVisibleError
from controlplane.common.models import Event
from tenants.access import Actor, Right, may, role_in, sees
from tenants.models import (
    ApiToken,
    AuditEntry,
    Cohort,
    Membership,
    Secret,
    Tenant,
    User,
    WebhookEndpoint,
)

__all__ = [
    "audit_visible_to",
    "cohorts_visible_to",
    "events_visible_to",
    "memberships_visible_to",
    "role_in",
    "secrets_visible_to",
    "sees",
    "tenant_of",
    "tenants_visible_to",
    "tokens_visible_to",
    "users_visible_to",
    "visible_tenants",
    "webhooks_visible_to",
]

# Not `Q()`: combined by "or" with another condition, that one would vanish.
EVERY_ROW = Q(pk__isnull=False)


def visible_tenants(actor: Actor, path: str = "tenant") -> Q:
    """A filter on rows whose foreign key `path` names a tenant: those that the actor sees.

    Job.objects.filter(visible_tenants(actor)) joins nothing: ids are known from the actor.
    """
    if actor.token_tenant_id is not None:
        reached = actor.sees_all_tenants or actor.token_tenant_id in actor.roles
        return Q(**{f"{path}_id": actor.token_tenant_id}) if reached else Q(pk__in=[])
    if actor.sees_all_tenants:
        return EVERY_ROW
    return Q(**{f"{path}_id__in": list(actor.roles)})


def tenants_visible_to(actor: Actor) -> QuerySet[Tenant]:
    """The actor's tenants; all of them for platform roles; the token's one where it is limited."""
    if actor.sees_all_tenants:
        limit = actor.token_tenant_id
        return Tenant.objects.all() if limit is None else Tenant.objects.filter(pk=limit)
    return Tenant.objects.filter(pk__in=list(actor.roles))


def tenant_of(actor: Actor, slug: str) -> Tenant:
    """The tenant named `slug`. Raises NotVisibleError alike for unknown and for hidden ones."""
    found = tenants_visible_to(actor).select_related("cohort").filter(slug=slug).first()
    if found is None:
        raise NotVisibleError(
            _("There is no tenant “{slug}” that you may see.").format(slug=slug[:80])
        )
    return found


def cohorts_visible_to(actor: Actor) -> QuerySet[Cohort]:
    """Cohorts of the actor's tenants; all for platform roles."""
    if actor.sees_all_tenants and actor.token_tenant_id is None:
        return Cohort.objects.all()
    return Cohort.objects.filter(tenants__in=tenants_visible_to(actor)).distinct()


def _tenants_with(actor: Actor, right: Right) -> Q:
    """A filter on rows with a `tenant`: those in which the actor has `right`."""
    if may(actor, right) and actor.token_tenant_id is None:
        return EVERY_ROW
    reached = set(actor.roles)
    if actor.token_tenant_id is not None:
        reached.add(actor.token_tenant_id)
    return Q(tenant_id__in=[pk for pk in reached if may(actor, right, Tenant(pk=pk))])


def memberships_visible_to(actor: Actor) -> QuerySet[Membership]:
    """Who belongs to the tenants that the actor sees."""
    return Membership.objects.filter(_tenants_with(actor, Right.VIEW_MEMBERS))


def secrets_visible_to(actor: Actor) -> QuerySet[Secret]:
    """Secrets by name, for those who may use them. Encrypted values are left in the database."""
    return Secret.objects.filter(_tenants_with(actor, Right.VIEW_SECRETS)).defer("encrypted_value")


def tokens_visible_to(actor: Actor) -> QuerySet[ApiToken]:
    """One's own tokens, and those of the tenants whose tokens one manages."""
    own = Q(user_id=actor.user.pk)
    if actor.token_tenant_id is not None:
        own &= Q(tenant_id=actor.token_tenant_id)
    return ApiToken.objects.filter(own | _tenants_with(actor, Right.MANAGE_TOKENS))


def audit_visible_to(actor: Actor) -> QuerySet[AuditEntry]:
    """Everything for platform admins and auditors; a tenant's entries for its admins."""
    return AuditEntry.objects.filter(_tenants_with(actor, Right.VIEW_AUDIT))


def webhooks_visible_to(actor: Actor) -> QuerySet[WebhookEndpoint]:
    """Endpoints of the tenants whose endpoints one manages; the platform's own for its admins."""
    rows = WebhookEndpoint.objects.filter(_tenants_with(actor, Right.MANAGE_WEBHOOKS))
    return rows.select_related("tenant").defer("encrypted_secret")


def events_visible_to(actor: Actor) -> QuerySet[Event]:
    """Events of the actor's tenants and those that concern nobody's in particular."""
    if actor.sees_all_tenants and actor.token_tenant_id is None:
        return Event.objects.all()
    slugs = list(tenants_visible_to(actor).values_list("slug", flat=True))
    return Event.objects.filter(tenant__in=["", *slugs])


def users_visible_to(actor: Actor) -> QuerySet[User]:
    """People who share a tenant with the actor, and the actor; all for platform roles."""
    if actor.sees_all_tenants and actor.token_tenant_id is None:
        return User.objects.all()
    shared = Q(memberships__tenant__in=tenants_visible_to(actor))
    return User.objects.filter(shared | Q(pk=actor.user.pk)).distinct()
