"""The recorded story of a real API server, told to the simulated one, in order."""

import aiohttp

from scheduler.simcluster.clock import RunningClock
from scheduler.simcluster.cluster import Options, SimCluster
from scheduler.simcluster.profiles.model import Profile
from tests.simcluster.replay import Names, differences, load_exchanges, send

LISTED: dict[str, str] = {}


async def test_replaying_the_recorded_exchanges_answers_as_the_real_server_did() -> None:
    cluster = SimCluster(
        Profile("recorded", node_controller=False),
        clock=RunningClock(speed=50),
        options=Options(seed=1, rbac=True),
    )
    problems: dict[str, list[str]] = {}
    async with cluster as sim, aiohttp.ClientSession() as session:
        from scheduler.simcluster.api.request import User
        sim.access.tokens["sched-token"] = User("sched", ("system:authenticated",))
        names = Names()
        for exchange in load_exchanges():
            request = names.ours(exchange["request"])
            if exchange["name"] == "bad token":
                request["auth"] = None
            token = "nobody" if exchange["name"] == "bad token" else sim.admin_token
            answer = await send(session, sim.url, request, token)
            found = differences(exchange["response"], answer, names)
            if found:
                problems[exchange["name"]] = found
    for name, found in problems.items():
        print(name)
        for line in found: print("    ", line)
    assert set(problems) == set(LISTED)
