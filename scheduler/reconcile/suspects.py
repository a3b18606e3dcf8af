"""A node on which a pod cannot start while its siblings do is suspected, through the health ledger.

Called by `steps` beside the stop of the attempt. No node is blamed for what hits every pod of a role: that is the
job's own fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from queues.models import Cluster
from scheduler.health.findings import Finding, Grade, Source
from scheduler.services.health.scene import read_scene
from scheduler.services.node_reports import REPORT
from scheduler.services.node_signals import take_finding

CAUSE = "a pod could not start here while its siblings did elsewhere"
EVIDENCE_LIMIT = 1000


def suspect(cluster: Cluster, nodes: Iterable[str], evidence: str, now: datetime) -> None:
    """Put the nodes on the health timeline as suspect: no new multi-node gang until they are cleared."""
    for name in sorted(set(nodes)):
        scene = read_scene(cluster, [name])
        found = scene.nodes.get(name)
        if found is not None:
            finding = Finding(
                rule=REPORT,
                grade=Grade.SUSPECT,
                cause=CAUSE,
                evidence=evidence[:EVIDENCE_LIMIT],
                source=Source.REPORT,
                at=now,
            )
            take_finding(scene, found, finding, now)
