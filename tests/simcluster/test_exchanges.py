"""The recorded story of a real API server, told to the simulated one, in order."""

import aiohttp

from scheduler.simcluster.api.request import User
from scheduler.simcluster.clock import RunningClock
from scheduler.simcluster.cluster import Options, SimCluster
from scheduler.simcluster.profiles.model import Profile
from tests.simcluster.replay import Names, differences, load_exchanges, send

LISTED = {
    "version": [".gitCommit", ".gitVersion"],
    "changing an immutable pod field": [".details.causes[0].message", ".message"],
}
"""Pairs that differ and stay so, with the fields that do; docs/simcluster.md gives the reasons."""

COMPACTED_BEFORE = "watch from a version that is no longer kept"
"""Here the recorded server had dropped old versions from its watch cache (not from etcd)."""


async def test_replaying_the_recorded_exchanges_answers_as_the_real_server_did() -> None:
    cluster = SimCluster(
        Profile("recorded", node_controller=False),
        clock=RunningClock(speed=40),
        options=Options(seed=1, rbac=True),
    )
    problems: dict[str, list[str]] = {}
    async with cluster as sim, aiohttp.ClientSession() as session:
        sim.access.tokens["sched-token"] = User("sched", ("system:authenticated",))
        names = Names()
        exchanges = load_exchanges()
        for exchange in exchanges:
            if exchange["name"] == COMPACTED_BEFORE:
                await session.post(f"{sim.url}/_sim/compact")
            token = "nobody" if exchange["name"] == "bad token" else sim.admin_token
            answer = await send(session, sim.url, names.ours(exchange["request"]), token)
            found = differences(exchange["response"], answer, names)
            if found:
                problems[exchange["name"]] = found
    assert len(exchanges) == 110
    shown = {name: [line.partition(" ")[0] for line in found] for name, found in problems.items()}
    assert shown == LISTED, problems
    assert len(LISTED) <= 5
