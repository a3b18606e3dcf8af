"""A tenant's quotas and what is used of them, by flavor, queue and user. Read by API, pages and simulations."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet, Sum

from queues.contract.quotas import FlavorQuota, Known, Quotas
from queues.models import (
    Flavor,
    Placement,
    Queue,
    QueueFlavor,
    QueueLimit,
    Quota,
    QuotaRequest,
    UserLimit,
)
from queues.usage import Holding, lent_shares
from tenants.access import Actor
from tenants.models import Cohort, Membership, Tenant
from tenants.selectors import visible_tenants


def quotas_visible_to(actor: Actor) -> QuerySet[Quota]:
    """The quotas of the actor's tenants."""
    return Quota.objects.filter(visible_tenants(actor))


def quota_requests_visible_to(actor: Actor) -> QuerySet[QuotaRequest]:
    """What the actor's tenants have asked for."""
    return QuotaRequest.objects.filter(visible_tenants(actor))


@dataclass(frozen=True, slots=True)
class FlavorUse:
    """One row of a tenant's quota table: what it has, and what is used. GPUs; None: no limit.

    ceiling: the most that the tenant may use at once by its own limits, None where borrowing is unlimited.
    """

    flavor: Flavor
    quota: FlavorQuota
    used: int
    outside: int
    borrowed: int
    lent: int

    @property
    def ceiling(self) -> int | None:
        """Nominal plus what may be borrowed."""
        limit = self.quota.borrowing_limit
        return None if limit is None else self.quota.nominal + limit


def flavor_uses(tenant: Tenant) -> list[FlavorUse]:
    """The tenant's flavors in order of cluster and name. Six queries at most."""
    family = tenants_of_tree(tenant)
    mine = list(
        Quota.objects.filter(tenant=tenant)
        .select_related("flavor__cluster")
        .order_by("flavor__cluster__name", "flavor__name")
    )
    holdings = _holdings(family, [quota.flavor_id for quota in mine])
    return [_flavor_use(quota, holdings[quota.flavor_id]) for quota in mine]


def _flavor_use(quota: Quota, holdings: Mapping[int, Holding]) -> FlavorUse:
    own = holdings[quota.tenant_id]
    return FlavorUse(
        flavor=quota.flavor,
        quota=quota_of(quota),
        used=own.used,
        outside=own.outside,
        borrowed=own.borrowed,
        lent=lent_shares(holdings)[quota.tenant_id],
    )


def quota_of(row: Quota) -> FlavorQuota:
    """A row as a plain value."""
    return FlavorQuota(
        nominal=row.nominal,
        borrowing_limit=row.borrowing_limit,
        lending_limit=row.lending_limit,
        weight=row.weight.normalize(),
        headroom=row.headroom,
    )


def tenants_of_tree(tenant: Tenant) -> list[int]:
    """Ids of the tenants under the same root cohort, the tenant's own included."""
    if tenant.cohort_id is None:
        return [tenant.pk]
    parents = dict(Cohort.objects.values_list("pk", "parent_id"))
    root = _root(tenant.cohort_id, parents)
    tree = [cohort for cohort in parents if _root(cohort, parents) == root]
    return list(Tenant.objects.filter(cohort__in=tree).values_list("pk", flat=True))


def _root(cohort: int, parents: Mapping[int, int | None]) -> int:
    """The cohort at the top. A circle, which services refuse, ends where it closes."""
    seen = {cohort}
    while (parent := parents.get(cohort)) is not None and parent not in seen:
        cohort = parent
        seen.add(cohort)
    return cohort


def _holdings(tenants: Iterable[int], flavors: Iterable[int]) -> dict[int, dict[int, Holding]]:
    """By flavor id, then tenant id."""
    used = used_gpus(tenant__in=list(tenants))
    found: dict[int, dict[int, Holding]] = defaultdict(dict)
    for row in Quota.objects.filter(tenant__in=list(tenants), flavor__in=list(flavors)):
        found[row.flavor_id][row.tenant_id] = Holding(
            nominal=row.nominal,
            used=used.get((row.tenant_id, row.flavor_id), 0),
            outside=row.outside,
            headroom=row.headroom,
            borrowing_limit=row.borrowing_limit,
            lending_limit=row.lending_limit,
        )
    return found


