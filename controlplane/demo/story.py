"""Tells the story: submits each scene through the same services as the form and the API. Run by `run_story`."""

import logging
import time
from collections.abc import Iterator

from django.db import DatabaseError
from django.utils import timezone

from controlplane.common.errors import ApplicationError
from controlplane.demo.plot import Scene, scenes
from queues.lifecycle import Phase
from queues.models import Job
from queues.services.jobs import submit_job
from queues.services.validation import validate_job
from tenants.access import Actor
from tenants.models import User

logger = logging.getLogger(__name__)

# A demo that nobody watches must not pile up jobs without end.
MOST_WAITING = 30
CROWDED_PAUSE_SECONDS = 5.0


def tell(seed: int) -> None:
    """Submit scene after scene, for as long as the process lives."""
    for scene in unhurried(scenes(seed)):
        try:
            submit(scene)
        except (ApplicationError, DatabaseError) as error:
            # A person may have closed a queue or cut a quota: the story goes on.
            logger.warning("%s was not submitted: %s", scene.job["name"], error)


def unhurried(story: Iterator[Scene]) -> Iterator[Scene]:
    """Let time pass between scenes, and more of it while many jobs wait."""
    for scene in story:
        time.sleep(scene.after_seconds)
        while Job.objects.filter(phase=Phase.PENDING).count() >= MOST_WAITING:
            time.sleep(CROWDED_PAUSE_SECONDS)
        yield scene


def submit(scene: Scene) -> Job:
    """What the API does for the user of the scene."""
    actor = Actor(user=User.objects.get(username=scene.user), via="command")
    now = timezone.now()
    return submit_job(actor, validate_job(actor, scene.job, now), now)
