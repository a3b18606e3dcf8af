"""What goes on beside the jobs of the scene: GPUs with faults, alerts, windows, bookings, an eviction, drift.

Added to a scene by the tests and screenshots of the pages that show it.
"""

from datetime import timedelta

from queues.models import Attempt
from scheduler.models import (
    Booking,
    Drift,
    Gpu,
    HealthEvent,
    Hold,
    Node,
    NodeWatch,
)
from scheduler.services.alerts import AlertFacts, raise_alert
from scheduler.services.evictions import order_eviction
from scheduler.services.windows import create_window
from tests.pages.scene import Scene

LEAF = "fabric.topograph.run/tier-0"


def add_operations(scene: Scene) -> None:
    """All of it, in the database."""
    _labels(scene)
    _gpus(scene)
    _plan(scene)
    _alerts(scene)
    hour = scene.now.replace(minute=0, second=0, microsecond=0)
    for title, kind, domain, hours in (
        ("Firmware of leaf-03", "maintenance", "leaf-03", 5),
        ("Kept for the demo", "reserved", "leaf-02", 30),
    ):
        sent = {
            "title": title,
            "cluster": "demo",
            "kind": kind,
            "starts_at": (hour + timedelta(hours=hours)).isoformat(),
            "ends_at": (hour + timedelta(hours=hours + 2)).isoformat(),
            "time_zone": "Europe/Berlin",
            "nodes": {"domains": [{"level": "leaf", "name": domain}]},
            "rrule": "FREQ=WEEKLY" if kind == "maintenance" else None,
        }
        create_window(scene.actor("ines"), sent, scene.now)
    Drift.objects.create(
        cluster=scene.cluster,
        kind="unclaimed",
        key="uid-lost",
        node="gpu-00040",
        namespace="muster-research",
        pod="jx7k2m9qa-1-main-0-1",
        detail="a pod of a job that no row knows",
        since=scene.now - timedelta(minutes=7),
    )


def _labels(scene: Scene) -> None:
    for node in scene.nodes:
        node.labels = {
            "nvidia.com/gpu.product": node.flavor.model if node.flavor else "",
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.deploy.dcgm-exporter": "true",
            "topology.example/leaf": node.domains["leaf"],
            "topology.example/spine": node.domains["spine"],
            LEAF: node.domains["leaf"],
        }
    scene.nodes[5].driver = "550.163.01"
    scene.nodes[7].gpus_allocatable = 7
    Node.objects.bulk_update(scene.nodes, ["labels", "driver", "gpus_allocatable"])


