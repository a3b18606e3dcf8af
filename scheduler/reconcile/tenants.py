"""What tenants' namespaces should look like, from rows; and the secrets that pods are given.

Called by `tick` and `orders`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from queues.models import Cluster, Flavor, Job, Queue, Quota
from queues.services.attempts import token_of
from scheduler.kube.namespaces import NamespaceWanted
from scheduler.kube.services import pull_secret_manifest
from scheduler.reconcile.describe import RESTRICTED, TOKEN_VARIABLE, pod_security_of
from tenants.models import Secret, Tenant
from tenants.services.secrets import secret_value

# From the strictest: a namespace enforces what its loosest preset needs.
_LEVELS = (RESTRICTED, "baseline", "privileged")


class MissingSecretError(Exception):
    """A job names a secret that its tenant does not have (any more)."""


def namespaces_wanted(cluster: Cluster) -> dict[str, NamespaceWanted]:
    """By name: the namespace of every tenant that has a queue or quota on the cluster."""
    tenants = Tenant.objects.filter(queues__cluster=cluster).distinct()
    quotas = _quotas(cluster)
    levels = _security_levels(cluster)
    devices = tuple(
        sorted(set(Flavor.objects.filter(cluster=cluster).values_list("resource_name", flat=True)))
    )
    return {
        tenant.namespace: NamespaceWanted(
            name=tenant.namespace,
            tenant=tenant.slug,
            security=levels.get(tenant.pk, RESTRICTED),
            quota=ceilings(quotas.get(tenant.pk, ()), in_cohort=tenant.cohort_id is not None),
            devices=devices,
        )
        for tenant in tenants
    }


@dataclass(frozen=True, slots=True)
class FlavorCeiling:
    """A tenant's quota of one flavor, as far as its ceiling goes; None borrows without limit."""

    resource: str
    nominal: int
    borrowing_limit: int | None


def _quotas(cluster: Cluster) -> dict[int, list[FlavorCeiling]]:
    found: dict[int, list[FlavorCeiling]] = defaultdict(list)
    rows = Quota.objects.filter(flavor__cluster=cluster).values_list(
        "tenant_id", "flavor__resource_name", "nominal", "borrowing_limit"
    )
    for tenant, resource, nominal, borrowing_limit in rows:
        found[tenant].append(FlavorCeiling(resource, nominal, borrowing_limit))
    return found


def ceilings(quotas: Iterable[FlavorCeiling], *, in_cohort: bool) -> dict[str, int]:
    """Per resource the most that a tenant's flavors can ever reach, and one largest gang besides.

    The largest gang that can ever start is as large as the ceiling itself: pods of the attempt
    before may still be ending, and creates that ended in 409 stay charged for a while. A resource
    of which any flavor may be borrowed without limit has no ceiling.
    """
    total: dict[str, int] = defaultdict(int)
    unlimited: set[str] = set()
    for quota in quotas:
        if in_cohort and quota.borrowing_limit is None:
            unlimited.add(quota.resource)
        total[quota.resource] += quota.nominal
        if in_cohort and quota.borrowing_limit is not None:
            total[quota.resource] += quota.borrowing_limit
    return {name: 2 * amount for name, amount in total.items() if name not in unlimited}


def _security_levels(cluster: Cluster) -> dict[int, str]:
    levels: dict[int, str] = {}
    rows: Iterable[tuple[int, Mapping[str, Any] | None]] = Queue.objects.filter(
        cluster=cluster, presets__isnull=False
    ).values_list("tenant_id", "presets__spec")
    for tenant, spec in rows:
        level = pod_security_of(spec or {})
        levels[tenant] = max(levels.get(tenant, RESTRICTED), level, key=_looseness)
    return levels


def _looseness(level: str) -> int:
    return _LEVELS.index(level) if level in _LEVELS else 0


KnownSecrets = Mapping[tuple[int, str], Secret]
"""Secrets by tenant's id and name."""


def secrets_of(jobs: Collection[Job]) -> KnownSecrets:
    """All secrets that these jobs name, by one statement; none where none is named."""
    named = {(job.tenant_id, name) for job in jobs for name in _named(job)}
    if not named:
        return {}
    rows = Secret.objects.filter(
        tenant__in={tenant for tenant, _ in named}, name__in={name for _, name in named}
    )
    return {(row.tenant_id, row.name): row for row in rows}


def _named(job: Job) -> set[str]:
    return {*job.secret_env.values(), *filter(None, [job.image_pull_secret])}


def secret_environment(job: Job, attempt: int, known: KnownSecrets | None = None) -> dict[str, str]:
    """The variables that come from a Secret: the job's own choice and the attempt's token.

    Raises MissingSecretError, or NoFieldKeyError where secrets cannot be opened.
    """
    found = secrets_of([job]) if known is None else known
    for name in sorted(set(job.secret_env.values())):
        if (job.tenant_id, name) not in found:
            raise MissingSecretError(f"the tenant has no secret {name!r}")
    values = {
        variable: secret_value(found[job.tenant_id, name]).decode()
        for variable, name in job.secret_env.items()
    }
    return {**values, TOKEN_VARIABLE: token_of(job.pk, attempt)}


def pull_secret(job: Job, known: KnownSecrets | None = None) -> dict[str, Any] | None:
    """The registry's credentials as a Secret; None for a job that names none."""
    if not job.image_pull_secret:
        return None
    found = secrets_of([job]) if known is None else known
    secret = found.get((job.tenant_id, job.image_pull_secret))
    if secret is None:
        raise MissingSecretError(f"the tenant has no secret {job.image_pull_secret!r}")
    value = secret_value(secret).decode()
    return pull_secret_manifest(job.tenant.namespace, secret.name, value)
