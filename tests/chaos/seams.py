"""Where a run takes hold of the product: the database's own clock, chance, the log's bell, the steps of a cycle, the
broker that is not there, and what is logged as an error."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from django.db.models import DateTimeField, Value
from redis.exceptions import ConnectionError as RedisIsGone
from ulid import ULID

from controlplane.common import log
from scheduler.apply.plan import Applied, apply_plan
from scheduler.core.invariants import check_plan
from scheduler.core.planner import plan
from scheduler.loop import cycle
from scheduler.simcluster import clock as simclock
from tests.chaos.cast import Backstage, Paused
from tests.chaos.hospital import health_of_nodes, latest_placement

if TYPE_CHECKING:
    from tests.chaos.run import Play


@contextlib.contextmanager
def patched(play: "Play") -> Iterator[None]:
    """Seams: the database's own clock, chance, the log's bell, and the steps of a cycle."""
    points, stage = play.points, play.stage
    ids = Random(f"ids-{play.plot.seed}")
    append = log._append

    def new_job_ids(now: datetime, count: int) -> Iterator[str]:
        for _ in range(count):
            stamp = int(now.timestamp() * 1000) << 80
            yield f"job_{ULID.from_int(stamp | ids.getrandbits(80))}"

    def planning(snapshot: Any, options: Any, memo: Any) -> Any:
        points.pass_("worker.plan")
        made = plan(snapshot, options, memo)
        stage.complaints += [f"unsound plan: {text}" for text in check_plan(snapshot, made)]
        return made

    def applied_and_noted(*arguments: Any, **named: Any) -> Applied:
        if not play.plot.health:
            return apply_plan(*arguments, **named)
        before, latest = health_of_nodes(), latest_placement()
        applied = apply_plan(*arguments, **named)
        play.doctor.note_starts(before, latest)
        return applied

    def applying(*arguments: Any, **named: Any) -> Applied:
        if points.strikes("worker.pause"):
            raise Paused(lambda: applied_and_noted(*arguments, **named))
        points.pass_("worker.commit.before")
        applied = applied_and_noted(*arguments, **named)
        points.pass_("worker.commit.after")
        return applied

    def appending(events: list[log.NewEvent]) -> None:
        append(events)
        asyncio.get_running_loop().call_soon(stage.ring)

    def no_broker(*_arguments: Any, **_named: Any) -> None:
        raise RedisIsGone("Redis is away for the whole of every run")

    with (
        patch("redis.connection.AbstractConnection.connect", no_broker),
        patch("queues.services.submission.new_job_ids", new_job_ids),
        patch("scheduler.loop.lease.Now", lambda: Value(play.clock(), DateTimeField())),
        patch.object(cycle, "plan", planning),
        patch.object(cycle, "apply_plan", applying),
        patch.object(log, "_append", appending),
        patch.object(simclock, "MAX_RUN_SECONDS", float("inf")),
    ):
        yield


class _Ear(logging.Handler):
    """Errors in the product's log are defects: nothing of a run may bring them out."""

    def __init__(self, stage: Backstage) -> None:
        super().__init__(logging.ERROR)
        self._stage = stage

    def emit(self, record: logging.LogRecord) -> None:
        told = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            told += f": {record.exc_info[1]!r}"
        self._stage.complaints.append(f"error in the log of {record.name}: {told}")


@contextlib.contextmanager
def complaints(stage: Backstage) -> Iterator[None]:
    """Hear what the product logs as an error."""
    ear, loud = _Ear(stage), logging.getLogger("scheduler")
    loud.addHandler(ear)
    try:
        yield
    finally:
        loud.removeHandler(ear)
