"""The Celery application. Nothing but wiring: what tasks do lives in each app's `tasks.py`."""

import os

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

# The transport that Kombu ships takes messages that are half written, and ends the worker with them.
TRANSPORT_ALIASES["filesystem"] = "controlplane.files_broker:Transport"

app = Celery("muster")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# By name: it is loaded by the worker alone, once Django is set up.
app.steps["worker"].add("scheduler.pacemaker:Pacemaker")
app.steps["worker"].add("scheduler.postman:Postman")
