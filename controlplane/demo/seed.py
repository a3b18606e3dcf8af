"""The demo's people, tenants, quota and cluster (CONTRACT, "Commands"). Called by the command `prepare_demo`."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.contrib.auth.hashers import make_password

from controlplane.demo.place import CLUSTER, write_private
from controlplane.installation.rows import (
    FlavorSpec,
    ensure_cluster,
    ensure_flavor,
    ensure_queue,
    ensure_quotas,
)
from queues.models import ClusterMode, Preset
from scheduler.models import HealthPolicy, HealthRule
from scheduler.services.health_rules import change_rule
from tenants.access import SCOPES, Actor
from tenants.authentication import token_hash
from tenants.models import ApiToken, Cohort, PlatformRole, Tenant, TenantRole, User
from tenants.services.members import add_member
from tenants.services.tenants import TenantFields, create_cohort, create_tenant
from tenants.services.tokens import NewToken, create_token
from tenants.services.users import first_admin, set_platform_role

PASSWORD = "muster"  # noqa: S105  shown on screen: the demo listens on loopback alone
COHORT = "lab"
LEVELS = {"spine": "fabric.topograph.run/tier-1", "leaf": "fabric.topograph.run/tier-0"}
FLAVORS = {
    FlavorSpec("h100", "NVIDIA-H100-80GB-HBM3"): 256,
    FlavorSpec("a100", "NVIDIA-A100-SXM4-80GB"): 32,
}
# What the story breaks is taken out without asking; all other rules only propose.
ACTING_RULES = ("xid", "kernel")
# Jobs run for seconds here instead of hours: with ten minutes of protection nothing lent would ever be reclaimed.
QUEUE_SETTINGS = {"min_runtime_seconds": 30}
TENANTS = {"research": "Research", "vision": "Vision"}


@dataclass(frozen=True, slots=True)
class Person:
    """A demo account: a platform role, or a role in a tenant."""

    name: str
    role: str
    tenant: str = ""


ADMIN = Person("admin", PlatformRole.ADMIN)
PEOPLE = (
    ADMIN,
    Person("olivia", TenantRole.ADMIN, "research"),
    Person("ravi", TenantRole.SUBMITTER, "research"),
    Person("mei", TenantRole.SUBMITTER, "vision"),
    Person("vera", TenantRole.VIEWER, "research"),
    Person("ines", PlatformRole.OPERATOR),
    Person("sam", PlatformRole.AUDITOR),
)


def seed(logins: Path, now: datetime) -> None:
    """Make what is missing, and keep logins and tokens in `logins` for the next start."""
    first_admin(ADMIN.name, PASSWORD, now)
    actor = Actor(user=User.objects.get(username=ADMIN.name), via="command")
    _tenants(actor, now)
    _cluster(actor, now)
    _people(actor, now)
    _write_logins(actor, logins, now)


def _tenants(actor: Actor, now: datetime) -> None:
    if not Cohort.objects.filter(name=COHORT).exists():
        create_cohort(actor, COHORT, "", now)
    for slug, name in TENANTS.items():
        if not Tenant.objects.filter(slug=slug).exists():
            create_tenant(actor, slug, TenantFields(name=name, cohort=COHORT), now)


def _cluster(actor: Actor, now: datetime) -> None:
    cluster = ensure_cluster(CLUSTER, ClusterMode.SCHEDULE, LEVELS, now)
    flavors = {ensure_flavor(cluster, spec, now): nominal for spec, nominal in FLAVORS.items()}
    # The simulated exporters answer through the API server, as on a cluster without a route to its nodes.
    HealthPolicy.objects.get_or_create(cluster=cluster, defaults=_health_policy())
    for key in ACTING_RULES:
        if not HealthRule.objects.filter(key=key).exists():
            change_rule(actor, key, {"mode": "act"}, None, now)
    for tenant in Tenant.objects.filter(slug__in=TENANTS):
        ensure_quotas(actor, tenant, flavors, now)
        ensure_queue(actor, tenant, "train", flavors, now, **QUEUE_SETTINGS)


def _health_policy() -> dict[str, Any]:
    """Exporters answer through the API server; a burn-in takes a quarter of a minute of simulated work."""
    spec = {"annotations": {"sim.muster.dev/run-seconds": "15"}}
    preset, _made = Preset.objects.get_or_create(
        name="burn-in", defaults={"description": "Burn-in of repaired nodes", "spec": spec}
    )
    return {
        "exporter_url": "apiserver",
        "burn_in_image": "registry.example/burn-in:1",
        "burn_in_command": ["dcgmi", "diag", "--run", "3"],
        "burn_in_preset": preset,
        "burn_in_limit_seconds": 600,
    }


def _people(actor: Actor, now: datetime) -> None:
    for person in PEOPLE:
        if not User.objects.filter(username=person.name).exists():
            _join(actor, person, now)


def _join(actor: Actor, person: Person, now: datetime) -> None:
    # Shorter than the policy allows people to choose.
    user = User(username=person.name, password=make_password(PASSWORD), date_joined=now)
    user.save()
    if person.tenant:
        tenant = Tenant.objects.get(slug=person.tenant)
        add_member(actor, tenant, person.name, person.role, now)
    else:
        set_platform_role(actor, user, person.role, now)


def _write_logins(actor: Actor, logins: Path, now: datetime) -> None:
    """Tokens are stored as hashes: the file is the only place where they can be read again."""
    known = json.loads(logins.read_text()) if logins.exists() else []
    tokens = {entry["user"]: entry["token"] for entry in known}
    entries = [
        {
            "user": person.name,
            "password": PASSWORD,
            "token": _token(actor, person, tokens.get(person.name, ""), now),
            "tenant": person.tenant or None,
            "role": str(person.role),
        }
        for person in PEOPLE
    ]
    write_private(logins, json.dumps(entries, indent=2))


def _token(actor: Actor, person: Person, known: str, now: datetime) -> str:
    """The token of the last start while it works, else a new one."""
    working = ApiToken.objects.filter(token_hash=token_hash(known), revoked_at__isnull=True)
    if known and working.exists():
        return known
    tenant = Tenant.objects.get(slug=person.tenant) if person.tenant else None
    user = User.objects.get(username=person.name)
    _row, text = create_token(actor, NewToken(user, tenant, "demo", SCOPES, None), now)
    return text
