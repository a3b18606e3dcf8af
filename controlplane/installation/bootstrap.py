"""The first rows of `make run` on an empty database (CONTRACT, "Commands"). Called by the command `prepare_run`."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from controlplane.installation.rows import (
    ensure_cluster,
    ensure_flavor,
    ensure_queue,
    ensure_quotas,
)
from controlplane.installation.survey import Offer, survey
from queues.models import Cluster, ClusterMode
from scheduler.kube.connection import Connection
from scheduler.kube.credentials import load_credentials
from scheduler.kube.parse import parse_node
from scheduler.kube.seen import NodeSeen
from tenants.access import Actor
from tenants.models import Membership, Tenant, TenantRole, User
from tenants.services.members import add_member
from tenants.services.tenants import TenantFields, create_tenant
from tenants.services.users import first_admin

NAME = "default"
PAGE_ITEMS = 500


@dataclass(frozen=True, slots=True)
class FirstAdmin:
    """ADMIN_USER and ADMIN_PASSWORD."""

    username: str
    password: str


def make_first_admin(wanted: FirstAdmin, now: datetime) -> None:
    """The admin of an installation that has none; nothing when no name was given."""
    if wanted.username and wanted.password:
        first_admin(wanted.username, wanted.password, now)


def bootstrap(admin_name: str, kubeconfig: Path | None, now: datetime) -> None:
    """Cluster, flavors, tenant and queue `default`, unless there is a cluster already."""
    if Cluster.objects.exists():
        return
    make_rows(admin_name, survey(asyncio.run(_nodes(kubeconfig))), now)


def make_rows(admin_name: str, offer: Offer, now: datetime) -> None:
    """Turn what was found into rows. The admin is a member of the tenant, so that somebody can submit."""
    cluster = ensure_cluster(NAME, ClusterMode.SCHEDULE, offer.levels, now)
    flavors = {ensure_flavor(cluster, spec, now): gpus for spec, gpus in offer.flavors.items()}
    admin = User.objects.filter(username=admin_name).first()
    if admin is None:
        return
    actor = Actor(user=admin, via="command")
    tenant = Tenant.objects.filter(slug=NAME).first() or create_tenant(
        actor, NAME, TenantFields(name="Default"), now
    )
    if not Membership.objects.filter(tenant=tenant, user=admin).exists():
        add_member(actor, tenant, admin.username, TenantRole.ADMIN, now)
    ensure_quotas(actor, tenant, flavors, now)
    ensure_queue(actor, tenant, NAME, flavors, now)


async def _nodes(kubeconfig: Path | None) -> list[NodeSeen]:
    """All nodes, page by page. Raises CredentialsError or KubeError."""
    found: list[NodeSeen] = []
    async with Connection(load_credentials(kubeconfig)) as connection:
        token = ""
        while True:
            query = {"limit": PAGE_ITEMS} | ({"continue": token} if token else {})
            page = await connection.get("/api/v1/nodes", query)
            found += [parse_node(item) for item in page["items"]]
            token = page["metadata"].get("continue", "")
            if not token:
                return found
