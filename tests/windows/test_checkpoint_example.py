"""docs/checkpoints.md: its client is really run, as a process of its own, against the web process as it is started."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from queues.models import Attempt
from queues.services.attempts import token_of
from scheduler.services.evictions import carry_out_evictions, order_eviction
from tests.live.test_server import Server, server
from tests.scheduler import rows
from tests.windows.builders import run_gang

__all__ = ["server"]
pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md"
# A training script that saves when it is told, and then waits for its end as real ones do.
TRAINING = """
import json, sys, time
from muster_client import Muster
muster = Muster()
muster.listen()
step = 0
print("running", flush=True)
while True:
    time.sleep(0.05)
    step += 1
    muster.beat(step, every_seconds=0.5)
    if muster.must_save():
        print(json.dumps({"step": step, "notice": muster.notice}), flush=True)
        muster.saved(step, f"file:///checkpoints/{step}")
        if muster.notice is None:
            sys.exit(0)  # it was SIGTERM
"""


def client_of_the_page() -> str:
    found = re.search(r"```python\n(# muster_client\.py\n.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    return found[1]


def test_client_beats_hears_the_notice_saves_and_obeys_the_signal(
    server: Server, tmp_path: Path
) -> None:
    world = rows.make_world(2)
    now = timezone.now()
    attempt = run_gang(
        world,
        [0],
        now=now,
        checkpoint_interval_seconds=3600,
        checkpoint_grace_seconds=60,
        checkpoint_notice="poll",
    )
    (tmp_path / "muster_client.py").write_text(client_of_the_page())
    (tmp_path / "train.py").write_text(TRAINING)
    env = os.environ | {
        "MUSTER_URL": server.url,
        "MUSTER_TOKEN": token_of(attempt.job_id, attempt.number),
        "PYTHONPATH": str(tmp_path),
    }
    process = subprocess.Popen(
        [sys.executable, "-S", "train.py"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        wait_for(lambda: attempt.placements.get().heartbeat_at is not None)
        assert reread(attempt).placements.get().heartbeat_step
        asked_at = time.monotonic()
        order_eviction(
            attempt,
            rule="maintenance",
            message="window",
            ordered_by="window 1",
            now=timezone.now(),
            wait_for_checkpoint=True,
            latest_at=timezone.now() + timedelta(hours=1),
        )
        told = json.loads(process.stdout.readline())
        assert time.monotonic() - asked_at < 20
        assert told["notice"]["kind"] == "maintenance"
        wait_for(lambda: reread(attempt).last_checkpoint_step == told["step"])
        assert reread(attempt).checkpoint_uri == f"file:///checkpoints/{told['step']}"
        carry_out_evictions(world.cluster, timezone.now())
        assert reread(attempt).stop_cause == "maintenance"
        process.terminate()  # as the kubelet does
        again = json.loads(process.stdout.readline())
        wait_for(lambda: reread(attempt).last_checkpoint_step >= again["step"])
    finally:
        process.kill()
        process.wait(timeout=10)


def reread(attempt: Attempt) -> Any:
    return Attempt.objects.get(pk=attempt.pk)


def wait_for(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
