"""Tenants that use more than they may, after a quota cut or because of what runs outside Muster: told, never stopped.

Called by `scheduler.loop.cycle` when the plan sees others than before. A tenant's alert is seen by the tenant, a
cohort's by platform roles alone.
"""

from collections.abc import Iterable
from datetime import datetime

from queues.models import Cluster
from scheduler.core.outputs import OverAdmission
from scheduler.services.alerts import AlertFacts, settle_alerts
from tenants.models import Tenant

KIND = "over_admission"


def tell_over_admissions(cluster_id: int, found: Iterable[OverAdmission], now: datetime) -> None:
    """Raise one alert for each tenant, and one for each cohort, that is over; resolve those of others."""
    listed = list(found)
    cluster = Cluster.objects.get(pk=cluster_id)
    names = {over.name for over in listed}
    tenants = {tenant.slug: tenant for tenant in Tenant.objects.filter(slug__in=names)}
    settle_alerts(KIND, cluster, [_facts(cluster, over, tenants) for over in listed], now)


def _facts(cluster: Cluster, over: OverAdmission, tenants: dict[str, Tenant]) -> AlertFacts:
    # A key has no flavor and no cohort in it: what tells two of them apart stands where a GPU's name would.
    return AlertFacts(
        KIND,
        cluster=cluster,
        gpu=over.flavor if over.name in tenants else f"{over.name}/{over.flavor}",
        tenant=tenants.get(over.name),
        numbers={"name": over.name, "flavor": over.flavor, "gpus": over.over_gpus},
    )