def used_gpus(by: str = "tenant_id", **jobs: Any) -> dict[tuple[int, int], int]:
    """GPUs held by (owner id, flavor id); `by` is a column of Job, `jobs` filter on Job. One query.

    Held is what is placed and not yet released, pods that are leaving included.
    """
    wanted = {f"attempt__job__{name}": value for name, value in jobs.items()}
    rows = (
        Placement.objects.filter(released_at__isnull=True, **wanted)
        .order_by()
        .values_list(f"attempt__job__{by}", "attempt__flavor_id")
        .annotate(gpus=Sum("gpus"))
    )
    return {(owner, flavor): int(gpus) for owner, flavor, gpus in rows if flavor is not None}


def quota_answer(tenant: Tenant) -> dict[str, Any]:
    """The contract's answer."""
    names = flavor_names()
    queues = QueueLimit.objects.filter(queue__tenant=tenant).select_related("queue")
    users = UserLimit.objects.filter(tenant=tenant).select_related("user")
    return {
        "version": tenant.quota_version,
        "cohort": tenant.cohort.name if tenant.cohort else None,
        "flavors": [_flavor_answer(use, names) for use in flavor_uses(tenant)],
        "queues": [
            {"queue": row.queue.name, "flavor": names[row.flavor_id], "limit": row.limit}
            for row in queues.order_by("queue__name", "flavor__name")
        ],
        "users": [
            {"user": row.user.get_username(), "flavor": names[row.flavor_id], "limit": row.limit}
            for row in users.order_by("user__username", "flavor__name")
        ],
    }


def _flavor_answer(use: FlavorUse, names: Mapping[int, str]) -> dict[str, Any]:
    return {
        "flavor": names[use.flavor.pk],
        "cluster": use.flavor.cluster.name,
        "nominal": use.quota.nominal,
        "borrowing_limit": use.quota.borrowing_limit,
        "lending_limit": use.quota.lending_limit,
        "weight": float(use.quota.weight),
        "headroom": use.quota.headroom,
        "used": use.used,
        "borrowed": use.borrowed,
        "lent": use.lent,
        "outside": use.outside,
    }


# --- names, as people write them ---


def flavor_names() -> dict[int, str]:
    """Id → name; "cluster/name" where several clusters have a flavor of that name."""
    rows = list(Flavor.objects.values_list("pk", "cluster__name", "name"))
    times: dict[str, int] = defaultdict(int)
    for _pk, _cluster, name in rows:
        times[name] += 1
    return {pk: name if times[name] == 1 else f"{cluster}/{name}" for pk, cluster, name in rows}


def known_names(tenant: Tenant) -> Known:
    """What a change of the tenant's quotas may name."""
    flavors: dict[str, int] = {}
    ambiguous: set[str] = set()
    for pk, cluster, name in Flavor.objects.values_list("pk", "cluster__name", "name"):
        flavors[f"{cluster}/{name}"] = pk
        if name in flavors:
            ambiguous.add(name)
        flavors[name] = pk
    allowed: dict[int, set[int]] = defaultdict(set)
    for queue, flavor in QueueFlavor.objects.filter(queue__tenant=tenant).values_list(
        "queue_id", "flavor_id"
    ):
        allowed[queue].add(flavor)
    members = Membership.objects.filter(tenant=tenant).values_list("user__username", "user_id")
    limited = UserLimit.objects.filter(tenant=tenant).values_list("user__username", "user_id")
    return Known(
        flavors={name: pk for name, pk in flavors.items() if name not in ambiguous},
        ambiguous=frozenset(ambiguous),
        queues=dict(Queue.objects.filter(tenant=tenant).values_list("name", "pk")),
        allowed={queue: frozenset(ids) for queue, ids in allowed.items()},
        # Those who have left keep their limit until it is taken away.
        users=dict([*limited, *members]),
    )


def current_quotas(tenant: Tenant) -> Quotas:
    """The tenant's quotas as plain values."""
    rows = Quota.objects.filter(tenant=tenant)
    queues = QueueLimit.objects.filter(queue__tenant=tenant)
    users = UserLimit.objects.filter(tenant=tenant)
    return Quotas(
        flavors={row.flavor_id: quota_of(row) for row in rows},
        queues={(row.queue_id, row.flavor_id): row.limit for row in queues},
        users={(row.user_id, row.flavor_id): row.limit for row in users},
    )
