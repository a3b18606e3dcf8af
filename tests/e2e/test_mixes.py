"""Random mixes of gangs on the real processes, judged by the witness on the Kubernetes API."""

import os
import random
import time
from typing import Any

import pytest

from tests.e2e.api import Api, job
from tests.e2e.stack import Stack, wait_until
from tests.e2e.witness import Witness, gangs_in_part, gpus_given_twice

pytestmark = [pytest.mark.processes, pytest.mark.slow]

# Two hundred by `make chaos`.
MIXES = int(os.environ.get("MIXES") or 60)
SEED = 20261129
WAITING_AT_MOST = 40


def mix(dice: random.Random, tenant: str) -> list[dict[str, Any]]:
    """One to four gangs, alike in nothing."""
    return [gang(dice, tenant) for _ in range(dice.randint(1, 4))]


def gang(dice: random.Random, tenant: str) -> dict[str, Any]:
    """1 to 12 replicas, some elastic, some of less than a node, some that fail, at any topology."""
    replicas = dice.choice([1, 1, 2, 2, 3, 4, 6, 8, 12])
    return job(
        name="mix",
        tenant=tenant,
        replicas=replicas,
        min_replicas=dice.choice([replicas, replicas, max(1, replicas // 2)]),
        gpus_per_replica=dice.choice([8, 8, 8, 4, 2, 1]),
        topology={"level": dice.choice(["leaf", "spine"]), "mode": dice.choice(["required", "preferred"])},
        run_seconds=dice.choice([0, 1, 1, 2]),
        exit_code=dice.choice([0, 0, 0, 3]),
        log_lines=1,
        priority=dice.choice(["low", "normal"]),
        grace_seconds=2,
    )  # fmt: skip


def test_mixes_never_share_a_gpu_and_never_run_in_part(demo: Stack, witness: Witness) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    people = {"research": demo.api("ravi"), "vision": demo.api("mei")}
    sent: dict[str, dict[str, Any]] = {}
    for _ in range(MIXES):
        tenant = dice.choice(list(people))
        made = people[tenant].submit_many(mix(dice, tenant))
        sent.update({j["id"]: j for j in made})
        if dice.random() < 0.1:
            cancel(people[tenant], dice.choice(made)["id"])
        wait_until(lambda: waiting(demo.api("sam")) < WAITING_AT_MOST, 120)
    ended = finish(people, sent)
    assert {j["outcome"] for j in ended} <= {"succeeded", "failed", "cancelled"}
    for j in ended:
        if j["outcome"] != "cancelled":
            wanted = sent[j["id"]]["annotations"]["sim.muster.dev/exit-code"]
            assert str(j["exit_code"]) == wanted, j
    gangs = {j["id"]: j["min_replicas"] for j in sent.values()}
    sightings = [s for s in witness.sightings if s.job in gangs]
    assert {s.job for s in sightings} >= {j["id"] for j in ended if j["outcome"] != "cancelled"}
    assert not gpus_given_twice(sightings, witness.gpus_of_nodes())
    assert not gangs_in_part(sightings, gangs, witness.now())


def cancel(api: Api, job_id: str) -> None:
    """It may have finished in the meantime: then the refusal is right."""
    answer = api.call("POST", f"jobs/{job_id}/cancel/", json={"reason": "changed my mind"})
    assert answer.status_code in {200, 202, 409}, answer.text


def waiting(api: Api) -> int:
    """How many jobs wait, up to a page."""
    return len(api.get("jobs/", phase="pending", limit=200)["results"])


def finish(people: dict[str, Api], sent: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Wait for all, each asked by its own tenant."""
    deadline = time.monotonic() + 180
    return [
        people[j["tenant"]].until(j["id"], "finished", max(1.0, deadline - time.monotonic()))
        for j in sent.values()
    ]
