"""Accounts and platform roles: made by platform admins; the very first admin by the command that sets up."""

from collections.abc import Callable
from datetime import datetime

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, ErrorCollector
from tenants.access import Actor, Right, require
from tenants.models import ApiToken, PlatformRole, User
from tenants.services.audit import Change, write_audit


def create_user(
    actor: Actor, username: str, password: str, now: datetime, *, email: str = ""
) -> User:
    """A new account without roles. An empty password makes one that only single sign-on or tokens open."""
    require(actor, Right.MANAGE_USERS)
    user = User(username=username, email=email, date_joined=now)
    _check(user, password)
    with log.writing():
        if User.objects.filter(username__iexact=username).exists():
            raise ConflictError(
                _("There is an account “{name}” already.").format(name=username),
                code="username_in_use",
            )
        _set_password(user, password)
        user.save()
        write_audit(actor, Change("user.created", "user", username), now=now)
    return user


def set_platform_role(actor: Actor, user: User, role: str, now: datetime) -> User:
    """Give or take a platform role. The last platform admin stays one."""
    require(actor, Right.MANAGE_USERS)
    errors = ErrorCollector()
    if role not in PlatformRole.values:
        errors.add("/platform_role", "unknown_role", _("must be admin, operator, auditor or empty"))
    errors.raise_if_any()
    with log.writing():
        locked = _locked(user)
        if role != PlatformRole.ADMIN:
            _keep_an_admin(locked)
        before = {"platform_role": locked.platform_role}
        locked.platform_role = role
        locked.save(update_fields=["platform_role"])
        change = Change("user.role", "user", user.username, before, {"platform_role": role})
        write_audit(actor, change, now=now)
    return locked


def close_account(actor: Actor, user: User, now: datetime) -> User:
    """Shut an account and revoke its tokens. Its jobs go on; its rows stay for the record."""
    require(actor, Right.MANAGE_USERS)
    with log.writing():
        locked = _locked(user)
        _keep_an_admin(locked)
        locked.is_active = False
        locked.save(update_fields=["is_active"])
        ApiToken.objects.filter(user=locked, revoked_at__isnull=True).update(revoked_at=now)
        write_audit(actor, Change("user.closed", "user", user.username), now=now)
    return locked


def first_admin(username: str, password: str, now: datetime) -> User | None:
    """The platform admin of an empty installation; None where there is one already."""
    with log.writing():
        if User.objects.filter(platform_role=PlatformRole.ADMIN).exists():
            return None
        user = User(username=username, platform_role=PlatformRole.ADMIN, date_joined=now)
        _set_password(user, password)
        user.save()
        actor = Actor(user=user, via="command")
        write_audit(actor, Change("user.created", "user", username), now=now)
    return user


def _check(user: User, password: str) -> None:
    errors = ErrorCollector()
    username = User._meta.get_field("username")
    _note_invalid(errors, "/username", lambda: username.clean(user.username, user))
    if password:
        _note_invalid(errors, "/password", lambda: validate_password(password, user))
    if user.email:
        _note_invalid(errors, "/email", lambda: validate_email(user.email))
    errors.raise_if_any()


def _note_invalid(errors: ErrorCollector, pointer: str, check: Callable[[], object]) -> None:
    try:
        check()
    except ValidationError as error:
        errors.add(pointer, "invalid", " ".join(error.messages))


def _set_password(user: User, password: str) -> None:
    if password:
        user.set_password(password)
    else:
        user.set_unusable_password()


def _locked(user: User) -> User:
    """The row as it is now; all platform admins are locked, so that two cannot depose each other."""
    list(User.objects.select_for_update().filter(platform_role=PlatformRole.ADMIN).order_by("pk"))
    return User.objects.get(pk=user.pk)


def _keep_an_admin(user: User) -> None:
    if user.platform_role != PlatformRole.ADMIN or not user.is_active:
        return
    others = User.objects.filter(platform_role=PlatformRole.ADMIN, is_active=True)
    if not others.exclude(pk=user.pk).exists():
        raise ConflictError(
            _("The platform keeps at least one admin."),
            code="last_admin",
            hint=_("Make somebody else a platform admin first."),
        )
