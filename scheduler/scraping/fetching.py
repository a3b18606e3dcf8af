"""Pages of exporters: directly, through the API server, or what a Prometheus server has scraped.

Every fetch is bounded in time and number; no answer is None, which means unknown and nothing else.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

import aiohttp

from scheduler.health.names import WANTED
from scheduler.health.pages import PageReader
from scheduler.health.readings import GpuReading, readings_of
from scheduler.health.text import Sample
from scheduler.kube.connection import Connection
from scheduler.kube.errors import Forbidden, KubeError
from scheduler.kube.exporters import exporter_addresses, proxy_path

IN_FLIGHT = 48
FETCH_SECONDS = 5.0
LOOKED_UP_EVERY_SECONDS = 60.0
# A role seldom gains a right, and each refusal is a line in the API server's audit log.
REFUSED_FOR_SECONDS = 3600.0
# A page of 8 GPUs has 130 KB; MIG has more.
LONGEST_PAGE = 16 * 1024 * 1024
THROUGH_API_SERVER = "apiserver"

Readings = dict[str, GpuReading]
Scrapes = dict[str, Readings | None]


class Source(Protocol):
    """Where readings come from. answers_for_all: one answer tells of all nodes, so they are asked for together."""

    answers_for_all: bool

    async def read(self, nodes: Collection[str]) -> Scrapes:
        """Readings of these nodes; None for those that give no answer."""
        ...


class Exporters:
    """Exporters one by one. `page`: how one node's page is fetched."""

    answers_for_all = False

    def __init__(
        self,
        page: Callable[[str], Awaitable[str | None]],
        in_flight: int = IN_FLIGHT,
        reader: PageReader | None = None,
    ) -> None:
        self._page = page
        self._room = asyncio.Semaphore(in_flight)
        self._reader = reader or PageReader()

    async def read(self, nodes: Collection[str]) -> Scrapes:
        """As `Source.read`. A page is read as soon as it is there, so that no two wait in memory for long."""
        ordered = list(nodes)
        found = await asyncio.gather(*(self._one(node) for node in ordered))
        return dict(zip(ordered, found, strict=True))

    async def _one(self, node: str) -> Readings | None:
        async with self._room:
            page = await self._page(node)
        return None if page is None else self._reader.read(node, page)


def direct(
    session: aiohttp.ClientSession,
    address_of: Callable[[str], str],
    reader: PageReader | None = None,
) -> Exporters:
    """Straight to each exporter; `address_of` gives a node's URL, empty when it is not known."""

    async def page(node: str) -> str | None:
        url = address_of(node)
        if not url:
            return None
        try:
            async with session.get(
                url, timeout=aiohttp.ClientTimeout(total=FETCH_SECONDS)
            ) as answer:
                if answer.status != 200:
                    return None
                raw = await answer.content.read(LONGEST_PAGE)
                while not answer.content.at_eof() and len(raw) < LONGEST_PAGE:
                    raw += await answer.content.read(LONGEST_PAGE - len(raw))
                return raw.decode("utf-8", "replace")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None

    return Exporters(page, reader=reader)


def through_api_server(
    connection: Connection, clock: Callable[[], float] = time.monotonic
) -> Exporters:
    """By the API server's node proxy: no route to the nodes is needed.

    Where our role has no right to it (the shipped one has none), it is left alone for an hour after each refusal.
    """
    asked_again_at = float("-inf")

    async def page(node: str) -> str | None:
        nonlocal asked_again_at
        if clock() < asked_again_at:
            return None
        try:
            raw = await connection.call("GET", proxy_path(node), tries=1)
        except Forbidden:
            asked_again_at = clock() + REFUSED_FOR_SECONDS
            return None
        except KubeError:
            return None
        return raw.decode("utf-8", "replace")

    return Exporters(page, in_flight=16)


class Discovered:
    """Exporter pods where the API knows any; else, where one node's exporter answers there, the node proxy."""

    answers_for_all = False

    def __init__(self, pods: Exporters, proxy: Exporters | None, addresses: "Addresses") -> None:
        self._pods, self._proxy, self._addresses = pods, proxy, addresses

    async def read(self, nodes: Collection[str]) -> Scrapes:
        """As `Source.read`."""
        if self._proxy is None or self._addresses.knows_any or not nodes:
            return await self._pods.read(nodes)
        # One call finds out: a thousand that fail every few seconds would be a burden.
        first = min(nodes)
        probed = await self._proxy.read([first])
        if probed[first] is None:
            return dict.fromkeys(nodes)
        return await self._proxy.read([n for n in nodes if n != first]) | probed


class Addresses:
    """Exporter pods by node, looked up again every so often: they move seldom, and a list of pods is not cheap."""

    def __init__(self, connection: Connection | None, template: str = "") -> None:
        self._connection, self._template = connection, template
        self._known: dict[str, str] = {}
        self._refreshed_at = float("-inf")

    @property
    def knows_any(self) -> bool:
        """Whether there is anywhere to go."""
        return bool(self._known) or bool(self._template)

    def of(self, node: str) -> str:
        """A node's URL; empty when none is known."""
        address = self._known.get(node, "")
        if self._template:
            return self._template.format(node=node, address=address)
        return f"http://{address}/metrics" if address else ""

    async def refresh(self) -> bool:
        """Ask the API again, once a minute; False when it does not answer (what was known stays)."""
        if self._connection is None or (self._template and "{address}" not in self._template):
            return True
        if time.monotonic() - self._refreshed_at < LOOKED_UP_EVERY_SECONDS:
            return True
        try:
            self._known = await exporter_addresses(self._connection)
        except KubeError:
            return False
        self._refreshed_at = time.monotonic()
        return True


class Prometheus:
    """What a Prometheus server has scraped: one instant query a metric. Series vanish there when a target is down."""

    answers_for_all = True

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url.rstrip("/")

    async def read(self, nodes: Collection[str]) -> Scrapes:
        """As `Source.read`; a node of which the server knows nothing is None."""
        wanted = set(nodes)
        series: dict[str, list[Sample]] = defaultdict(list)
        results = await asyncio.gather(*(self._query(name) for name in sorted(WANTED)))
        if all(result is None for result in results):
            return dict.fromkeys(nodes)
        for result in results:
            for each in result or ():
                node = node_of(each["metric"])
                if node in wanted:
                    series[node].append(_sample(each))
        return {
            node: readings_of(series[node], through_prometheus=True) if node in series else None
            for node in nodes
        }

    async def _query(self, name: str) -> list[dict[str, Any]] | None:
        limit = aiohttp.ClientTimeout(total=4 * FETCH_SECONDS)
        try:
            async with self._session.get(
                f"{self._url}/api/v1/query", params={"query": name}, timeout=limit
            ) as answer:
                body = json.loads(await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
        if not isinstance(body, dict) or body.get("status") != "success":
            return None
        found: list[dict[str, Any]] = (body.get("data") or {}).get("result") or []
        return found


def node_of(labels: Mapping[str, str]) -> str:
    """The node that a series is about: by the exporter's host label, else by usual target labels."""
    for name in (
        "Hostname",
        "hostname",
        "exported_hostname",
        "node",
        "kubernetes_node",
        "nodename",
    ):
        if labels.get(name):
            return labels[name]
    return labels.get("instance", "").partition(":")[0]


def _sample(series: Mapping[str, Any]) -> Sample:
    """Values come as text, perhaps NaN (which compares as nothing and is dropped by the reader)."""
    labels = {name: str(value) for name, value in series["metric"].items() if name != "__name__"}
    return Sample(str(series["metric"]["__name__"]), labels, float(series["value"][1]))
