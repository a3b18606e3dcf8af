"""`manage.py run_health --cluster NAME`: the process that scrapes one cluster's GPU metrics and judges them."""

from __future__ import annotations

import asyncio
import os
from argparse import ArgumentParser
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from typing import Any

import aiohttp
from django.core.management.base import BaseCommand, CommandError

from controlplane.common.signals import until_stopped
from queues.models import Cluster, Placement
from scheduler.kube.connection import Connection
from scheduler.kube.credentials import Credentials, CredentialsError
from scheduler.kube.errors import KubeError
from scheduler.kube.pods import LogRange, read_log
from scheduler.management.arguments import add_cluster_arguments, cluster_of, credentials_of
from scheduler.models import HealthPolicy
from scheduler.scraping.fetching import (
    THROUGH_API_SERVER,
    Addresses,
    Discovered,
    Prometheus,
    Source,
    direct,
    through_api_server,
)
from scheduler.scraping.process import HealthProcess, LastLines
from scheduler.services.health.scene import policy_of
from scheduler.services.health.work import LogTimes

LOGS_IN_FLIGHT = 8
# Less of the machine than those who start jobs: a scrape can wait for a moment.
NICENESS = 5


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT."""

    help = "Scrape the GPU metrics of one cluster and judge them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which cluster, and where its metrics are."""
        add_cluster_arguments(parser)
        parser.add_argument(
            "--exporter-url",
            default=os.environ.get("EXPORTER_URL", ""),
            help="where exporters are: {node} and {address} are filled in; `apiserver`: through the API server's "
            "node proxy (default: the cluster's health policy, else exporter pods found by the API)",
        )
        parser.add_argument(
            "--prometheus-url",
            default=os.environ.get("PROMETHEUS_URL", ""),
            help="a Prometheus server to ask instead (default: the cluster's health policy)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Read policy and credentials, then run."""
        cluster = cluster_of(options)
        policy = policy_of(cluster)
        policy.exporter_url = options["exporter_url"] or policy.exporter_url
        policy.prometheus_url = options["prometheus_url"] or policy.prometheus_url
        try:
            credentials = credentials_of(options)
        except CredentialsError as error:
            credentials = None
            if not policy.prometheus_url and "{" not in policy.exporter_url:
                raise CommandError(f"exporters cannot be found: {error}") from error
        os.nice(NICENESS)
        asyncio.run(run_until_stopped(cluster, policy, credentials))


async def run_until_stopped(
    cluster: Cluster, policy: HealthPolicy, credentials: Credentials | None
) -> None:
    """Run the process until a signal asks it to stop."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        kube = None
        if credentials is not None:
            kube = await stack.enter_async_context(Connection(credentials))
        addresses = Addresses(kube, policy.exporter_url)
        source = source_of(policy, session, kube, addresses)
        lines = LastLinesOfPods(kube) if kube is not None else LastLines()
        process = HealthProcess(cluster, source, refresh=addresses.refresh, last_lines=lines)
        await until_stopped(process.run())


def source_of(
    policy: HealthPolicy,
    session: aiohttp.ClientSession,
    kube: Connection | None,
    addresses: Addresses,
) -> Source:
    """Where readings come from, as the policy says."""
    if policy.prometheus_url:
        return Prometheus(session, policy.prometheus_url)
    if policy.exporter_url == THROUGH_API_SERVER and kube is not None:
        return through_api_server(kube)
    proxy = through_api_server(kube) if kube is not None else None
    return Discovered(direct(session, addresses.of), proxy, addresses)


class LastLinesOfPods(LastLines):
    """The last line of a pod's log bears its time."""

    def __init__(self, kube: Connection) -> None:
        self._kube = kube

    async def times(self, placements: Collection[Placement]) -> LogTimes:
        """As `LastLines.times`."""
        room = asyncio.Semaphore(LOGS_IN_FLIGHT)
        found: dict[int, datetime | None] = {}

        async def look(placement: Placement) -> None:
            namespace = f"muster-{placement.attempt.job.tenant.slug}"
            wanted = LogRange(tail_lines=1, timestamps=True)
            async with room:
                with suppress(KubeError):
                    raw = await read_log(self._kube, namespace, placement.pod_name, wanted)
                    found[placement.pk] = moment_of(raw)

        await asyncio.gather(*(look(placement) for placement in placements))
        return found


def moment_of(line: bytes) -> datetime | None:
    """The time at the head of a log line with time stamps; None for no line."""
    head = line.split(b" ", 1)[0].decode("ascii", "replace")
    seconds, _dot, fraction = head.rstrip("Z").partition(".")
    try:
        return datetime.fromisoformat(f"{seconds}.{(fraction or '0')[:6]:0<6}+00:00")
    except ValueError:
        return None
