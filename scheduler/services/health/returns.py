"""How nodes come back: emptied, repaired, burnt in, the cordon lifted; how new ones join; how suspicion fades."""

from datetime import datetime, timedelta

from controlplane.common import log
from scheduler.health.conditions import condition_findings
from scheduler.health.findings import Grade
from scheduler.health.joining import (
    Newcomer,
    Returner,
    Step,
    checklist,
    passes,
    ready_for_burn_in,
    return_steps,
)
from scheduler.health.readings import GpuReading
from scheduler.health.states import Happening, State
from scheduler.models import BurnIn, BurnInPhase, CordonSource, ForeignPod, Node, NodeWatch
from scheduler.services.alerts import AlertFacts, raise_alert, resolve_alert
from scheduler.services.cordons import lift_cordon
from scheduler.services.health.acts import CORDON_KEY, keep_away
from scheduler.services.health.burning import request_burn_in
from scheduler.services.health.scene import NodeScene, Scene
from scheduler.services.health.timeline import HEALTH
from scheduler.services.health.verdicts import happens, is_overridden, set_gpu

SUSPICION_FADES_AFTER = timedelta(days=1)
WATCH_FAILS = 20
Readings = dict[str, GpuReading] | None


def welcome(scene: Scene, now: datetime) -> None:
    """Nodes that were never judged: well at a cluster's first sync, `joining` later."""
    fresh = [node for node in scene.nodes.values() if node.is_new]
    for node in fresh:
        watch = node.watch
        watch.state = State.HEALTHY if scene.first_time else State.JOINING
        watch.since = now
        watch.cause = "" if scene.first_time else "has joined the cluster"
        node.is_new = False
    NodeWatch.objects.bulk_create(
        [node.watch for node in fresh], batch_size=500, ignore_conflicts=True
    )


def proceed(scene: Scene, node: NodeScene, readings: Readings, now: datetime) -> None:
    """The next step on the way back of a node that is out or joins. readings None: not scraped this time."""
    watch = node.watch
    if watch.state == State.JOINING:
        _join(scene, node, now)
    elif watch.out_since is not None:
        _return(scene, node, readings, now)


def _return(scene: Scene, node: NodeScene, readings: Readings, now: datetime) -> None:
    state = State(node.watch.state)
    if state is State.DRAINING:
        keep_away(node, now)
        if is_empty(node):
            happens(scene, node, Happening.EMPTIED, "nothing runs there any more", now)
            state = State(node.watch.state)
    if state is State.REPAIRING and (why := repaired_because(node, readings)):
        _repaired(scene, node, why, now)
    elif state is State.BURN_IN:
        _after_burn_in(scene, node, now)
    if node.watch.out_since is not None:
        _keep_checklist(node, return_steps(_returner_of(scene, node, readings)))


def _returner_of(scene: Scene, node: NodeScene, readings: Readings) -> Returner:
    row, watch = node.row, node.watch
    burn_in = _burn_in_since(node, watch.out_since)
    under_way = State(watch.state) is State.BURN_IN
    repaired = f"repaired, says {watch.repaired_by}" if watch.repaired_at is not None else ""
    if not repaired and watch.out_boot_id and row.boot_id != watch.out_boot_id:
        repaired = "restarted"
    return Returner(
        name=row.name,
        empty=State(watch.state) is not State.DRAINING,
        ready=row.ready,
        repaired=repaired or ("no sign of the fault is left" if under_way else ""),
        clean=None if readings is None else _is_clean(row, readings),
        allocatable=row.gpus_allocatable,
        capacity=row.gpus_capacity,
        burn_in=_verdict(burn_in),
        burn_in_told=_told_of(burn_in),
        wants_burn_in=scene.burns_in,
    )


def _keep_checklist(node: NodeScene, steps: list[Step]) -> None:
    shown = [{"name": s.name, "ok": s.ok, "told": s.told, "kubectl": s.kubectl} for s in steps]
    if shown != node.watch.checklist:
        node.watch.checklist = shown
        node.watch.save(update_fields=["checklist"])


def is_empty(node: NodeScene) -> bool:
    """Whether nobody uses a GPU there: no placement of ours, no stranger's pod."""
    if node.is_held:
        return False
    strangers = ForeignPod.objects.filter(
        cluster=node.row.cluster_id, node=node.name, gpus__gt=0
    ).exclude(namespace="muster-system")
    return not strangers.exists()


