"""`manage.py prepare_run`: tables, static files, first admin and cluster. Run at each start of `make run`."""

import json
import os
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from controlplane.installation.bootstrap import FirstAdmin, bootstrap, make_first_admin
from controlplane.installation.steps import collect_static, migrate
from queues.models import Cluster
from scheduler.kube.credentials import CredentialsError
from scheduler.kube.errors import KubeError
from tenants.models import PlatformRole, User


class Command(BaseCommand):
    """Everything here may run again: what is done already is left alone."""

    help = "Prepare database and files (used by `make run`)."
    # They would load every page and every door: seconds at each start.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """--clusters FILE: gets the names of the clusters to watch, a JSON list."""
        parser.add_argument("--clusters", type=Path, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the steps in order; a cluster that does not answer ends the start with its reason."""
        refuse_examples(os.environ)
        migrate()
        if settings.HASHED_STATIC and not settings.STATIC_IS_BUILT:
            collect_static()
        now = timezone.now()
        named = os.environ.get("ADMIN_USER", "")
        make_first_admin(FirstAdmin(named, os.environ.get("ADMIN_PASSWORD", "")), now)
        if os.environ.get("BOOTSTRAP", "1") != "0":
            try:
                bootstrap(named or first_admin_name(), kubeconfig(), now)
            except (CredentialsError, KubeError) as error:
                raise CommandError(f"The cluster cannot be read: {error}") from error
        names = list(Cluster.objects.order_by("name").values_list("name", flat=True))
        options["clusters"].write_text(json.dumps(names))


def refuse_examples(environment: Mapping[str, str]) -> None:
    """Raise CommandError where a secret is still the word of the example in deploy/kustomization.yaml."""
    secrets = ("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "FIELD_KEY", "ADMIN_PASSWORD")
    examples = [name for name in secrets if "change-me" in environment.get(name, "")]
    if examples:
        raise CommandError(f"Set {', '.join(examples)}: docs/operations.md says how.")


def first_admin_name() -> str:
    """The longest-standing platform admin, empty where there is none."""
    admins = User.objects.filter(platform_role=PlatformRole.ADMIN, is_active=True).order_by("pk")
    return admins.values_list("username", flat=True).first() or ""


def kubeconfig() -> Path | None:
    """KUBECONFIG, the user's own file, or None: the service account of the pod we run in."""
    named = os.environ.get("KUBECONFIG")
    if named:
        return Path(named)
    own = Path.home() / ".kube" / "config"
    return own if own.exists() and "KUBERNETES_SERVICE_HOST" not in os.environ else None
