"""Django's entry for the app `scheduler`."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    """WHAT EXISTS AND IS DECIDED: nodes, seats, leases, plans, wanted state."""

    name = "scheduler"
