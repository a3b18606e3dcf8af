"""People around a `rows.World`, each with a REST client."""

from rest_framework.test import APIClient

from tenants.models import Membership, PlatformRole, User
from tests.scheduler.rows import NOW, World


def add_people(world: World) -> None:
    """ravi and olivia in research, mei in vision, ines the operator, sam the auditor, admin; the flavor's sizes."""
    world.flavor.gpus_per_node = 8
    world.flavor.cpu_millis_per_node = 128_000
    world.flavor.memory_mib_per_node = 2_000_000
    world.flavor.save()
    for slug, role in (("research", "submitter"), ("vision", "submitter")):
        _join(world, slug, world.users[slug], role)
    _join(world, "research", User.objects.create(username="olivia"), "admin")
    for name, role in (
        ("ines", PlatformRole.OPERATOR),
        ("sam", PlatformRole.AUDITOR),
        ("admin", PlatformRole.ADMIN),
    ):
        User.objects.create(username=name, platform_role=role)


def _join(world: World, slug: str, user: User, role: str) -> None:
    tenant = world.queues[slug].tenant
    Membership.objects.create(tenant=tenant, user=user, role=role, created_at=NOW)


def client(name: str) -> APIClient:
    """A REST client logged in as somebody."""
    made = APIClient()
    made.force_login(User.objects.get(username=name))
    return made


def payload(tenant: str = "research", **asked: object) -> dict[str, object]:
    """A valid job for the tenant's queue."""
    return {
        "name": "train",
        "tenant": tenant,
        "queue": "train",
        "image": "registry.example/train:1",
        "gpus_per_replica": 8,
        "max_runtime_seconds": 3600,
    } | asked
