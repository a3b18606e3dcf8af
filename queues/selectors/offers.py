"""What a queue offers to one actor, read in a fixed number of queries: what validation checks a job against.

Called by `services.validation` and `forms`. A queue or tenant that the actor may not see is as one that is not.
"""

from django.utils.translation import gettext as _

from queues.models import Cluster, Queue
from queues.specs import HIGHEST_PRIORITY, FlavorOffer, QueueOffer
from tenants.access import Actor, Right, require, role_in
from tenants.models import Secret, Tenant, TenantRole
from tenants.selectors import tenants_visible_to


class Offers:
    """Offers by (tenant, queue), each read once: a batch names the same few again and again."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self._tenants: dict[str, Tenant | None] = {}
        self._offers: dict[tuple[int, str], QueueOffer | None] = {}

    def tenant(self, slug: str) -> Tenant | None:
        """The tenant, None when it is unknown or hidden. Raises ForbiddenError for one who may only look."""
        if slug not in self._tenants:
            self._tenants[slug] = tenants_visible_to(self.actor).filter(slug=slug).first()
        tenant = self._tenants[slug]
        if tenant is not None:
            require(self.actor, Right.SUBMIT_JOBS, tenant)
        return tenant

    def offer(self, tenant: Tenant, queue: str) -> QueueOffer | None:
        """What the queue offers, None when the tenant has no such queue."""
        key = (tenant.pk, queue)
        if key not in self._offers:
            self._offers[key] = _read_offer(self.actor, tenant, queue)
        return self._offers[key]


def queue_names(tenant: Tenant) -> list[str]:
    """The tenant's queues by name, for messages."""
    return list(tenant.queues.order_by("name").values_list("name", flat=True))


def _read_offer(actor: Actor, tenant: Tenant, name: str) -> QueueOffer | None:
    queue = tenant.queues.select_related("cluster").filter(name=name).first()
    return None if queue is None else offer_of(actor, tenant, queue)


def offer_of(actor: Actor, tenant: Tenant, queue: Queue) -> QueueOffer:
    """What `queue` offers to `actor`: five queries."""
    kinds = list(Secret.objects.filter(tenant=tenant).values_list("name", "kind"))
    return QueueOffer(
        tenant_id=tenant.pk,
        tenant=tenant.slug,
        queue_id=queue.pk,
        queue=queue.name,
        cluster=queue.cluster.name,
        state=queue.state,
        flavors=_flavors(queue),
        levels=_levels(queue.cluster),
        presets={preset.name: (preset.pk, preset.flavor_id) for preset in queue.presets.all()},
        secrets=frozenset(name for name, kind in kinds if kind == "opaque"),
        pull_secrets=frozenset(name for name, kind in kinds if kind == "dockerconfigjson"),
        lowest_priority=tenant.lowest_priority,
        highest_priority=_highest_priority(actor, tenant, queue),
        default_max_runtime_seconds=queue.default_max_runtime_seconds,
        longest_max_runtime_seconds=queue.longest_max_runtime_seconds,
    )


def _flavors(queue: Queue) -> tuple[FlavorOffer, ...]:
    rows = queue.queue_flavors.select_related("flavor").order_by("position", "id")
    return tuple(
        FlavorOffer(
            id=row.flavor.pk,
            name=row.flavor.name,
            model=row.flavor.model,
            gpus_per_nvlink_domain=row.flavor.gpus_per_nvlink_domain,
            gpus_per_node=row.flavor.gpus_per_node,
            cpu_millis_per_node=row.flavor.cpu_millis_per_node,
            memory_mib_per_node=row.flavor.memory_mib_per_node,
            default_cpu_millis_per_gpu=row.flavor.default_cpu_millis_per_gpu,
            default_memory_mib_per_gpu=row.flavor.default_memory_mib_per_gpu,
        )
        for row in rows
    )


def _levels(cluster: Cluster) -> tuple[str, ...]:
    return tuple(cluster.levels.order_by("position").values_list("name", flat=True))


def _highest_priority(actor: Actor, tenant: Tenant, queue: Queue) -> int:
    """The lowest of what the tenant, the queue for this role, and the contract allow."""
    of_role = (
        queue.highest_priority_submitter
        if role_in(actor, tenant) == TenantRole.SUBMITTER
        else queue.highest_priority_admin
    )
    return min(tenant.highest_priority, of_role, HIGHEST_PRIORITY)


def no_such_tenant(slug: str) -> str:
    """The message for a tenant that is unknown, or hidden: the same for both."""
    return _("there is no tenant “{slug}” that you may see").format(slug=slug[:80])
