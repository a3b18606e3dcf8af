"""The web process: HTTP by Django, behind the body limit, and the one websocket by Channels."""

import os
from typing import Any

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import path, re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django_application = get_asgi_application()  # sets Django up: what follows needs its models

from controlplane.common.bodies import BodyLimit, Receive, Send  # noqa: E402
from controlplane.common.live import hub, register  # noqa: E402
from queues.live import TOPICS as QUEUE_TOPICS  # noqa: E402
from scheduler.live import TOPICS as SCHEDULER_TOPICS  # noqa: E402
from tenants.consumers import LiveConsumer, Nowhere  # noqa: E402

for topic in (*QUEUE_TOPICS, *SCHEDULER_TOPICS):
    register(topic)


async def lifespan(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Start and stop of the server: at the end the hub's thread ends too."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await hub.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return


application = ProtocolTypeRouter(
    {
        "http": BodyLimit(django_application),
        "websocket": URLRouter(
            [
                path("ws/live/", LiveConsumer.as_asgi()),
                re_path(r"", Nowhere.as_asgi()),
            ]
        ),
        "lifespan": lifespan,
    }
)
