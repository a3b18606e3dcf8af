"""Which cluster a process is for and how it is reached: arguments of `run_cluster` and `run_health`."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from queues.models import Cluster
from scheduler.kube.credentials import Credentials, load_credentials


def add_cluster_arguments(parser: ArgumentParser) -> None:
    """--cluster, --kubeconfig, --context."""
    parser.add_argument("--cluster", required=True, help="the cluster's name in Muster")
    parser.add_argument(
        "--kubeconfig",
        default=os.environ.get("KUBECONFIG") or None,
        help="a kubeconfig file (default: $KUBECONFIG, ~/.kube/config, else the pod's service account)",
    )
    parser.add_argument("--context", default=None, help="the kubeconfig's context")


def cluster_of(options: Mapping[str, Any]) -> Cluster:
    """The cluster that is named. Raises CommandError where there is none."""
    cluster = Cluster.objects.filter(name=options["cluster"]).first()
    if cluster is None:
        raise CommandError(f"there is no cluster named {options['cluster']!r}")
    return cluster


def credentials_of(options: Mapping[str, Any]) -> Credentials:
    """How its API server is reached. Raises CredentialsError."""
    kubeconfig = Path(options["kubeconfig"]) if options["kubeconfig"] else None
    return load_credentials(kubeconfig, options["context"])
