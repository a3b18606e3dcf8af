"""Steps that every start takes before the processes run. Called by the commands `prepare_demo` and `prepare_run`."""

import hashlib
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor


class _NoMigrations(dict[str, None]):
    """As MIGRATION_MODULES: every app is one without migrations, whose tables are made from its models."""

    def __contains__(self, app: object) -> bool:
        return True

    def __missing__(self, app: str) -> None:
        return None


def migrate() -> None:
    """Bring the tables up to this code. Asking whether there is anything to do is much cheaper than doing nothing."""
    executor = MigrationExecutor(connection)
    if connection.vendor == "sqlite" and not connection.introspection.table_names():
        make_tables()
    elif executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)


def make_tables() -> None:
    """An empty database, all tables at once: the demo's first start, where each migration by itself would take a
    fraction of a second, a hundred times. A test holds that they are the tables that the migrations make."""
    kept = settings.MIGRATION_MODULES
    settings.MIGRATION_MODULES = _NoMigrations()
    try:
        call_command("migrate", run_syncdb=True, interactive=False, verbosity=0)
    finally:
        settings.MIGRATION_MODULES = kept
    call_command("migrate", fake=True, interactive=False, verbosity=0)


def collect_static() -> None:
    """Copy static files under hashed names, unless the same files were copied before: it takes seconds."""
    stamp = Path(settings.STATIC_ROOT) / ".collected"
    wanted = _fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    call_command("collectstatic", interactive=False, verbosity=0, clear=True)
    stamp.write_text(wanted)


def _fingerprint() -> str:
    """A digest of names, sizes and times of all source files."""
    digest = hashlib.sha256(settings.STORAGES["staticfiles"]["BACKEND"].encode())
    for finder in get_finders():
        for path, storage in finder.list([]):
            stat = Path(storage.path(path)).stat()
            digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
