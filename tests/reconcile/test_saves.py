"""A checkpoint that a pod's annotation tells of counts like one that the job reports; nonsense changes nothing."""

import json
from typing import Any

import pytest

from controlplane.common.models import Event
from queues.models import Attempt
from scheduler.reconcile.saves import ANNOTATION
from tests.reconcile.world import World

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def annotate(world: World, text: str) -> None:
    (pod,) = world.pods()
    body = {"metadata": {"annotations": {ANNOTATION: text}}}
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    world.api("PATCH", path, body, "application/merge-patch+json")


def test_a_save_that_an_annotation_tells_of_is_noted_once(world: World) -> None:
    world.start()
    job = world.submit(run_seconds=600, checkpoint_interval_seconds=900)
    world.until_phase(job, "running")
    for wrong in ("soon", '{"step": 1}', '{"step": -1, "at": "2027-01-01T00:00:00Z"}', "[]"):
        annotate(world, wrong)
    at = world.clock()
    annotate(world, json.dumps({"step": 1200, "at": at.isoformat(), "uri": "s3://x/1200"}))
    attempt: Any = world.until(
        lambda: Attempt.objects.filter(job=job, last_checkpoint_step=1200).first()
    )
    assert attempt.last_checkpoint_at == at
    assert attempt.checkpoint_uri == "s3://x/1200"
    assert Event.objects.filter(kind="attempt.checkpoint").count() == 1
