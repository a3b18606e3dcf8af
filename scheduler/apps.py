"""Django's entry for the app `scheduler`."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    """WHAT EXISTS AND IS DECIDED: nodes, seats, leases, plans, wanted state."""

    name = "scheduler"

    def ready(self) -> None:
        """Plug the planner into `queues`, which may not import this app."""
        from queues.services.planner import register  # noqa: PLC0415  models are not there before
        from scheduler.services.whatif import RemotePlanner  # noqa: PLC0415

        register(RemotePlanner())