def repaired_because(node: NodeScene, readings: Readings) -> str:
    """Why the node may be tried: a person says so, or it was restarted or reset and no sign is left. Empty: not yet."""
    watch, row = node.watch, node.row
    if not row.ready or row.gpus_allocatable < row.gpus_capacity or not row.gpus_capacity:
        return ""
    if watch.repaired_at is not None:
        return f"repaired, says {watch.repaired_by}"
    grave = [
        f for f in condition_findings(row.conditions, row.observed_at) if f.grade is Grade.UNHEALTHY
    ]
    if grave or readings is None or not _is_clean(row, readings):
        return ""
    restarted = bool(watch.out_boot_id) and row.boot_id != watch.out_boot_id
    if restarted:
        return "restarted, and no sign of the fault is left"
    if _burnt_in_vain(node):
        return ""
    return "reset, and no sign of the fault is left" if _was_reset(node, readings) else ""


def _is_clean(row: Node, readings: dict[str, GpuReading]) -> bool:
    if len(readings) < row.gpus_capacity:
        return False
    for reading in readings.values():
        values = reading.values
        if reading.xid or values.get("remap_failed") or values.get("remap_pending"):
            return False
        if any(value >= WATCH_FAILS for value, _ in reading.watches.values()):
            return False
    return True


def _was_reset(node: NodeScene, readings: dict[str, GpuReading]) -> bool:
    """Whether a sign that stays until a reset (the last XID, ECC since driver load) has gone again."""
    for uuid, gpu in node.gpus.items():
        reading, judged = readings.get(uuid), gpu.judged.get("latched") or {}
        if reading is None or not judged:
            continue
        if judged.get("xid") and reading.xid == 0:
            return True
        if judged.get("ecc_dbe_vol") and reading.values.get("ecc_dbe_vol") == 0:
            return True
    return False


def _burnt_in_vain(node: NodeScene) -> bool:
    return BurnIn.objects.filter(
        node=node.row, phase=BurnInPhase.FAILED, ended_at__gt=node.watch.out_since
    ).exists()


def _repaired(scene: Scene, node: NodeScene, why: str, now: datetime) -> None:
    if not scene.burns_in:
        come_back(scene, node, Happening.RETURNED, f"{why}; the cluster has no burn-in", now)
        return
    with log.writing():
        happens(scene, node, Happening.REPAIRED, why, now)
        request_burn_in(scene.policy, node.row, HEALTH, now)


def _after_burn_in(scene: Scene, node: NodeScene, now: datetime) -> None:
    last = BurnIn.objects.filter(node=node.row).order_by("-pk").first()
    if last is None or last.phase == BurnInPhase.CANCELLED:
        request_burn_in(scene.policy, node.row, HEALTH, now)
    elif last.phase == BurnInPhase.PASSED:
        come_back(scene, node, Happening.PASSED, "burn-in passed", now)
    elif last.phase == BurnInPhase.FAILED:
        _failed(scene, node, last, now)


def _failed(scene: Scene, node: NodeScene, burn_in: BurnIn, now: datetime) -> None:
    told = burn_in.message or f"exit code {burn_in.exit_code}"
    with log.writing():
        watch = node.watch
        watch.repaired_at, watch.repaired_by, watch.out_boot_id = None, "", node.row.boot_id
        watch.save(update_fields=["repaired_at", "repaired_by", "out_boot_id"])
        happens(scene, node, Happening.FAILED, f"burn-in failed: {told}", now)
    raise_alert(
        AlertFacts("burn_in_failed", cluster=scene.cluster, node=node.name, numbers={"cause": told}), now
    )  # fmt: skip


def come_back(
    scene: Scene,
    node: NodeScene,
    happening: Happening,
    why: str,
    now: datetime,
    actor: str = HEALTH,
) -> None:
    """Back to work: states well, the cordon of health lifted (others keep theirs)."""
    with log.writing():
        watch = node.watch
        watch.out_since, watch.out_boot_id = None, ""
        watch.repaired_at, watch.repaired_by, watch.checklist = None, "", []
        watch.save()
        happens(scene, node, happening, why, now, actor=actor)
        for gpu in node.gpus.values():  # those that were only suspect are cleared by the same word
            if gpu.state != State.HEALTHY and not is_overridden(gpu, now):
                set_gpu(gpu, State.HEALTHY, "", "", now)
        lift_cordon(
            node.row, source=CordonSource.HEALTH, key=CORDON_KEY, now=now, by=actor, reason=why
        )
    for kind in ("burn_in_failed", "budget_exhausted", "joining_blocked", "node_suspect"):
        resolve_alert(AlertFacts(kind, cluster=scene.cluster, node=node.name).key, now)


