"""Signs that come one by one, not by scraping: XIDs in node events and kernel lines, told by the `cluster` process."""

from collections.abc import Sequence
from datetime import datetime

from controlplane.common import log
from queues.models import Cluster
from scheduler.health.findings import Finding
from scheduler.health.judge import kernel_finding
from scheduler.health.kernel import read_text
from scheduler.services.health.acts import act_on
from scheduler.services.health.scene import NodeScene, Scene, lock_node, read_scene
from scheduler.services.health.timeline import Hit
from scheduler.services.health.verdicts import News, settle_node, take_in


def note_kernel_event(
    cluster: str, node: str, *, reason: str, message: str, at: datetime, now: datetime
) -> bool:
    """A node event: True when it told of an XID that is judged. The same again within a moment changes nothing more."""
    told = read_text(message, reason)
    finding = kernel_finding(told.xids, message or reason, min(at, now), told.uuid, told.index)
    row = Cluster.objects.filter(name=cluster).first()
    if finding is None or row is None:
        return False
    scene = read_scene(row, [node])
    found = scene.nodes.get(node)
    if found is None or not scene.rules["kernel"].is_on:
        return False
    take_finding(scene, found, finding, now)
    return True


def take_finding(scene: Scene, node: NodeScene, finding: Finding, now: datetime) -> None:
    """Take one finding in and act on it, as a tick would. Who holds the GPU: as its row last said."""
    with log.writing():
        lock_node(scene, node)
        gpu = node.gpus.get(finding.uuid) or node.gpu_at(finding.index)
        news = [News(finding, gpu, _hits(node, gpu.holders if gpu else None))]
        take_in(scene, node, news, now)
        act_on(scene, node, news, now)
        settle_node(scene, node, now)


def _hits(node: NodeScene, holders: Sequence[Sequence[str]] | None) -> list[Hit]:
    if holders:
        pods = {pod for _, pod in holders}
        known = {p.attempt_id for p in node.placements if p.pod_name in pods}
        return [Hit(attempt, "on_gpu") for attempt in node.attempts() if attempt.pk in known]
    return [Hit(attempt, "possibly") for attempt in node.attempts()]
