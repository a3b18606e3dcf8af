"""`manage.py simulate_cluster`: runs the simulated Kubernetes cluster alone. A thin door."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduler.simcluster.door import add_arguments, run
from scheduler.simcluster.profiles.model import ProfileError


class Command(BaseCommand):
    """Serves until it is told to stop; prints the path of a kubeconfig when it answers."""

    help = "Runs a simulated Kubernetes cluster and prints the path of a kubeconfig for it."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The options of the simulated cluster."""
        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs until SIGINT or SIGTERM."""
        try:
            run(argparse.Namespace(**options), self._say)
        except ProfileError as error:
            raise CommandError(str(error)) from None

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
