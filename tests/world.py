"""A small world for tests of doors: two tenants and one person of every kind (CONTRACT's demo people).

Imported by the conftest of each folder that wants it; `World.client` and `World.token` speak for a person.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.hashers import make_password
from rest_framework.test import APIClient

from tenants.access import SCOPES, Actor
from tenants.authentication import PREFIX_LENGTH, new_token, token_hash
from tenants.models import ApiToken, Cohort, Membership, Tenant, User

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
PEOPLE: dict[str, tuple[str, dict[str, str]]] = {
    "admin": ("admin", {}),
    "ines": ("operator", {}),
    "sam": ("auditor", {}),
    "olivia": ("", {"research": "admin"}),
    "ravi": ("", {"research": "submitter"}),
    "vera": ("", {"research": "viewer"}),
    "mei": ("", {"vision": "submitter"}),
    "nobody": ("", {}),
}


@dataclass
class World:
    """Its tenants and users by name."""

    tenants: dict[str, Tenant]
    users: dict[str, User]

    def actor(self, name: str, **changes: Any) -> Actor:
        """Somebody in a browser, or with a token where `changes` says so. Reads the user anew."""
        return Actor(user=User.objects.get(username=name), **changes)

    def client(self, name: str) -> APIClient:
        """A REST client that is logged in by cookie, CSRF aside."""
        client = APIClient()
        client.force_login(self.users[name])
        return client

    def token(self, name: str, scopes: tuple[str, ...] = SCOPES, **fields: Any) -> str:
        """The text of a new token."""
        text = new_token()
        ApiToken.objects.create(
            user=self.users[name],
            name="test",
            prefix=text[:PREFIX_LENGTH],
            token_hash=token_hash(text),
            scopes=list(scopes),
            created_at=NOW,
            **fields,
        )
        return text

    def bearer(self, name: str, scopes: tuple[str, ...] = SCOPES, **fields: Any) -> APIClient:
        """A REST client with a token."""
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {self.token(name, scopes, **fields)}")
        return client


def make_world() -> World:
    """Rows for everyone in PEOPLE."""
    cohort = Cohort.objects.create(name="labs")
    password = make_password("muster")
    tenants = Tenant.objects.bulk_create(
        Tenant(slug=slug, name=slug.title(), cohort=cohort, created_at=NOW)
        for slug in ("research", "vision")
    )
    users = User.objects.bulk_create(
        User(username=name, password=password, platform_role=platform_role)
        for name, (platform_role, _roles) in PEOPLE.items()
    )
    world = World({t.slug: t for t in tenants}, {u.username: u for u in users})
    Membership.objects.bulk_create(
        Membership(tenant=world.tenants[slug], user=world.users[name], role=role, created_at=NOW)
        for name, (_platform_role, roles) in PEOPLE.items()
        for slug, role in roles.items()
    )
    return world
