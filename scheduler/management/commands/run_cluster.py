"""`manage.py run_cluster --cluster NAME`: the process that watches one cluster and enacts rows."""

from __future__ import annotations

import asyncio
import gc
from argparse import ArgumentParser
from typing import Any

import uvloop
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from controlplane.common.metrics import serve_metrics
from controlplane.common.signals import until_stopped
from queues.models import Cluster
from scheduler.kube.connection import Connection
from scheduler.kube.credentials import Credentials, CredentialsError
from scheduler.logstore import LogStore
from scheduler.management.arguments import add_cluster_arguments, cluster_of, credentials_of
from scheduler.reconcile.calls import metered
from scheduler.reconcile.process import ClusterProcess


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT."""

    help = "Watch one Kubernetes cluster, write what is seen into rows, and enact wanted state."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which cluster, and how it is reached."""
        add_cluster_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Read the credentials, then run."""
        cluster = cluster_of(options)
        try:
            credentials = credentials_of(options)
        except CredentialsError as error:
            raise CommandError(f"the cluster cannot be reached: {error}") from error
        calm_collector()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_until_stopped(cluster, credentials))


def calm_collector() -> None:
    """What was loaded so far lives as long as the process; pods and nodes in memory hold no circles.
    Full collections over all of them would cost more than all else."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


async def run_until_stopped(cluster: Cluster, credentials: Credentials) -> None:
    """Run the process until a signal asks it to stop."""
    serve_metrics(settings.CLUSTER_METRICS)
    async with Connection(credentials, meter=metered(cluster.name)) as connection:
        process = ClusterProcess(cluster, connection, LogStore(settings.LOG_STORE))
        await until_stopped(process.run())