def _join(scene: Scene, node: NodeScene, now: datetime) -> None:
    steps = checklist(newcomer_of(scene, node))
    if scene.burns_in and ready_for_burn_in(steps) and is_empty(node):
        last = _joining_burn_in(node)
        if last is None or last.phase == BurnInPhase.CANCELLED:
            request_burn_in(scene.policy, node.row, HEALTH, now)
    _keep_checklist(node, steps)
    if passes(steps):
        happening = Happening.PASSED if scene.burns_in else Happening.RETURNED
        come_back(scene, node, happening, "every step of its checklist is green", now)
        return
    blocked = next((step for step in steps if step.ok is False), None)
    if blocked is not None and node.watch.since and now - node.watch.since > timedelta(minutes=5):
        raise_alert(
            AlertFacts("joining_blocked", cluster=scene.cluster, node=node.name,
                       numbers={"cause": blocked.told}, detail=blocked.kubectl), now
        )  # fmt: skip


def _joining_burn_in(node: NodeScene) -> BurnIn | None:
    return _burn_in_since(node, node.watch.since)


def _burn_in_since(node: NodeScene, moment: datetime | None) -> BurnIn | None:
    rows = BurnIn.objects.filter(node=node.row)
    if moment is not None:
        rows = rows.filter(requested_at__gte=moment)
    return rows.order_by("-pk").first()


def _told_of(burn_in: BurnIn | None) -> str:
    return f"{burn_in.phase} {burn_in.message}".strip() if burn_in else "not begun"


def newcomer_of(scene: Scene, node: NodeScene) -> Newcomer:
    """What the checklist looks at."""
    row, watch = node.row, node.watch
    assert row.flavor is not None
    burn_in = _joining_burn_in(node)
    levels = list(scene.cluster.levels.order_by("position").values_list("name", flat=True))
    others = Node.objects.filter(cluster=scene.cluster, gone_at__isnull=True)
    return Newcomer(
        name=row.name,
        resource=row.flavor.resource_name,
        has_key=not any(cause["code"] == "no_device_plugin" for cause in row.out_causes),
        allocatable=row.gpus_allocatable,
        discovered=_discovered(row, watch.gpus_seen),
        driver=row.driver,
        domain_driver=_domain_driver(row, levels),
        missing_levels=tuple(level for level in levels if not row.domains.get(level)),
        exporter_answers=None if watch.answered_at is None and watch.unknown_since is None
        else watch.unknown_since is None,
        burn_in=_verdict(burn_in),
        burn_in_told=_told_of(burn_in),
        wants_burn_in=scene.burns_in,
        exporter_wanted=others.filter(watch__answered_at__isnull=False).exists(),
    )  # fmt: skip


def _verdict(burn_in: BurnIn | None) -> bool | None:
    if burn_in is None or burn_in.phase not in (BurnInPhase.PASSED, BurnInPhase.FAILED):
        return None
    return burn_in.phase == BurnInPhase.PASSED


def _discovered(row: Node, seen: int | None) -> int | None:
    """GPUs by discovery's label, else by the exporter."""
    label = str(row.labels.get("nvidia.com/gpu.count", ""))
    return int(label) if label.isdecimal() else seen


def _domain_driver(row: Node, levels: list[str]) -> str:
    """The driver that most nodes of its narrowest domain and flavor have; empty where it is alone."""
    narrowest = next((level for level in reversed(levels) if row.domains.get(level)), None)
    rows = (
        Node.objects.filter(cluster=row.cluster_id, gone_at__isnull=True, flavor=row.flavor_id)
        .exclude(pk=row.pk)
        .exclude(driver="")
    )
    if narrowest is not None:
        rows = rows.filter(**{f"domains__{narrowest}": row.domains[narrowest]})
    drivers = list(rows.values_list("driver", flat=True))
    return max(sorted(set(drivers)), key=drivers.count, default="")


def fade(scene: Scene, node: NodeScene, lasting: set[str], now: datetime) -> None:
    """Clear suspicion of a day ago. lasting: UUIDs of GPUs that still show a sign ("" for the node itself)."""
    oldest = now - SUSPICION_FADES_AFTER
    for gpu in node.gpus.values():
        old = gpu.state == State.SUSPECT and gpu.since <= oldest and gpu.uuid not in lasting
        if old and not is_overridden(gpu, now):
            set_gpu(gpu, State.HEALTHY, "", "", now)
    watch = node.watch
    if watch.state == State.SUSPECT and watch.since and watch.since <= oldest and "" not in lasting:
        watch.state, watch.since, watch.cause, watch.evidence = State.HEALTHY, now, "", ""
        watch.save()
