"""The leaf app: it imports no other app of the project."""

from django.apps import AppConfig


class CommonConfig(AppConfig):
    """Event log, idempotency keys, errors, what HTTP and websocket doors share."""

    name = "controlplane.common"
    label = "common"
