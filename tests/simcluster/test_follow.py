"""A client that lists and watches ends with what is there, whatever happens to its watches."""

import asyncio
import json
from random import Random
from typing import Any

import aiohttp
import pytest

from scheduler.simcluster.clock import RunningClock
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.profiles.model import Profile

Json = dict[str, Any]
PATH = "/api/v1/namespaces/default/configmaps"
MERGE = {"Content-Type": "application/merge-patch+json"}


class Follower:
    """List, watch, and list again when told to: as every controller does."""

    def __init__(self, session: aiohttp.ClientSession, address: str, selector: str) -> None:
        self.session, self.address, self.selector = session, address, selector
        self.seen: dict[str, str] = {}
        self.version = ""
        self.lists = 0
        self.watches = 0

    async def run(self) -> None:
        """Follows until cancelled."""
        while True:
            if not self.version:
                await self.relist()
            try:
                await self.watch()
            except aiohttp.ClientError:
                continue

    async def relist(self) -> None:
        """Takes the state as it is, in pages."""
        self.lists += 1
        self.seen.clear()
        query = {"labelSelector": self.selector, "limit": "3"}
        while True:
            async with self.session.get(self.address, params=query) as response:
                page = await response.json()
                if response.status == 410:
                    query.pop("continue", None)
                    self.seen.clear()
                    continue
            for item in page["items"]:
                self.seen[item["metadata"]["name"]] = item["metadata"]["resourceVersion"]
            token = page["metadata"].get("continue")
            if not token:
                self.version = page["metadata"]["resourceVersion"]
                return
            query["continue"] = token

    async def watch(self) -> None:
        """Follows changes from where it is."""
        self.watches += 1
        query = {
            "watch": "1", "labelSelector": self.selector, "resourceVersion": self.version,
            "allowWatchBookmarks": "true", "timeoutSeconds": "30",
        }  # fmt: skip
        async with self.session.get(self.address, params=query) as response:
            async for line in response.content:
                self.take(json.loads(line))
                if not self.version:
                    return

    def take(self, event: Json) -> None:
        """Applies one event."""
        if event["type"] == "ERROR":
            assert event["object"]["code"] == 410
            self.version = ""
            return
        metadata = event["object"]["metadata"]
        self.version = metadata["resourceVersion"]
        if event["type"] == "DELETED":
            assert metadata["name"] in self.seen
            del self.seen[metadata["name"]]
        elif event["type"] != "BOOKMARK":
            assert (event["type"] == "ADDED") is (metadata["name"] not in self.seen)
            self.seen[metadata["name"]] = metadata["resourceVersion"]


async def change(session: aiohttp.ClientSession, address: str, draw: Random) -> None:
    """One random change to one of twenty config maps."""
    name, way = f"c{draw.randrange(20)}", draw.random()
    labels = {"in": draw.choice(("yes", "no"))}
    if way < 0.4:
        await session.post(address, json={"metadata": {"name": name, "labels": labels}})
    elif way < 0.85:
        patch = {"metadata": {"labels": labels}, "data": {"n": str(draw.random())}}
        await session.patch(f"{address}/{name}", json=patch, headers=MERGE)
    else:
        await session.delete(f"{address}/{name}")


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_follower_ends_with_what_the_server_has(seed: int) -> None:
    draw = Random(seed)
    async with (
        SimCluster(Profile("empty"), clock=RunningClock(speed=60), seed=seed) as sim,
        aiohttp.ClientSession() as session,
    ):
        address = sim.url + PATH
        follower = Follower(session, address, "in=yes")
        following = asyncio.create_task(follower.run())
        for number in range(400):
            await change(session, address, draw)
            if number % 40 == 39:
                kind = draw.choice(("watch_drop", "watch_expire"))
                await session.post(f"{sim.url}/_sim/faults", json={"kind": kind, "seconds": 1})
        async with session.get(address, params={"labelSelector": "in=yes"}) as response:
            items = (await response.json())["items"]
        wanted = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}
        async with asyncio.timeout(20):
            while follower.seen != wanted:
                assert not following.done(), following
                await asyncio.sleep(0.01)
        following.cancel()
        assert follower.watches > 5
        assert wanted
