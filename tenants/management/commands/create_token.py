"""`manage.py create_token`: makes an API token and prints it, once (CONTRACT, "Commands")."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils import timezone

from controlplane.common.errors import ApplicationError
from tenants.access import SCOPES, Actor
from tenants.models import PlatformRole, Tenant, User
from tenants.services.tokens import NewToken, create_token


class Command(BaseCommand):
    """Whoever may run commands on the server may make any token; the audit trail says so."""

    help = "Print a new API token. It is shown this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """--user U [--tenant T] [--scopes S …] [--days N] [--name N]"""
        parser.add_argument("--user", required=True, help="whose rights it has")
        parser.add_argument("--tenant", help="limit it to this tenant")
        parser.add_argument(
            "--scopes", nargs="+", default=list(SCOPES), help="by default all; commas work too"
        )
        parser.add_argument("--days", type=int, help="until it expires; by default never")
        parser.add_argument("--name", default="command line")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the token alone on standard output. Errors go to standard error, status 1."""
        if User._meta.db_table not in connection.introspection.table_names():
            raise CommandError(
                "there are no tables here: are VAR and DATABASE_URL those of the running Muster?"
            )
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"there is no user {options['user']!r}")
        tenant = Tenant.objects.filter(slug=options["tenant"]).first()
        if options["tenant"] and tenant is None:
            raise CommandError(f"there is no tenant {options['tenant']!r}")
        scopes = [scope for given in options["scopes"] for scope in given.split(",") if scope]
        wanted = NewToken(user, tenant, options["name"], scopes, options["days"])
        try:
            _token, text = create_token(_commander(user), wanted, timezone.now())
        except ApplicationError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(text)


def _commander(user: User) -> Actor:
    """The command line acts with a platform admin's rights, in the name of the token's user."""
    powerful = User(pk=user.pk, username=user.username, platform_role=PlatformRole.ADMIN)
    return Actor(user=powerful, via="command")
