"""Signing in to the REST doors: tokens good and bad, cookies with and without CSRF, scopes of every view."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.urls import get_resolver
from django.utils import timezone
from rest_framework.test import APIClient
from rest_framework.views import APIView

from tenants.authentication import find_token
from tenants.models import ApiToken
from tenants.permissions import HasScope, scopes_for

API = "/api/v1"


def test_nobody_is_told_how_to_sign_in(world):
    answer = APIClient().get(f"{API}/tenants/")
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("header", ["Bearer", "Bearer x", "Bearer mst_unknown", "bearer  mst_ a"])
def test_bad_token_is_401_even_with_a_good_cookie(world, header):
    answer = world.client("ravi").get(f"{API}/tenants/", HTTP_AUTHORIZATION=header)
    assert (answer.status_code, answer.json()["code"]) == (401, "bad_token")


def test_expired_token_and_closed_account_are_refused(world):
    now = timezone.now()
    expired = world.bearer("ravi", expires_at=now - timedelta(seconds=1))
    assert expired.get(f"{API}/tenants/").status_code == 401
    living = world.bearer("ravi", expires_at=now + timedelta(hours=1))
    assert living.get(f"{API}/tenants/").status_code == 200
    world.users["ravi"].is_active = False
    world.users["ravi"].save()
    assert living.get(f"{API}/tenants/").status_code == 401


def test_cookie_needs_the_csrf_token_to_change_things(world):
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(world.users["olivia"])
    sent = {"user": "nobody", "role": "viewer"}
    answer = client.post(f"{API}/tenants/research/members/", sent, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf_failed")


def test_use_of_a_token_is_noted_at_most_once_a_minute(world, django_assert_num_queries):
    client = world.bearer("ravi")
    client.get(f"{API}/whoami/")
    first = ApiToken.objects.get().last_used_at
    assert first is not None
    with django_assert_num_queries(2):  # token, memberships; nothing is written
        client.get(f"{API}/whoami/")
    ApiToken.objects.update(last_used_at=first - timedelta(seconds=61))
    client.get(f"{API}/whoami/")
    again = ApiToken.objects.get().last_used_at
    assert again is not None
    assert again > first


def test_missing_scope_is_named(world):
    answer = world.bearer("olivia", ("jobs:read",)).get(f"{API}/tenants/research/members/")
    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
    assert "quotas:read" in answer.json()["hint"]


def api_views():
    """(pattern, view class) of every REST view."""

    def walk(patterns, prefix):
        for pattern in patterns:
            if hasattr(pattern, "url_patterns"):
                yield from walk(pattern.url_patterns, prefix + str(pattern.pattern))
            else:
                view = getattr(pattern.callback, "cls", None)
                if view is not None and issubclass(view, APIView):
                    yield prefix + str(pattern.pattern), view

    return list(walk(get_resolver().url_patterns, ""))


def test_every_view_declares_scopes_for_all_its_methods():
    checked = 0
    for _pattern, view in api_views():
        if HasScope not in view.permission_classes:
            continue
        methods = [m.upper() for m in view.http_method_names if hasattr(view, m)]
        for method in methods:
            if method != "OPTIONS":
                scopes_for(view(), method)
                checked += 1
    assert checked > 10, "the walk found no views"


def test_command_prints_a_token_that_works(world):
    out = StringIO()
    call_command(
        "create_token",
        user="ravi",
        tenant="research",
        scopes=["jobs:read,jobs:write"],
        days=3,
        stdout=out,
    )
    text = out.getvalue().strip()
    token = find_token(text, timezone.now())
    assert token is not None
    assert token.tenant is not None
    assert token.expires_at is not None
    assert (token.user.username, token.tenant.slug) == ("ravi", "research")
    assert token.scopes == ["jobs:read", "jobs:write"]
    assert token.expires_at - token.created_at == timedelta(days=3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"user": "unheard-of"}, "no user"),
        ({"user": "ravi", "tenant": "unknown"}, "no tenant"),
        ({"user": "ravi", "scopes": ["everything"]}, "scopes"),
        ({"user": "mei", "tenant": "research"}, "member"),
        ({"user": "ravi", "days": 0}, "days"),
    ],
)
def test_command_refuses_what_makes_no_sense(world, options, says):
    with pytest.raises(CommandError, match=says):
        call_command("create_token", stdout=StringIO(), **options)
    assert not ApiToken.objects.exists()


def test_command_in_a_place_without_tables_says_where_to_look(db, monkeypatch):
    monkeypatch.setattr(connection.introspection, "table_names", list)
    with pytest.raises(CommandError, match="VAR and DATABASE_URL"):
        call_command("create_token", user="ravi", stdout=StringIO())
