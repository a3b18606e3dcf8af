"""The leaf app: it imports no other app of the project."""

from django.apps import AppConfig
from django.db.backends.signals import connection_created

from controlplane.common.timing import watch_connection


class CommonConfig(AppConfig):
    """Event log, idempotency keys, errors, what HTTP and websocket doors share."""

    name = "controlplane.common"
    label = "common"

    def ready(self) -> None:
        """Have every database connection measured."""
        connection_created.connect(watch_connection, dispatch_uid="muster-timing")
