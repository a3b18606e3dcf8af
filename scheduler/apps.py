"""Django's entry for the app `scheduler`."""

from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    """WHAT EXISTS AND IS DECIDED: nodes, seats, leases, plans, wanted state."""

    name = "scheduler"

    def ready(self) -> None:
        """Plug the planner into `queues` and the alerts' number into the rail: neither may import this app."""
        from controlplane.common.metrics import installation  # noqa: PLC0415
        from queues.services.planner import register  # noqa: PLC0415  models are not there before
        from scheduler.selectors.alerts import open_alerts  # noqa: PLC0415
        from scheduler.selectors.telemetry import Installation  # noqa: PLC0415
        from scheduler.services.whatif import RemotePlanner  # noqa: PLC0415
        from tenants.views.shell import badges  # noqa: PLC0415

        register(RemotePlanner())
        installation.register(Installation())
        badges["alerts"] = open_alerts