def _gpus(scene: Scene) -> None:
    """Eight GPUs a node; one has fallen off the bus, one is suspect, one exporter is silent."""
    faulty, silent, suspect = scene.nodes[19], scene.nodes[21], scene.nodes[11]
    rows = [
        Gpu(
            cluster=scene.cluster,
            node=node,
            uuid=f"GPU-{number:04d}-{index}-ab12-cd34",
            index=index,
            model="NVIDIA H100 80GB HBM3",
            since=scene.now - timedelta(days=12),
            utilisation=93.0 if node is not silent else None,
            temperature_c=61.0 if node is not silent else None,
            memory_used_mib=70_100.0,
            unknown_since=scene.now - timedelta(minutes=9) if node is silent else None,
            seen_at=scene.now,
        )
        for number, node in enumerate(scene.nodes[:32])
        for index in range(8)
    ]
    broken, odd = rows[19 * 8 + 7], rows[11 * 8 + 2]
    broken.state, broken.cause = "unhealthy", "XID 79: GPU has fallen off the bus"
    broken.evidence = "NVRM: Xid (PCI:0000:ae:00): 79, pid='<unknown>', GPU has fallen off the bus."
    broken.next_step, broken.since = "running jobs leave", scene.now - timedelta(minutes=14)
    odd.state, odd.cause = "suspect", "corrected ECC errors: 12 new"
    odd.since = scene.now - timedelta(hours=3)
    Gpu.objects.bulk_create(rows)
    Node.objects.filter(pk=faulty.pk).update(
        health="draining",
        health_since=scene.now - timedelta(minutes=14),
        health_cause=broken.cause,
        health_closed=True,
    )
    Node.objects.filter(pk=suspect.pk).update(
        health="suspect", health_since=scene.now - timedelta(hours=3), health_cause=odd.cause
    )
    joining = scene.nodes[70]
    Node.objects.filter(pk=joining.pk).update(health="joining", health_since=scene.now)
    NodeWatch.objects.create(
        node=joining,
        state="joining",
        since=scene.now,
        checklist=[
            {"name": "gpu_key", "ok": True, "told": "nvidia.com/gpu: 8", "kubectl": ""},
            {
                "name": "driver",
                "ok": False,
                "told": "550.163.01, its domain has 570.86.15",
                "kubectl": "kubectl get node gpu-00070 -L nvidia.com/cuda.driver-version.full",
            },
            {"name": "burn_in", "ok": None, "told": "waits for the others", "kubectl": ""},
        ],
    )
    HealthEvent.objects.create(
        cluster=scene.cluster,
        node=faulty.name,
        gpu=broken.uuid,
        at=scene.now - timedelta(minutes=14),
        kind="signal",
        rule="xid",
        before="healthy",
        after="unhealthy",
        cause=broken.cause,
        evidence=broken.evidence,
        signal="dcgm",
        signal_age_seconds=2.5,
        xid=79,
        jobs=[
            {
                "job": scene.jobs["rlhf-ppo"].pk,
                "tenant": "research",
                "how": "on_gpu",
                "evicted": True,
            },
            {
                "job": scene.jobs["vision-secret-plan"].pk,
                "tenant": "vision",
                "how": "possibly",
                "evicted": False,
            },
        ],
        action="cordoned, tainted, drained",
        next_step="reset, restart or repair",
    )


def _plan(scene: Scene) -> None:
    Booking.objects.create(
        job=scene.jobs["pretrain-70b-ctx32k"],
        cluster=scene.cluster,
        flavor=scene.flavors["h100"],
        starts_at=scene.now + timedelta(hours=3),
        until=scene.now + timedelta(hours=20),
        nodes=[[f"gpu-{n:05d}", 8] for n in range(16)],
        made_at=scene.now,
    )
    Hold.objects.create(
        job=scene.jobs["sft-math-v4"],
        cluster=scene.cluster,
        flavor=scene.flavors["h100"],
        nodes=[["gpu-00001", 8, 0, 0, 1]],
        expires_at=scene.now + timedelta(minutes=9),
    )
    order_eviction(
        Attempt.objects.get(job=scene.jobs["pretrain-7b"], ended_at__isnull=True),
        rule="priority",
        message="pretrain-70b-ctx32k comes first",
        ordered_by="scheduler",
        now=scene.now,
        preemptor=scene.jobs["pretrain-70b-ctx32k"],
        numbers={"victim_priority": 500, "preemptor_priority": 900},
        refused=[[scene.jobs["eval-suite"].pk, "not_needed"]],
        wait_for_checkpoint=True,
        latest_at=scene.now + timedelta(minutes=30),
    )


def _alerts(scene: Scene) -> None:
    raise_alert(
        AlertFacts(
            "gpu_fault",
            cluster=scene.cluster,
            node="gpu-00019",
            gpu="GPU-0019-7-ab12-cd34",
            numbers={"cause": "XID 79, the GPU has fallen off the bus"},
            detail="NVRM: Xid (PCI:0000:ae:00): 79",
        ),
        scene.now,
    )
    raise_alert(
        AlertFacts(
            "exporter_down",
            cluster=scene.cluster,
            node="gpu-00021",
            numbers={"since": "14:02"},
        ),
        scene.now,
    )
    raise_alert(
        AlertFacts(
            "gpu_waste", job=scene.jobs["eval-suite"], numbers={"utilisation": 4, "minutes": 30}
        ),
        scene.now,
    )
