"""Migrations go back and forth without losing what people have entered."""

import os
import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.apps.registry import Apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
ROOT = Path(__file__).resolve().parents[2]
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
INDEXES = "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ?"
OURS = ("common", "tenants", "queues", "scheduler")


@pytest.fixture
def migrated(transactional_db: None, settings: Any) -> None:
    """Tests make tables without migrations: here they are known again, and recorded as made."""
    settings.MIGRATION_MODULES = {}
    call_command("migrate", fake=True, interactive=False, verbosity=0)


def _migrate(*targets: tuple[str, str | None]) -> Apps:
    """Take the database to `targets` and return the models as they are there."""
    executor = MigrationExecutor(connection)
    executor.migrate(list(targets))
    reached = [(app, name) for app, name in targets if name is not None]
    return executor.loader.project_state(reached).apps


def _latest() -> list[tuple[str, str | None]]:
    return [
        node for node in MigrationExecutor(connection).loader.graph.leaf_nodes() if node[0] in OURS
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("migrated")
def test_going_back_to_the_first_tables_and_forth_again_keeps_flavors_quotas_and_jobs():
    newest = _latest()
    try:
        old = _migrate(("queues", "0002_initial"))
        _enter(old)
        new = _migrate(*newest)
        flavor = new.get_model("queues", "Flavor").objects.get(name="h100")
        quota = new.get_model("queues", "Quota").objects.get(flavor=flavor)
        job = new.get_model("queues", "Job").objects.get()
        assert (flavor.gpus_per_node, quota.nominal, quota.outside) == (0, 64, 0)
        assert (job.name, job.phase, job.refused_message) == ("train", "pending", "")
        again = _migrate(("queues", "0002_initial"))
        assert again.get_model("queues", "Job").objects.get().name == "train"
        assert again.get_model("queues", "Quota").objects.get().nominal == 64
    finally:
        _migrate(*newest)


@pytest.mark.slow
@pytest.mark.usefixtures("migrated")
def test_every_migration_of_ours_can_be_taken_back_and_made_again():
    newest = _latest()
    try:
        _migrate(*((app, None) for app in reversed(OURS)))
        tables = connection.introspection.table_names()
        assert not [name for name in tables if name.startswith(tuple(f"{app}_" for app in OURS))]
    finally:
        _migrate(*MigrationExecutor(connection).loader.graph.leaf_nodes())
    assert "queues_job" in connection.introspection.table_names()
    assert newest == _latest()


@pytest.mark.slow
def test_tables_made_at_once_are_those_that_the_migrations_make(tmp_path: Path) -> None:
    """The demo's first start, and every test, make them from the models."""
    one_by_one = _made_by(tmp_path / "migrated", "migrate", "--verbosity", "0")
    at_once = _made_by(tmp_path / "at-once", "prepare_demo", "--logins", str(tmp_path / "logins"))
    assert at_once == one_by_one
    assert "queues_job" in at_once


def _made_by(folder: Path, *command: str) -> dict[str, Any]:
    """Columns, indexes and checks of each table, and the migrations that are recorded."""
    folder.mkdir()
    environment = os.environ | {
        "VAR": str(folder),
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    }
    environment.pop("DATABASE_URL", None)
    subprocess.run([sys.executable, "manage.py", *command], cwd=ROOT, env=environment, check=True)
    with sqlite3.connect(folder / "muster.sqlite3") as database:
        tables = [name for (name,) in database.execute(TABLES)]
        made: dict[str, Any] = {name: _table(database, name) for name in tables}
        recorded = database.execute("SELECT app, name FROM django_migrations")
        return made | {"migrations": sorted(recorded.fetchall())}


def _table(database: sqlite3.Connection, name: str) -> dict[str, Any]:
    """Without the order of columns, which follows the order of migrations."""
    columns = database.execute(f'PRAGMA table_info("{name}")').fetchall()
    indexes = database.execute(INDEXES, (name,)).fetchall()
    (definition,) = database.execute(
        "SELECT sql FROM sqlite_master WHERE name = ?", (name,)
    ).fetchone()
    body = definition[definition.index("(") + 1 : definition.rindex(")")]
    return {
        "columns": sorted(column[1:] for column in columns),
        "indexes": sorted(sql for (sql,) in indexes if sql),
        "parts": sorted(re.split(r", (?=\"|CONSTRAINT)", body)),
    }


def _enter(apps: Apps) -> None:
    """A tenant with quota and one waiting job, as the first tables hold them."""
    tenant = apps.get_model("tenants", "Tenant").objects.create(
        slug="research", name="Research", created_at=NOW
    )
    user = apps.get_model("tenants", "User").objects.create(username="ravi")
    cluster = apps.get_model("queues", "Cluster").objects.create(name="demo", created_at=NOW)
    flavor = apps.get_model("queues", "Flavor").objects.create(
        cluster=cluster, name="h100", resource_name="nvidia.com/gpu", model="NVIDIA-H100-80GB-HBM3"
    )
    apps.get_model("queues", "Quota").objects.create(tenant=tenant, flavor=flavor, nominal=64)
    queue = apps.get_model("queues", "Queue").objects.create(
        tenant=tenant, cluster=cluster, name="train", created_at=NOW
    )
    apps.get_model("queues", "Job").objects.create(
        id="job_01J00000000000000000000000",
        job8="j00000000",
        tenant=tenant,
        queue=queue,
        user=user,
        name="train",
        submitted_at=NOW,
    )
