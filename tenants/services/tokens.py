"""API tokens: made, shown once, revoked."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ErrorCollector, ForbiddenError
from tenants.access import SCOPES, Actor, Right, may, require
from tenants.authentication import PREFIX_LENGTH, new_token, token_hash
from tenants.models import ApiToken, Membership, Tenant, User
from tenants.services.audit import Change, write_audit
from tenants.services.checks import check_text

DEFAULT_DAYS = 90
MOST_DAYS = 3650


@dataclass(frozen=True, slots=True)
class NewToken:
    """What a token is to be. tenant: None for one that reaches all that its user may see.

    days: until it expires; None for never.
    """

    user: User
    tenant: Tenant | None
    name: str
    scopes: Sequence[str]
    days: int | None = DEFAULT_DAYS


def create_token(actor: Actor, wanted: NewToken, now: datetime) -> tuple[ApiToken, str]:
    """Make a token. Returns it with its text, which is not kept and cannot be shown again.

    Raises InvalidError, and ForbiddenError where it would allow more than its maker may hand out.
    """
    _require_may_make(actor, wanted)
    _check(actor, wanted)
    text = new_token()
    with log.writing():
        token = ApiToken.objects.create(
            user=wanted.user,
            tenant=wanted.tenant,
            name=wanted.name.strip(),
            prefix=text[:PREFIX_LENGTH],
            token_hash=token_hash(text),
            scopes=[scope for scope in SCOPES if scope in wanted.scopes],
            created_by=actor.user,
            created_at=now,
            expires_at=now + timedelta(days=wanted.days) if wanted.days is not None else None,
        )
        _note(actor, token, "created", now)
    return token, text


def revoke_token(actor: Actor, token: ApiToken, now: datetime) -> ApiToken:
    """End a token at once. One's own, or one of a tenant whose tokens one manages. Twice does nothing."""
    if token.user_id != actor.user.pk:
        require(actor, Right.MANAGE_TOKENS if token.tenant else Right.MANAGE_USERS, token.tenant)
    with log.writing():
        ended = ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now)
        if ended:
            _note(actor, token, "revoked", now)
    token.refresh_from_db(fields=["revoked_at"])
    return token


def _require_may_make(actor: Actor, wanted: NewToken) -> None:
    """A tenant's admin makes tokens for its members that work in it alone; the platform's, any."""
    if wanted.tenant is None:
        require(actor, Right.MANAGE_USERS)
        return
    require(actor, Right.MANAGE_TOKENS, wanted.tenant)
    foreign_role = wanted.user.platform_role and wanted.user.pk != actor.user.pk
    if foreign_role and not may(actor, Right.MANAGE_USERS, wanted.tenant):
        raise ForbiddenError(
            _("Only a platform admin makes tokens for somebody with a platform role."),
            code="platform_role",
        )


def _check(actor: Actor, wanted: NewToken) -> None:
    errors = ErrorCollector()
    check_text(errors, "/name", wanted.name, 80)
    if not wanted.scopes:
        errors.add("/scopes", "required", _("must name at least one scope"))
    for index, scope in enumerate(wanted.scopes):
        if scope not in SCOPES:
            message = _("must be one of {scopes}").format(scopes=", ".join(SCOPES))
            errors.add(f"/scopes/{index}", "unknown_scope", message)
        elif actor.scopes is not None and scope not in actor.scopes:
            message = _("a token cannot hand out a scope that it lacks")
            errors.add(f"/scopes/{index}", "scope_not_held", message)
    if wanted.days is not None and not 1 <= wanted.days <= MOST_DAYS:
        message = _("must be from 1 to {most}").format(most=MOST_DAYS)
        errors.add("/days", "out_of_range", message)
    if not _belongs(wanted):
        errors.add("/user", "not_member", _("must be a member of the tenant"))
    errors.raise_if_any()


def _belongs(wanted: NewToken) -> bool:
    if wanted.tenant is None or wanted.user.platform_role:
        return True
    return Membership.objects.filter(tenant=wanted.tenant, user=wanted.user).exists()


def _note(actor: Actor, token: ApiToken, what: str, now: datetime) -> None:
    after = {"user": token.user.username, "name": token.name, "scopes": token.scopes}
    change = Change(f"token.{what}", "token", token.prefix, after=after)
    write_audit(actor, change, now=now, tenant=token.tenant)
    if token.tenant is not None:
        log.record(
            log.NewEvent(
                kind=f"token.{what}",
                at=now,
                tenant=token.tenant.slug,
                actor=actor.name,
                numbers={"user": token.user_id},
            )
        )
