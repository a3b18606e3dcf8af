"""The fence: which lease a transaction acts under. Every transaction of `scheduler.apply` begins with `hold`.

The lease row says who plans for a cluster; `token` rises with every change of holder. A transaction that
holds the row with its own token cannot be overtaken: whoever would take the lease over must change the row,
and waits for the commit. `scheduler.loop.lease` acquires and renews.
"""

from dataclasses import dataclass

from django.db import connection

from scheduler.models import Lease


class LeaseLostError(Exception):
    """Another worker plans for the cluster now. Nothing of the transaction may be committed."""


@dataclass(frozen=True, slots=True)
class HeldLease:
    """Proof of having acquired a cluster's lease; `token` fences off all earlier holders."""

    cluster_id: int
    holder: str
    token: int


def hold(lease: HeldLease) -> None:
    """Lock the lease row until the transaction ends; raises LeaseLostError when the token is not ours.

    Must run inside a transaction. On SQLite that transaction is an immediate one, so it is the only writer
    and reading the row is holding it.
    """
    if _locked_token(lease.cluster_id) != lease.token:
        raise LeaseLostError(f"{lease.holder} lost the lease of cluster {lease.cluster_id}")


def _locked_token(cluster_id: int) -> int | None:
    if connection.vendor != "postgresql":
        return Lease.objects.filter(cluster_id=cluster_id).values_list("token", flat=True).first()
    with connection.cursor() as cursor:
        # Django's select_for_update would exclude other transactions of the same holder.
        cursor.execute(
            "SELECT token FROM scheduler_lease WHERE cluster_id = %s FOR SHARE", [cluster_id]
        )
        row = cursor.fetchone()
    return None if row is None else int(row[0])
