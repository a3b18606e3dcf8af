"""The pulse: the thread in which every cluster's loop ticks, each second and whenever the log grows.

Started and stopped by `scheduler.pacemaker`. It outlives a database that is away: what was warm is thrown away
and read again when the database is back.
"""

import gc
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import DatabaseError, connection
from django.utils import timezone

from controlplane.common.alive import sign_of_life
from controlplane.common.follow import LogFollower
from queues.models import Cluster
from scheduler.loop import bell
from scheduler.loop.cycle import ClusterLoop, Tick

logger = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
LIST_CLUSTERS_AFTER = timedelta(seconds=10)
RETRY_SECONDS = 0.5
STOP_SECONDS = 10.0
# A cycle longer than this is followed by a rest as long as itself, so that planning takes half a core at most; not
# while starts are left that nothing but time kept from being committed, nor after a tick without a cycle.
LONG_CYCLE_SECONDS = 0.1
LONGEST_REST_SECONDS = 1.0
# A cycle that started nothing is followed by so long a rest: of a burst of events one reading is enough.
GATHER_SECONDS = 0.15


def worker_name() -> str:
    """Unique among all workers, and says where to look."""
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


@dataclass(slots=True)
class Pulse:
    """Runs in a thread of its own between `start` and `stop`.

    freeze: leave all that the first cycles have built out of later garbage collections, which would stop warm plans
    for as long as a plan takes; for a process that does nothing else.
    """

    holder: str = field(default_factory=worker_name)
    clock: Callable[[], datetime] = timezone.now
    freeze: bool = False
    _follower: LogFollower = field(default_factory=LogFollower)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _loops: dict[int, ClusterLoop] = field(default_factory=dict)
    _listed_at: datetime | None = None

    def start(self) -> None:
        """Begin to beat."""
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        bell.listen(self._follower.interrupt)
        self._thread.start()

    def stop(self) -> None:
        """End the running cycle's transaction, give the leases back, and return when that is done."""
        self._stopping.set()
        bell.leave(self._follower.interrupt)
        self._follower.interrupt()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            sign_of_life("pulse")
            try:
                self.beat(self.clock())
            except DatabaseError as error:
                logger.warning("the database is away: %s", error)
                self._start_over()
            except Exception:  # the thread must not die, whatever a cycle has met
                logger.exception("a cycle failed")
                self._start_over()
            else:
                self._follower.wait(0 if self._wants_more() else BEAT_SECONDS)
        self._give_up()

    def beat(self, now: datetime) -> None:
        """Tick every cluster's loop once."""
        self._list_clusters(now)
        took = 0.0
        for loop in self._loops.values():
            if self._stopping.is_set():
                return
            began = time.monotonic()
            if loop.tick(now) is Tick.CYCLED:
                took += time.monotonic() - began
        if self.freeze and took:
            self.freeze = False
            gc.collect()
            gc.freeze()
        self._stopping.wait(self._rest(took))

    def _rest(self, took: float) -> float:
        """Seconds without listening after cycles that took so long."""
        if not took or self._wants_more():
            return 0.0
        if took > LONG_CYCLE_SECONDS:
            return min(took, LONGEST_REST_SECONDS)
        return 0.0 if any(loop.has_started for loop in self._loops.values()) else GATHER_SECONDS

    def _wants_more(self) -> bool:
        return any(loop.wants_more for loop in self._loops.values())

    def _list_clusters(self, now: datetime) -> None:
        if self._listed_at is not None and now - self._listed_at < LIST_CLUSTERS_AFTER:
            return
        found = dict(Cluster.objects.values_list("pk", "name"))
        for cluster_id in self._loops.keys() - found.keys():
            del self._loops[cluster_id]
        for cluster_id, name in found.items():
            if cluster_id not in self._loops:
                self._loops[cluster_id] = ClusterLoop(cluster_id, name, self.holder)
        self._listed_at = now

    def _start_over(self) -> None:
        for loop in self._loops.values():
            loop.forget()
        self._listed_at = None
        connection.close()
        self._stopping.wait(RETRY_SECONDS)

    def _give_up(self) -> None:
        try:
            for loop in self._loops.values():
                loop.stop()
        except DatabaseError as error:
            logger.warning("the lease runs out by itself: %s", error)
        finally:
            self._follower.close()
            connection.close()
