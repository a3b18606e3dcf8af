"""A small world: two tenants and one person of every kind (CONTRACT's demo people)."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from tenants.access import Actor
from tenants.models import Cohort, Membership, Tenant, User

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
PEOPLE = {
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
    tenants: dict[str, Tenant]
    users: dict[str, User]

    def actor(self, name, **changes) -> Actor:
        return Actor(user=User.objects.get(username=name), **changes)


@pytest.fixture
def world(db) -> World:
    cohort = Cohort.objects.create(name="labs")
    tenants = {
        slug: Tenant.objects.create(slug=slug, name=slug.title(), cohort=cohort, created_at=NOW)
        for slug in ("research", "vision")
    }
    users = {}
    for name, (platform_role, roles) in PEOPLE.items():
        users[name] = User.objects.create_user(name, password="muster", platform_role=platform_role)
        for slug, role in roles.items():
            Membership.objects.create(
                tenant=tenants[slug], user=users[name], role=role, created_at=NOW
            )
    return World(tenants, users)
