"""Django's entry for the app `queues`."""

from django.apps import AppConfig


class QueuesConfig(AppConfig):
    """WHAT IS ASKED AND ALLOWED: catalogue, quotas, queues, jobs."""

    name = "queues"
