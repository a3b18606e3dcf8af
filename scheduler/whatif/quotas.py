"""A snapshot with other quotas of one tenant. Pure. Called by `questions` and `changes`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scheduler.core.inputs.quotas import FlavorQuota, UserLimit
from scheduler.core.inputs.snapshot import Snapshot


def with_quotas(snapshot: Snapshot, sent: Mapping[str, Any]) -> Snapshot:
    """The snapshot with a tenant's quotas, queue limits and user limits replaced by those sent.

    Flavors of other clusters are passed over; `outside` usage stays as it is.
    """
    tenant, flavors = sent["tenant"], {flavor.name for flavor in snapshot.flavors}
    outside = {
        quota.flavor: quota.outside
        for known in snapshot.tenants
        if known.name == tenant
        for quota in known.quotas
    }
    quotas = tuple(
        FlavorQuota(
            flavor=row["flavor"],
            nominal=row["nominal"],
            borrowing_limit=row["borrowing_limit"],
            lending_limit=row["lending_limit"],
            weight=float(row["weight"]),
            headroom=row["headroom"],
            outside=outside.get(row["flavor"], 0),
        )
        for row in sorted(sent["flavors"], key=lambda row: str(row["flavor"]))
        if row["flavor"] in flavors
    )
    return replace(
        snapshot,
        tenants=tuple(
            replace(known, quotas=quotas) if known.name == tenant else known
            for known in snapshot.tenants
        ),
        queues=tuple(
            replace(queue, limits=_limits(sent["queues"], queue.name, flavors))
            if queue.tenant == tenant
            else queue
            for queue in snapshot.queues
        ),
        user_limits=(
            *(limit for limit in snapshot.user_limits if limit.tenant != tenant),
            *(
                UserLimit(tenant, row["user"], row["flavor"], row["limit"])
                for row in sent["users"]
                if row["flavor"] in flavors
            ),
        ),
    )


def _limits(
    rows: list[Mapping[str, Any]], queue: str, flavors: set[str]
) -> tuple[tuple[str, int], ...]:
    name = queue.partition("/")[2]
    return tuple(
        (row["flavor"], row["limit"])
        for row in rows
        if row["queue"] == name and row["flavor"] in flavors
    )
