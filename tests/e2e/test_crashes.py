"""kill -9 at random while a hundred gangs run through, and a broker that stops."""

import os
import random
import time
from pathlib import Path

import httpx
import pytest

from tests.e2e.api import Api, job
from tests.e2e.stack import Stack, running_demo, wait_until
from tests.e2e.witness import Witness, gangs_in_part, gpus_given_twice

pytestmark = [pytest.mark.processes, pytest.mark.slow]

GANGS = 100
SEED = int(os.environ.get("CHAOS_SEED") or 4711)
MINUTES = float(os.environ.get("CHAOS_MINUTES") or 0)
VICTIMS = ["scheduler", "cluster-demo", "web"]


def test_a_hundred_gangs_survive_kills_of_every_process(tmp_path: Path) -> None:
    """One round in the suite; `make chaos` repeats rounds for MINUTES, on one installation."""
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    until = time.monotonic() + MINUTES * 60
    with running_demo(tmp_path) as stack, Witness(stack.kubeconfig) as witness:
        gangs = one_round(stack, witness, dice)
        while time.monotonic() < until:
            gangs |= one_round(stack, witness, dice)
        assert not gpus_given_twice(witness.sightings, witness.gpus_of_nodes())
        assert not gangs_in_part(witness.sightings, gangs, witness.now())


def one_round(stack: Stack, witness: Witness, dice: random.Random) -> dict[str, int]:
    """A hundred gangs, kills until all are finished, and what must hold then. Answers their `min_replicas`."""
    api = stack.api("ravi")
    sent = {}
    for first in range(0, GANGS, 20):
        made = api.submit_many([random_gang(dice, first + n) for n in range(20)])
        sent.update({j["id"]: j for j in made})
    kills = kill_until_all_finished(stack, api, dice)
    print(f"{kills} kills")
    assert kills >= 6, "too few kills to mean anything"
    assert_each_ended_as_it_should([api.until(job_id, "finished", 60) for job_id in sent])
    assert_no_pod_is_orphaned(witness)
    return {job_id: j["min_replicas"] for job_id, j in sent.items()}


def random_gang(dice: random.Random, number: int) -> dict[str, object]:
    """Whole nodes, a few seconds each, every seventh fails."""
    return job(
        name=f"crash-{number}",
        replicas=dice.choice([1, 2, 4, 8]),
        run_seconds=dice.choice([3, 6, 9]),
        exit_code=5 if number % 7 == 0 else 0,
        log_lines=1,
        grace_seconds=2,
    )


def kill_until_all_finished(stack: Stack, api: Api, dice: random.Random) -> int:
    """Kill one process every few seconds; when all is done, answer how many it were."""
    kills, deadline = 0, time.monotonic() + 240
    while time.monotonic() < deadline:
        victim = dice.choice(VICTIMS)
        before = stack.kill(victim)
        kills += 1
        until_replaced(stack, victim, before)
        time.sleep(dice.uniform(2.0, 6.0))
        wait_until(lambda: web_answers(api), 20)
        if not any(unfinished(api)):
            return kills
    raise AssertionError(f"still unfinished after {kills} kills: {unfinished(api)}")


def until_replaced(stack: Stack, name: str, pid: int) -> None:
    """The supervisor owes a new process within two seconds."""
    took = wait_until(lambda: stack.pids().get(name) != pid, 10)
    assert took < 2, f"{name} was away for {took:.1f} s"


def web_answers(api: Api) -> bool:
    """Whether the web process is back."""
    try:
        return api.call("GET", "jobs/", params={"limit": 1}).status_code == 200
    except httpx.HTTPError:
        return False


def unfinished(api: Api) -> list[str]:
    """Phases of jobs that still have something before them."""
    phases = ["pending", "placed", "starting", "running", "stopping"]
    return [p for p in phases if api.get("jobs/", phase=p, limit=1)["results"]]


def assert_each_ended_as_it_should(ended: list[dict[str, object]]) -> None:
    """A crash of ours is never the job's failure."""
    for j in ended:
        number = int(str(j["name"]).removeprefix("crash-"))
        wanted = ("failed", 5) if number % 7 == 0 else ("succeeded", 0)
        assert (j["outcome"], j["exit_code"]) == wanted, j


def assert_no_pod_is_orphaned(witness: Witness) -> None:
    """Soon after the last job ended no pod of ours is unfinished."""

    def leftovers() -> list[str]:
        return [
            p["metadata"]["name"]
            for p in witness.pods_now()
            if p["status"]["phase"] not in {"Succeeded", "Failed"}
        ]

    wait_until(lambda: not leftovers(), 30, lambda: str(leftovers()))
