"""Seeded fault schedules: the same seed gives the same API history."""

import asyncio
import json
import os
import subprocess
import sys
from random import Random

import pytest

from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.api.request import parse_path
from scheduler.simcluster.clock import SteppedClock
from scheduler.simcluster.cluster import Options, SimCluster
from scheduler.simcluster.faults.gate import CutConnection
from scheduler.simcluster.faults.schedule import WEIGHTS, install, plan
from scheduler.simcluster.profiles.model import uniform_profile
from tests.simcluster.direct import PODS, Direct, pod

SCHEDULES = int(os.environ.get("CHAOS_SCHEDULES") or 10)
"""How many are run twice: ten in the suite, fifty by `make chaos`."""
LENGTH_SECONDS = 600.0
STEP_SECONDS = 20.0
KINDS = tuple(kind for kind in WEIGHTS if kind != "api_slow")  # it would only make the test wait


class Run:
    """One run of a cluster under faults, with a client that creates, binds and deletes pods."""

    def __init__(self, seed: int) -> None:
        options = Options(seed=seed, digest=True, admin_token="t")
        self.cluster = SimCluster(uniform_profile(8), clock=SteppedClock(), options=options)
        self.draw = Random(seed)
        self.answers: list[str] = []

    async def play(self) -> tuple[str, list[str], int]:
        """Runs to the end; returns the digest of the history, the answers, and the versions."""
        cluster = self.cluster
        machines = [kubelet.machine for kubelet in cluster.fleet.kubelets.values()]
        planned = plan(
            cluster.seed, machines, length_seconds=LENGTH_SECONDS, mean_gap_seconds=25, kinds=KINDS
        )
        install(cluster.world, cluster.faults, planned)
        for number in range(int(LENGTH_SECONDS / STEP_SECONDS)):
            await self.act(number)
            cluster.advance(STEP_SECONDS)
        return cluster.history_digest, self.answers, cluster.world.store.version

    async def act(self, number: int) -> None:
        """Creates a pod, binds it somewhere, and deletes an older one."""
        name, node = f"p{number}", f"gpu-0000{self.draw.randrange(8)}"
        seconds = str(self.draw.choice((15, 60, 300, "forever")))
        await self.call(
            "POST", PODS, pod(name, gpus=self.draw.choice((1, 4, 8)), run_seconds=seconds)
        )
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        await self.call("POST", f"{PODS}/{name}/binding", target)
        if self.draw.random() < 0.4:
            await self.call("DELETE", f"{PODS}/p{self.draw.randrange(number + 1)}")

    async def call(self, method: str, address: str, body: object = None) -> None:
        """One call through the gate of API faults."""
        call = parse_path(address.strip("/").split("/"), self.cluster.world.registry)
        assert call is not None
        call.method, call.headers = method, {"Content-Type": "application/json"}
        call.raw = b"" if body is None else json.dumps(body).encode()
        try:
            later = await self.cluster.gate.before(call)
            reply = self.cluster.verbs.run(call)
            for fault in later:
                await self.cluster.gate.strike(fault)
            self.answers.append(str(getattr(reply, "status", 0)))
        except ApiError as error:
            self.answers.append(f"{error.code} {error.reason}")
        except CutConnection:
            self.answers.append("cut")


@pytest.mark.slow
def test_seeded_fault_schedules_run_twice_give_the_same_history() -> None:
    digests = set()
    for seed in range(SCHEDULES):
        first = asyncio.run(Run(seed).play())
        second = asyncio.run(Run(seed).play())
        assert first == second, f"seed {seed}"
        digests.add(first[0])
    assert len(digests) == SCHEDULES


def test_two_runs_of_a_seed_are_equal_and_another_seed_differs() -> None:
    runs = [asyncio.run(Run(seed).play()) for seed in (101, 101, 102)]
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[2][0]
    assert any(answer.startswith(("4", "5", "cut")) for answer in runs[0][1])


@pytest.mark.slow
def test_another_process_with_another_hash_seed_has_the_same_history() -> None:
    script = (
        "import asyncio; from tests.simcluster.test_schedules import Run; "
        "print(asyncio.run(Run(7).play())[0])"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_schedule_draws_every_kind_and_refuses_unknown_ones() -> None:
    machines = [k.machine for k in Run(1).cluster.fleet.kubelets.values()]
    long = plan(4, machines, length_seconds=200_000, mean_gap_seconds=100)
    assert {item.kind for item in long} == set(WEIGHTS)
    assert [item.at_seconds for item in long] == sorted(item.at_seconds for item in long)
    with pytest.raises(ValueError, match="unknown kind 'nope'"):
        plan(4, machines, length_seconds=10, mean_gap_seconds=1, kinds=("nope",))


@pytest.mark.parametrize("seed", range(201, 207))
def test_after_faults_and_deletes_nothing_is_held_and_every_node_is_ready(seed: int) -> None:
    run = Run(seed)
    asyncio.run(run.play())
    cluster = run.cluster
    for kubelet in cluster.fleet.kubelets.values():
        devices = [device.id for held in kubelet.machine.held.values() for device in held]
        assert len(devices) == len(set(devices))
        assert all(amount >= 0 for amount in kubelet.used.values())
    cluster.faults.end_all()
    cluster.advance(120)
    direct = Direct(cluster)
    for item in direct.ok("GET", PODS)["items"]:
        direct.call("DELETE", f"{PODS}/{item['metadata']['name']}")
    cluster.advance(400)
    assert direct.ok("GET", PODS)["items"] == []
    for kubelet in cluster.fleet.kubelets.values():
        assert kubelet.machine.held == {}
        assert set(kubelet.used.values()) <= {0}
        assert (kubelet.runs, kubelet.by_key) == ({}, {})
    nodes = direct.ok("GET", "/api/v1/nodes")["items"]
    assert len(nodes) == 8
    for node in nodes:
        assert "taints" not in node["spec"], node["metadata"]["name"]
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
