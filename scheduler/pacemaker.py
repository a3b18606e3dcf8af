"""The pacemaker: a bootstep that runs the loop inside the Celery worker, broker or not (rule 4).

Added to the worker in controlplane/celery.py. It belongs to workers that take the queue `scheduler`, and starts
before the consumer, which blocks for as long as the broker is away.
"""

from typing import Any

from celery import bootsteps
from django.conf import settings

from controlplane.common.metrics import serve_metrics
from scheduler.loop.pulse import Pulse

QUEUE = "scheduler"


class Pacemaker(bootsteps.StartStopStep):
    """Starts the pulse with the worker and stops it with the worker."""

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self.pulse = Pulse(freeze=True)

    def include_if(self, worker: Any) -> bool:
        """Only where the queue `scheduler` is consumed."""
        return QUEUE in worker.app.amqp.queues.consume_from

    def start(self, worker: Any) -> None:
        """Begin to beat, and serve metrics where settings say so."""
        serve_metrics(settings.SCHEDULER_METRICS)
        self.pulse.start()

    def stop(self, worker: Any) -> None:
        """End cleanly: nothing half committed, leases given back."""
        self.pulse.stop()

    def terminate(self, worker: Any) -> None:
        """A cold shutdown takes the same way; the pulse stops within one transaction."""
        self.pulse.stop()
