"""The web process: HTTP by Django, behind the body limit and the long poll, and the one websocket by Channels."""

import os
from typing import Any

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from django.urls import path, re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup(set_prefix=False)  # what follows needs its models

from controlplane.common.bodies import BodyLimit, Receive, Send  # noqa: E402
from controlplane.common.handler import Handler  # noqa: E402
from controlplane.common.live import hub, register  # noqa: E402
from controlplane.common.longpoll import LongPoll  # noqa: E402
from queues.live import TOPICS as QUEUE_TOPICS  # noqa: E402
from scheduler.live import TOPICS as SCHEDULER_TOPICS  # noqa: E402
from tenants.consumers import LiveConsumer, Nowhere  # noqa: E402

for topic in (*QUEUE_TOPICS, *SCHEDULER_TOPICS):
    register(topic)


handler = Handler()


async def lifespan(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Start and stop of the server: at the end the hub's thread ends too."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await hub.stop()
            await handler.close()
            await send({"type": "lifespan.shutdown.complete"})
            return


application = ProtocolTypeRouter(
    {
        "http": BodyLimit(LongPoll(handler)),
        "websocket": URLRouter(
            [
                path("ws/live/", LiveConsumer.as_asgi()),
                re_path(r"", Nowhere.as_asgi()),
            ]
        ),
        "lifespan": lifespan,
    }
)
