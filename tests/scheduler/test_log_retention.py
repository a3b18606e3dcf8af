"""Logs go as many days after their attempt's end as the tenant says, and not before."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from queues.models import Attempt, Job
from scheduler.logstore import LogKey, LogStore
from scheduler.services.log_retention import prune_logs
from scheduler.tasks import prune_old_logs
from tenants.models import Tenant
from tests.scheduler import rows
from tests.scheduler.rows import NOW, World

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def ago(days: float) -> datetime:
    """So many days before NOW."""
    return NOW - timedelta(days=days)


@pytest.fixture
def world() -> World:
    return rows.make_world(1)


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return LogStore(tmp_path)


def kept(store: LogStore, key: LogKey, written: datetime) -> LogKey:
    """A log that was last written then."""
    store.write(key, b"step 1\n")
    os.utime(store.path(key).parent, (written.timestamp(),) * 2)
    return key


def log_of(
    world: World, store: LogStore, job: Job, number: int, days: float, ended: datetime | None
) -> LogKey:
    """The log of an attempt, written so many days ago."""
    Attempt.objects.create(
        job=job,
        number=number,
        cluster=world.cluster,
        flavor=world.flavor,
        placed_at=ago(100),
        ended_at=ended,
        ended_by="failed" if ended else "",
    )
    key = LogKey(job.tenant.slug, job.pk, number, "main", 0)
    return kept(store, key, ago(days))


def test_logs_go_with_the_tenants_days_after_the_attempt(world: World, store: LogStore) -> None:
    Tenant.objects.filter(slug="vision").update(log_retention_days=60)
    job, other = rows.add_job(world), rows.add_job(world, "vision")
    old = log_of(world, store, job, 1, 20, ago(20))
    recent = log_of(world, store, job, 2, 20, ago(13))
    going_on = log_of(world, store, job, 3, 20, None)
    longer = log_of(world, store, other, 1, 20, ago(20))
    assert prune_logs(store, NOW) == 1
    assert [store.exists(key) for key in (old, recent, going_on, longer)] == [
        False,
        True,
        True,
        True,
    ]
    assert prune_logs(store, NOW) == 0


def test_logs_without_a_row_go_by_when_they_were_written(world: World, store: LogStore) -> None:
    old = kept(store, LogKey("research", "job_gone", 1, "main", 0), ago(15))
    fresh = kept(store, LogKey("research", "job_new", 1, "main", 0), ago(1))
    assert prune_logs(store, NOW) == 1
    assert (store.exists(old), store.exists(fresh)) == (False, True)
    # Nothing is left of a job whose logs have all gone.
    assert not store.path(old).parent.parent.exists()


def test_run_stops_when_its_time_is_over(world: World, store: LogStore) -> None:
    key = kept(store, LogKey("research", "job_gone", 1, "main", 0), ago(15))
    assert prune_logs(store, NOW, has_time=lambda: False) == 0
    assert store.exists(key)


def test_task_prunes_the_log_store(world: World, store: LogStore, settings) -> None:
    settings.LOG_STORE = store.root
    key = kept(store, LogKey("research", "job_gone", 1, "main", 0), ago(4000))
    assert prune_old_logs() == 1
    assert not store.exists(key)


def test_retention_does_not_run_in_the_schedulers_worker(settings) -> None:
    task = settings.CELERY_BEAT_SCHEDULE["prune-logs"]["task"]
    assert task == prune_old_logs.name
    assert task not in settings.CELERY_TASK_ROUTES
