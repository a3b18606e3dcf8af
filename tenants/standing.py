"""Whether somebody who is watching may still do so: their session or token, and their roles, as of now.

The live socket keeps a `Ticket` from when it was opened and compares, every other second, for all sockets of
the process together.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core.handlers.asgi import ASGIRequest
from django.db.models import Q
from django.http.request import split_domain_port, validate_host
from django.utils import timezone, translation

from controlplane.common.live import Viewer
from controlplane.common.preferences import zone_named
from tenants.access import Actor
from tenants.authentication import bearer, find_token, token_actor
from tenants.models import ApiToken, Membership, User


@dataclass(frozen=True, slots=True)
class Ticket:
    """By what somebody was let in, and how they stood then."""

    user_id: int
    session_key: str | None
    token_id: int | None
    standing: "Standing"


@dataclass(frozen=True, slots=True)
class Standing:
    """All that decides what a user may see. A different one closes the socket."""

    platform_role: str
    password: str
    roles: frozenset[tuple[int, str]]


def admit(scope: Mapping[str, Any], now: datetime) -> tuple[Ticket, Viewer] | None:
    """Who opens this websocket, by bearer token or login cookie; None for nobody."""
    request = _request(scope)
    sent = bearer(request.headers.get("Authorization", ""))
    if sent is not None:
        token = find_token(sent, now)
        if token is None:
            return None
        actor, session_key = token_actor(token, _address(request)), None
    else:
        session_key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        request.session = SessionStore(session_key)
        user = get_user(request)
        if not isinstance(user, User) or not user.is_active:
            return None
        actor = Actor(user=user, address=_address(request))
    ticket = Ticket(actor.user.pk, session_key, actor.token_id, _standing_of(actor.user.pk))
    return ticket, _viewer(request, actor)


def is_from_here(scope: Mapping[str, Any]) -> bool:
    """Whether a page of ours opens the socket: browsers say whose page it is, and send cookies to any.

    Scripts send no Origin; they have no cookie that another page could make them use.
    """
    request = _request(scope)
    host = request.META.get("HTTP_HOST", "")
    name, _port = split_domain_port(host)
    if not validate_host(name, settings.ALLOWED_HOSTS):
        return False
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    return origin in {f"http://{host}", f"https://{host}", *settings.CSRF_TRUSTED_ORIGINS}


def current_standings(tickets: Iterable[Ticket], now: datetime) -> dict[Ticket, Standing | None]:
    """How each stands now: None where the session, the token or the account has ended. Four queries in all."""
    tickets = list(tickets)
    sessions = _living_sessions([t.session_key for t in tickets if t.session_key], now)
    tokens = _living_tokens([t.token_id for t in tickets if t.token_id is not None], now)
    standings = _standings({t.user_id for t in tickets})
    return {
        ticket: standings.get(ticket.user_id)
        if ticket.session_key in sessions or ticket.token_id in tokens
        else None
        for ticket in tickets
    }


def _living_sessions(keys: list[str], now: datetime) -> frozenset[str]:
    rows = Session.objects.filter(session_key__in=keys, expire_date__gt=now) if keys else ()
    return frozenset(row.session_key for row in rows)


def _living_tokens(ids: list[int], now: datetime) -> frozenset[int]:
    if not ids:
        return frozenset()
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    rows = ApiToken.objects.filter(unexpired, pk__in=ids, revoked_at__isnull=True)
    return frozenset(rows.values_list("pk", flat=True))


def _standing_of(user_id: int) -> Standing:
    return _standings({user_id})[user_id]


def _standings(user_ids: set[int]) -> dict[int, Standing]:
    """Standings of open accounts."""
    roles: dict[int, set[tuple[int, str]]] = {}
    memberships = Membership.objects.filter(user_id__in=user_ids)
    for user_id, tenant_id, role in memberships.values_list("user_id", "tenant_id", "role"):
        roles.setdefault(user_id, set()).add((tenant_id, role))
    users = User.objects.filter(pk__in=user_ids, is_active=True)
    return {
        pk: Standing(platform_role, password, frozenset(roles.get(pk, ())))
        for pk, platform_role, password in users.values_list("pk", "platform_role", "password")
    }


def _request(scope: Mapping[str, Any]) -> ASGIRequest:
    """The handshake as Django reads requests."""
    return ASGIRequest({**scope, "type": "http", "method": "GET"}, io.BytesIO())


def _address(request: ASGIRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))


def _viewer(request: ASGIRequest, actor: Actor) -> Viewer:
    zone = zone_named(request.COOKIES.get("tz", ""))
    return Viewer(
        key=actor.user.pk,
        actor=actor,
        language=translation.get_language_from_request(request),
        zone=zone.key if zone else timezone.get_default_timezone_name(),
    )
