"""Which exporters answer: noted where that has changed. Of the silent nothing is known, and nothing else follows."""

from collections.abc import Mapping
from datetime import datetime

from scheduler.health.readings import GpuReading
from scheduler.models import Gpu, NodeWatch
from scheduler.services.health.scene import NodeScene, Scene

Pages = Mapping[str, Mapping[str, GpuReading] | None]
_COLUMNS = ["unknown_since", "error", "answered_at", "generation", "gpus_seen"]
_SILENT = "the exporter does not answer"


def note_answers(scene: Scene, pages: Pages, now: datetime) -> None:
    """Who answers and who does not, where that has changed."""
    nodes = scene.nodes.values()
    silent = [
        node for node in nodes if pages[node.name] is None and node.watch.unknown_since is None
    ]
    back = [n for n in nodes if pages[n.name] is not None and n.watch.unknown_since is not None]
    for node in silent:
        node.watch.unknown_since, node.watch.error = now, _SILENT
    changed = silent + [node for node in nodes if _heard(node, pages[node.name], now)]
    if changed:
        watches = [node.watch for node in changed]
        NodeWatch.objects.bulk_update(watches, _COLUMNS, batch_size=500)
    for listed, since in ((silent, now), (back, None)):
        _mark_unknown(listed, since)


def note_first_answer(
    node: NodeScene, readings: Mapping[str, GpuReading] | None, now: datetime
) -> None:
    """Note on a watch that has no row yet what its exporter has said."""
    if readings is None:
        node.watch.unknown_since, node.watch.error = now, _SILENT
    else:
        _heard(node, readings, now)


def _heard(node: NodeScene, readings: Mapping[str, GpuReading] | None, now: datetime) -> bool:
    """Note an answer on the node's watch; True when it says something new."""
    watch = node.watch
    if readings is None or (watch.unknown_since is None and watch.gpus_seen == len(readings)):
        return False
    watch.unknown_since, watch.error, watch.answered_at = None, "", now
    watch.generation = next((reading.generation for reading in readings.values()), "")
    watch.gpus_seen = len(readings)
    return True


def _mark_unknown(nodes: list[NodeScene], since: datetime | None) -> None:
    """The GPUs of these nodes are unknown from then on, or no longer."""
    rows = Gpu.objects.filter(node__in=[node.row.pk for node in nodes])
    if nodes and since is not None:
        rows.filter(unknown_since__isnull=True).update(unknown_since=since)
    elif nodes:
        rows.update(unknown_since=None)
    for node in nodes:
        for gpu in node.gpus.values():
            gpu.unknown_since = (gpu.unknown_since or since) if since else None
