"""`manage.py prepare_demo`: tables, static files and first rows of the demo. Run by controlplane.demo at each start."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from controlplane.demo.seed import seed
from controlplane.installation.steps import collect_static, migrate


class Command(BaseCommand):
    """Everything here may run again: what is done already is left alone."""

    help = "Prepare the demo's database and files (used by `make demo`)."
    # They would load every page and every door: seconds at each start.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """--logins FILE: where accounts and tokens are kept between starts."""
        parser.add_argument("--logins", type=Path, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the steps in order."""
        migrate()
        collect_static()
        seed(options["logins"], timezone.now())
