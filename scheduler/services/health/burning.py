"""Burn-ins: wanted by a row, made and watched by the `cluster` process, which tells here what became of them.

The one pod that may run on a tainted node: all GPUs of it, in Muster's own namespace, passed when it exits 0 within
its limit.
"""

from datetime import datetime

from controlplane.common import log
from queues.models import Cluster
from scheduler.models import BurnIn, BurnInPhase, HealthPolicy, Node
from scheduler.services.health.timeline import Line, write_lines

NAMESPACE = "muster-system"


def request_burn_in(policy: HealthPolicy, node: Node, by: str, now: datetime) -> BurnIn | None:
    """Want a burn-in of the node; the open one if there is one, None where the cluster has none."""
    if not policy.burn_in_image:
        return None
    with log.writing():
        known = BurnIn.objects.filter(node=node).exclude(phase__in=BurnIn.OVER).first()
        if known is not None:
            return known
        burn_in = BurnIn.objects.create(
            cluster_id=node.cluster_id,
            node=node,
            image=policy.burn_in_image,
            command=policy.burn_in_command,
            preset=policy.burn_in_preset,
            limit_seconds=policy.burn_in_limit_seconds,
            gpus=node.gpus_allocatable,
            requested_at=now,
            requested_by=by,
        )
        BurnIn.objects.filter(pk=burn_in.pk).update(pod_name=f"burn-in-{burn_in.pk}")
        burn_in.pod_name = f"burn-in-{burn_in.pk}"
        _tell(burn_in, f"burn-in wanted on {burn_in.gpus} GPUs", now, by)
    return burn_in


def note_burn_in(
    burn_in_id: int,
    *,
    phase: str,
    now: datetime,
    exit_code: int | None = None,
    message: str = "",
    pod_uid: str = "",
) -> bool:
    """What the cluster process saw of the pod. False when that is known already, or the burn-in is over."""
    changes: dict[str, object] = {"phase": phase, "message": message}
    if pod_uid:
        changes["pod_uid"] = pod_uid
    if phase == BurnInPhase.RUNNING:
        changes["started_at"] = now
    if phase in BurnIn.OVER:
        changes |= {"ended_at": now, "exit_code": exit_code}
    with log.writing():
        rows = BurnIn.objects.filter(pk=burn_in_id).exclude(phase__in=[*BurnIn.OVER, phase])
        if not rows.update(**changes):
            return False
        burn_in = BurnIn.objects.select_related("node", "cluster").get(pk=burn_in_id)
        ended = f", exit code {exit_code}" if exit_code is not None else ""
        _tell(burn_in, f"burn-in {phase}{ended}", now, "cluster", message)
    return True


def cancel_burn_ins(node: Node, why: str, now: datetime) -> int:
    """Give up what is under way on a node: its pod is deleted."""
    rows = BurnIn.objects.filter(node=node).exclude(phase__in=BurnIn.OVER)
    open_ones = list(rows.values_list("pk", flat=True))
    return sum(
        note_burn_in(pk, phase=BurnInPhase.CANCELLED, now=now, message=why) for pk in open_ones
    )


def open_burn_ins(cluster: Cluster) -> list[BurnIn]:
    """Burn-ins that are wanted or run, for the process that makes their pods."""
    rows = BurnIn.objects.filter(cluster=cluster).exclude(phase__in=BurnIn.OVER)
    return list(rows.select_related("node__flavor", "preset").order_by("pk"))


def _tell(burn_in: BurnIn, words: str, now: datetime, actor: str, evidence: str = "") -> None:
    write_lines(
        burn_in.cluster if burn_in.cluster_id else burn_in.node.cluster,
        burn_in.node.name,
        [Line("burn_in", cause=words, evidence=evidence, actor=actor)],
        now,
    )
