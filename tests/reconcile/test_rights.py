"""All that the cluster process does, it does with the shipped role, against an API that refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.common import log
from queues.lifecycle import EndedBy
from queues.services.attempts import stop_attempt
from scheduler.kube.nodes import OUT_TAINT as OUT
from scheduler.models import CordonSource, HealthPolicy, Node, WantedLabel
from scheduler.services.burn_in import request_burn_in
from scheduler.services.cordons import set_cordon
from tests.reconcile.world import World, nodes_in

pytestmark = pytest.mark.slow


def wish_for_all(world: World, name: str) -> None:
    """All that may be wanted of a node: a cordon with taint, a label, a burn-in."""
    node = Node.objects.get(name=name)
    set_cordon(node, source=CordonSource.HEALTH, reason="x", by="y", now=world.clock(), taint=True)
    with log.writing():
        WantedLabel.objects.create(node=node, key="a/b", value="c", by="w", since=world.clock())
        log.record(
            log.NewEvent(kind="node.label_wanted", at=world.clock(), cluster="demo", node=name)
        )
    policy, _ = HealthPolicy.objects.update_or_create(
        cluster=world.cluster, defaults={"burn_in_image": "burn:1"}
    )
    assert request_burn_in(policy, node, "ines", world.clock()) is not None


def test_a_gangs_whole_life_needs_no_more_than_the_shipped_role(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.start()
    world.until(lambda: nodes_in() == 4)
    changes: dict[str, Any] = {
        "checkpoint_notice": "file",
        "checkpoint_grace_seconds": 1,
        "checkpoint_interval_seconds": 60,
    }
    job = world.submit(replicas=2, run_seconds="forever", sigterm_seconds=0.1, **changes)
    world.until_phase(job, "running")
    stop_attempt(
        world.attempt(job),
        cause=EndedBy.PREEMPTED,
        grace_seconds=1,
        message="for another",
        actor="scheduler",
        now=world.clock(),
    )
    world.until(lambda: any("muster.dev/notice" in p.annotations for p in world.pods()), plan=False)
    world.until(lambda: job.attempts.filter(ended_at__isnull=False).exists(), plan=False)
    world.until_phase(job, "running")
    wish_for_all(world, "gpu-00001")
    seen = Node.objects.filter(
        name="gpu-00001", unschedulable=True, labels__has_key="a/b", taints__contains=[{"key": OUT}]
    )
    world.until(lambda: seen.exists())
    world.forward(61)
    books = world.running.process._ticker.books  # type: ignore[union-attr]
    world.until(lambda: books.drift.namespaces.get("muster-research") == ())
    stop_attempt(
        world.attempt(job),
        cause=EndedBy.CANCELLED,
        grace_seconds=1,
        message="",
        actor="ravi",
        now=world.clock(),
    )
    world.until_phase(job, "finished")
    world.until(lambda: world.attempt(job).service_created_at is None)
    world.forward(3700)
    world.until(lambda: world.pods() == [])
    assert "forbidden" not in caplog.text.lower()
