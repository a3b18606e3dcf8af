"""Celery's part of the loop: a nudge. Beat sends it; the pacemaker would beat a moment later anyway (rule 2)."""

from celery import shared_task

from scheduler.loop import bell


@shared_task(name="scheduler.tasks.nudge_clusters", expires=1)
def nudge_clusters() -> None:
    """Make this worker's pulse beat now."""
    bell.ring()
