"""The postman: a bootstep that sends the outbox from the Celery worker, broker or not (rule 2).

Added to the worker in controlplane/celery.py. It belongs to workers that take the queue `general`, and starts before
the consumer, which blocks for as long as the broker is away. It wakes with the log and looks once a second at most;
in between it judges what Muster alerts of itself.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from celery import bootsteps
from django.db import DatabaseError, connection
from django.utils import timezone

from controlplane.common.alive import sign_of_life
from controlplane.common.follow import LogFollower
from scheduler.services.alerts import wake_silenced
from scheduler.services.platform_alerts import judge_platform
from tenants.services.delivery import deliver_due

logger = logging.getLogger(__name__)

QUEUE = "general"
ROUND_SECONDS = 1.0
# Retries fall due without an event.
IDLE_SECONDS = 5.0
JUDGE_SECONDS = 10.0
STOP_SECONDS = 15.0


@dataclass(slots=True)
class Rounds:
    """Runs in a thread of its own between `start` and `stop`."""

    clock: Callable[[], datetime] = timezone.now
    _follower: LogFollower = field(default_factory=LogFollower)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _judged: float = float("-inf")

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="postman", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the running round."""
        self._stopping.set()
        self._follower.interrupt()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def one_round(self, now: datetime) -> None:
        """Send what is due; now and then judge."""
        deliver_due(now)
        if time.monotonic() - self._judged >= JUDGE_SECONDS:
            self._judged = time.monotonic()
            wake_silenced(now)
            judge_platform(now)

    def _run(self) -> None:
        while not self._stopping.is_set():
            sign_of_life("postman")
            try:
                self.one_round(self.clock())
            except DatabaseError as error:
                logger.warning("the database is away: %s", error)
                connection.close()
            except Exception:  # the thread must not die, whatever a message contains
                logger.exception("a round of the postman failed")
                connection.close()
            self._stopping.wait(ROUND_SECONDS)
            self._follower.wait(IDLE_SECONDS)
        self._follower.close()
        connection.close()


class Postman(bootsteps.StartStopStep):
    """Starts the rounds with the worker and stops them with the worker."""

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self.rounds = Rounds()

    def include_if(self, worker: Any) -> bool:
        """Only where the queue `general` is consumed."""
        return QUEUE in worker.app.amqp.queues.consume_from

    def start(self, worker: Any) -> None:
        """Begin the rounds."""
        self.rounds.start()

    def stop(self, worker: Any) -> None:
        """End them."""
        self.rounds.stop()

    def terminate(self, worker: Any) -> None:
        """A cold shutdown takes the same way."""
        self.rounds.stop()
