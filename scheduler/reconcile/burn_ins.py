"""Burn-ins: from rows that want one to a pod on the node, and back to what became of it.

Called by `tick`, inside its transaction; `enact` makes and ends the pods. A burn-in's pod that no open row wants is
deleted: in Muster's own namespace nobody else makes pods with our label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from queues.models import Cluster
from scheduler.kube.burn_in import LABEL, NAMESPACE, BurnInPod
from scheduler.kube.pods import PodKey
from scheduler.kube.seen import PodSeen
from scheduler.models import BurnIn, BurnInPhase
from scheduler.reconcile.describe import preset_of
from scheduler.reconcile.story import End, tell
from scheduler.reconcile.wanted import Delete, MakeBurnIn
from scheduler.services.burn_in import note_burn_in, open_burn_ins

# Beyond its limit, for a kubelet that never speaks of the pod.
START_SECONDS = 600
GRACE_SECONDS = 30


@dataclass(slots=True)
class BurnIns:
    """The open burn-ins of one cluster. `doubtful`: to be read again."""

    cluster: Cluster
    doubtful: bool = True
    _open: list[BurnIn] = field(default_factory=list)

    def take(self, pods: Mapping[str, PodSeen], now: datetime) -> Iterable[MakeBurnIn | Delete]:
        """Write down what the pods tell; what is to be made or ended. `pods`: those of burn-ins, by label."""
        if self.doubtful:
            self._open = open_burn_ins(self.cluster)
            self.doubtful = False
        actions: list[MakeBurnIn | Delete] = []
        for row in self._open:
            pod = pods.get(str(row.pk))
            if pod is None and row.phase == BurnInPhase.WANTED and not row.pod_uid:
                actions += self._make(row, now)
            elif (told := _told(row, pod, now)) is not None:
                self.doubtful |= note_burn_in(
                    row.pk,
                    phase=told.phase,
                    now=now,
                    exit_code=told.exit_code,
                    message=told.message,
                    pod_uid=told.pod_uid,
                )
        wanted = {str(row.pk) for row in self._open}
        for label, pod in pods.items():
            if label not in wanted and not pod.terminating:
                actions.append(Delete(PodKey(pod.namespace, pod.name, pod.uid), GRACE_SECONDS))
        return actions

    def _make(self, row: BurnIn, now: datetime) -> Iterable[MakeBurnIn]:
        flavor = row.node.flavor
        if flavor is None or not row.gpus:
            told = "the node offers no GPUs of a known model"
            self.doubtful |= note_burn_in(row.pk, phase=BurnInPhase.FAILED, now=now, message=told)
            return
        yield MakeBurnIn(
            BurnInPod(
                id=row.pk,
                node=row.node.name,
                device=flavor.resource_name,
                gpus=row.gpus,
                image=row.image,
                command=tuple(row.command),
                limit_seconds=row.limit_seconds,
                preset=preset_of(row.preset.spec if row.preset else {}),
            )
        )


def burn_in_pods(pods: Iterable[PodSeen]) -> dict[str, PodSeen]:
    """Those that bear the label of a burn-in in Muster's own namespace, by the label's value."""
    return {p.labels[LABEL]: p for p in pods if p.namespace == NAMESPACE and LABEL in p.labels}


@dataclass(frozen=True, slots=True)
class _Told:
    """As `note_burn_in` takes it."""

    phase: str
    exit_code: int | None = None
    message: str = ""
    pod_uid: str = ""


def _told(row: BurnIn, pod: PodSeen | None, now: datetime) -> _Told | None:
    """News of a burn-in; None where there is none."""
    if pod is None:
        return _Told(BurnInPhase.FAILED, message="its pod went before it had ended")
    story = tell(pod, now)
    if story.end is not None:
        passed = story.end is End.EXIT and story.exit_code == 0
        phase = BurnInPhase.PASSED if passed else BurnInPhase.FAILED
        message = "" if passed else f"{story.reason} {story.message}".strip()
        return _Told(phase, story.exit_code, message, pod.uid)
    if now >= row.requested_at + timedelta(seconds=row.limit_seconds + START_SECONDS):
        waits = story.waiting_reason or pod.phase
        return _Told(BurnInPhase.FAILED, message=f"it did not end in time: {waits}")
    if row.phase == BurnInPhase.WANTED and story.started_at is not None:
        return _Told(BurnInPhase.RUNNING, pod_uid=pod.uid)
    return None
