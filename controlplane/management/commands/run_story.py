"""`manage.py run_story`: jobs arrive by themselves. Started by controlplane.demo unless DEMO_LOAD=0."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from controlplane.demo.story import tell


class Command(BaseCommand):
    """Runs until it is stopped."""

    help = "Submit jobs as the demo's users, without end."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """--seed N: the same seed tells the same story."""
        parser.add_argument("--seed", type=int, default=1)

    def handle(self, *args: Any, **options: Any) -> None:
        """Tell the story."""
        self.stdout.write(f"seed {options['seed']}")
        tell(options["seed"])
