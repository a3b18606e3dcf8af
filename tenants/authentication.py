"""Who is asking: bearer tokens and login cookies, for REST, pages and sockets alike.

Settings name the two classes; views, consumers and services get an `Actor` from `actor_of`.
"""

import hashlib
import secrets
from datetime import datetime, timedelta

from django.db import DatabaseError
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request

from tenants.access import Actor
from tenants.models import ApiToken, User

TOKEN_MARK = "mst_"  # noqa: S105  says what it is where one leaks; not a secret
PREFIX_LENGTH = 12
# `last_used_at` is for people; a write a minute and token is enough.
USE_RESOLUTION = timedelta(minutes=1)


def new_token() -> str:
    """A fresh token with 256 random bits. It is shown once; only its hash is kept."""
    return TOKEN_MARK + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """SHA-256 in hex. Tokens are random, so no salt or stretching is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def find_token(token: str, now: datetime) -> ApiToken | None:
    """The usable token that this is; None when unknown, expired, revoked or of a closed account."""
    if not token.startswith(TOKEN_MARK) or len(token) > 100:
        return None
    return (
        ApiToken.objects.select_related("user", "tenant")
        .filter(
            Q(expires_at__isnull=True) | Q(expires_at__gt=now),
            token_hash=token_hash(token),
            revoked_at__isnull=True,
            user__is_active=True,
        )
        .first()
    )


def bearer(header: str) -> str | None:
    """The token in an Authorization header; None for another scheme or no header."""
    scheme, _space, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def token_actor(token: ApiToken, address: str = "") -> Actor:
    """The actor behind a token."""
    return Actor(
        user=token.user,
        scopes=frozenset(token.scopes),
        token_tenant_id=token.tenant_id,
        via=f"token:{token.prefix}",
        address=address,
        token_id=token.pk,
    )


def actor_of(request: HttpRequest | Request) -> Actor:
    """Who sends this request (a REST framework's or a page's). Raises NotAuthenticated for nobody.

    The actor is kept with the request, so that its memberships are read once.
    """
    user = request.user
    if not isinstance(user, User):
        raise NotAuthenticated
    plain: HttpRequest = request._request if isinstance(request, Request) else request
    known: Actor | None = getattr(plain, "_muster_actor", None)
    if known is not None and known.user.pk == user.pk:
        return known
    token = getattr(request, "auth", None)
    address = str(request.META.get("REMOTE_ADDR", ""))
    actor = (
        token_actor(token, address)
        if isinstance(token, ApiToken)
        else Actor(user=user, address=address)
    )
    plain._muster_actor = actor  # type: ignore[attr-defined]
    return actor


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer mst_…`. A bad token is 401 and never falls back to the cookie."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """The token's user, None where no bearer token was sent."""
        sent = bearer(request.headers.get("Authorization", ""))
        if sent is None:
            return None
        now = timezone.now()
        token = find_token(sent, now)
        if token is None:
            raise AuthenticationFailed(
                _("The token is unknown, has expired or was revoked."), code="bad_token"
            )
        note_use(token, str(request.META.get("REMOTE_ADDR", "")), now)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return 'Bearer realm="muster"'


class CookieAuthentication(SessionAuthentication):
    """The login cookie; anything but a read needs the CSRF token."""


def note_use(token: ApiToken, address: str, now: datetime) -> None:
    """Remember when and from where a token was used, at most once a minute. Never fails the request."""
    if token.last_used_at is not None and now - token.last_used_at < USE_RESOLUTION:
        return
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lte=now - USE_RESOLUTION)
    try:
        ApiToken.objects.filter(stale, pk=token.pk).update(
            last_used_at=now, last_used_from=address[:45]
        )
    except DatabaseError:
        return
