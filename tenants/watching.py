"""What live topics of other apps ask of whoever watches: whom an event concerns, who sees the same."""

from collections.abc import Hashable

from controlplane.common.live import Heard, Viewer
from tenants.access import Actor, Right, may
from tenants.models import Tenant


def actor_of(viewer: Viewer) -> Actor:
    """The actor behind a live page."""
    actor = viewer.actor
    if not isinstance(actor, Actor):
        raise TypeError(f"a viewer without an actor: {actor!r}")
    return actor


def sight_of(actor: Actor) -> Hashable:
    """Actors with the same sight are shown the same rows and the same words about them."""
    roles = tuple((member.tenant_id, member.role.value) for member in actor.memberships)
    return actor.user.platform_role, actor.token_tenant_id, roles


def may_concern(viewer: Viewer, heard: Heard) -> bool:
    """Whether an event may be about something that the viewer sees; selectors decide in the end."""
    actor = actor_of(viewer)
    if not heard.tenant or actor.sees_all_tenants:
        return True
    return any(member.slug == heard.tenant for member in actor.memberships)


def sight_in(actor: Actor, right: Right, slug: str) -> Hashable | None:
    """`sight_of` for those who have `right` in the tenant named `slug`, None for all others."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None or not may(actor, right, tenant):
        return None
    return sight_of(actor)
