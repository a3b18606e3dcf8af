"""kill -9 and SIGSTOP at random while dozens of gangs run through."""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx
import pytest

from tests.e2e.api import Api, job
from tests.e2e.stack import Stack, running_demo, wait_until
from tests.e2e.witness import Witness, gangs_in_part, gpus_given_twice

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SEED = int(os.environ.get("CHAOS_SEED") or 4711)
# One run in the suite, twenty by `make chaos`; each has a way of its own to do harm, in turn.
RUNS = int(os.environ.get("CRASH_RUNS") or 1)
GANGS = 60
VICTIMS = ["scheduler", "cluster-demo", "web", "health-demo", "whatif", "worker"]
# Longer than the lease: the leader comes back to find that it is not one any more.
PAUSED_SECONDS = 12.0


def test_gangs_survive_kills_of_every_process(tmp_path: Path) -> None:
    with running_demo(tmp_path) as stack, Witness(stack.kubeconfig) as witness:
        gangs: dict[str, int] = {}
        for number in range(RUNS):
            harm = HARMS[number % len(HARMS)]
            print(f"run {number + 1} of {RUNS}, seed {SEED + number}, {harm.__name__}", flush=True)
            gangs |= one_run(stack, witness, random.Random(SEED + number), harm)
        assert not gpus_given_twice(witness.sightings, witness.gpus_of_nodes())
        assert not gangs_in_part(witness.sightings, gangs, witness.now())


def one_run(stack: Stack, witness: Witness, dice: random.Random, harm: "Harm") -> dict[str, int]:
    """Gangs, harm until all are finished, and what must hold then. Answers their `min_replicas`."""
    api = stack.api("ravi")
    sent = {}
    for first in range(0, GANGS, 20):
        made = api.submit_many([random_gang(dice, first + n) for n in range(20)])
        sent.update({j["id"]: j for j in made})
    times = harm_until_all_finished(stack, api, dice, harm)
    print(f"  {times} times", flush=True)
    assert times >= 3, "too little harm to mean anything"
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


def harm_until_all_finished(stack: Stack, api: Api, dice: random.Random, harm: "Harm") -> int:
    """Do harm every few seconds; when all is done, answer how often it was."""
    times, deadline = 0, time.monotonic() + 240
    while time.monotonic() < deadline:
        harm(stack, dice)
        times += 1
        time.sleep(dice.uniform(2.0, 6.0))
        wait_until(lambda: web_answers(api), 30)
        if not any(unfinished(api)):
            return times
    raise AssertionError(f"still unfinished after {times} times: {unfinished(api)}")


def kill_one(stack: Stack, dice: random.Random) -> None:
    """`kill -9` any process."""
    victim = dice.choice(running(stack, VICTIMS))
    until_replaced(stack, {victim: stack.kill(victim)})


def kill_planner_and_hands(stack: Stack, _dice: random.Random) -> None:
    """Those who decide and those who act, at the same moment."""
    until_replaced(stack, {name: stack.kill(name) for name in ("scheduler", "cluster-demo")})


def kill_all(stack: Stack, _dice: random.Random) -> None:
    """Everything but the supervisor and the cluster."""
    until_replaced(stack, {name: stack.kill(name) for name in running(stack, VICTIMS)})


def pause_the_leader(stack: Stack, dice: random.Random) -> None:
    """It stands still for longer than its lease, in the middle of whatever it did, and goes on with an old token."""
    pid = stack.pids()["scheduler"]
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(PAUSED_SECONDS)
    finally:
        os.kill(pid, signal.SIGCONT)


def pause_the_hands(stack: Stack, dice: random.Random) -> None:
    """The cluster process stands still while pods start and end."""
    pid = stack.pids()["cluster-demo"]
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(dice.uniform(3, PAUSED_SECONDS))
    finally:
        os.kill(pid, signal.SIGCONT)


Harm = Callable[[Stack, random.Random], None]
HARMS: tuple[Harm, ...] = (
    kill_one,
    kill_planner_and_hands,
    pause_the_leader,
    kill_all,
    pause_the_hands,
)


def running(stack: Stack, names: Sequence[str]) -> list[str]:
    """Those of `names` that the supervisor has running."""
    pids = stack.pids()
    return [name for name in names if name in pids]


def until_replaced(stack: Stack, killed: Mapping[str, int]) -> None:
    """The supervisor owes new processes within two seconds."""

    def replaced() -> bool:
        pids = stack.pids()
        return all(pids.get(name, pid) != pid for name, pid in killed.items())

    took = wait_until(replaced, 10)
    assert took < 2, f"{sorted(killed)} were away for {took:.1f} s"


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
