"""Who belongs to a tenant, and as what."""

from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, FieldError, InvalidError
from tenants.access import Actor, Right, may, require
from tenants.models import ApiToken, Membership, Tenant, TenantRole, User
from tenants.services.audit import Change, write_audit


def add_member(actor: Actor, tenant: Tenant, username: str, role: str, now: datetime) -> Membership:
    """Make an existing user a member. Raises InvalidError (unknown user or role), ConflictError (is one)."""
    require(actor, Right.MANAGE_MEMBERS, tenant)
    wanted = checked_role(role)
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        message = _("There is no account of this name.")
        raise InvalidError(
            message,
            hint=_("A platform admin makes accounts; with single sign-on, logging in once does."),
            errors=(FieldError("/user", "unknown_user", message),),
        )
    with log.writing():
        try:
            with transaction.atomic():
                membership = Membership.objects.create(
                    tenant=tenant, user=user, role=wanted, created_at=now
                )
        except IntegrityError:
            raise ConflictError(
                _("{user} is a member already.").format(user=username), code="already_member"
            ) from None
        _note(actor, membership, "added", now, after={"role": wanted})
    return membership


def change_role(actor: Actor, membership: Membership, role: str, now: datetime) -> Membership:
    """Give a member another role. The last admin stays one unless a platform admin says otherwise."""
    require(actor, Right.MANAGE_MEMBERS, membership.tenant)
    wanted = checked_role(role)
    with log.writing():
        locked = _locked(membership)
        before = locked.role
        if before == wanted:
            return locked
        _keep_an_admin(actor, locked)
        locked.role = wanted
        locked.save(update_fields=["role"])
        _note(actor, locked, "changed", now, before={"role": before}, after={"role": wanted})
    return locked


def remove_member(actor: Actor, membership: Membership, now: datetime) -> None:
    """End a membership and revoke the user's tokens for the tenant. Their jobs go on."""
    require(actor, Right.MANAGE_MEMBERS, membership.tenant)
    with log.writing():
        locked = _locked(membership)
        _keep_an_admin(actor, locked)
        ApiToken.objects.filter(
            user_id=locked.user_id, tenant_id=locked.tenant_id, revoked_at__isnull=True
        ).update(revoked_at=now)
        _note(actor, locked, "removed", now, before={"role": locked.role})
        locked.delete()


def checked_role(role: str) -> TenantRole:
    """The role of this name. Raises InvalidError."""
    if role not in TenantRole.values:
        message = _("must be one of {roles}").format(roles=", ".join(TenantRole.values))
        raise InvalidError(message, errors=(FieldError("/role", "unknown_role", message),))
    return TenantRole(role)


def _locked(membership: Membership) -> Membership:
    """The row as it is now, kept from others until the transaction ends.

    The tenant's row is what two admins who remove each other queue for (PostgreSQL); SQLite has one writer.
    """
    Tenant.objects.select_for_update().get(pk=membership.tenant_id)
    found = Membership.objects.select_related("tenant", "user").filter(pk=membership.pk).first()
    if found is None:
        raise ConflictError(_("This membership has ended in the meantime."), code="not_member")
    return found


def _keep_an_admin(actor: Actor, membership: Membership) -> None:
    if membership.role != TenantRole.ADMIN or may(actor, Right.MANAGE_TENANTS, membership.tenant):
        return
    others = Membership.objects.filter(
        tenant_id=membership.tenant_id, role=TenantRole.ADMIN, user__is_active=True
    ).exclude(pk=membership.pk)
    if not others.exists():
        raise ConflictError(
            _("A tenant keeps at least one admin."),
            code="last_admin",
            hint=_("Make somebody else an admin first, or ask a platform admin."),
        )


def _note(
    actor: Actor,
    membership: Membership,
    what: str,
    now: datetime,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    tenant = membership.tenant
    change = Change(f"member.{what}", "member", membership.user.username, before, after)
    write_audit(actor, change, now=now, tenant=tenant)
    log.record(
        log.NewEvent(
            kind=f"member.{what}",
            at=now,
            tenant=tenant.slug,
            actor=actor.name,
            numbers={"user": membership.user_id},
        )
    )
