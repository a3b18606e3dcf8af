"""Kombu's filesystem transport, without its races: the broker of the demo, which needs no server.

As shipped, a message can be taken while it is being written, and a queue's table read while it is being made: the
worker then ends with a JSON error, and the loop in it. Here a message appears whole, and a table that is not there
yet is looked at again. `controlplane.celery` registers it under the same name.
"""

import os
import time
import uuid
from pathlib import Path
from typing import Any

from kombu.transport import filesystem
from kombu.utils.encoding import str_to_bytes
from kombu.utils.json import dumps

TRIES = 10
PAUSE_SECONDS = 0.02


class Channel(filesystem.Channel):
    """A channel whose messages are renamed into place."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for folder in (self.data_folder_in, self.data_folder_out, self.control_folder):
            Path(folder).mkdir(parents=True, exist_ok=True)

    def _put(  # type: ignore[override]  # Kombu names the argument in two ways
        self, queue: str, message: Any, **kwargs: Any
    ) -> None:
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}"
        folder = Path(self.data_folder_out)
        unseen = folder / f"{name}.part"
        unseen.write_bytes(str_to_bytes(dumps(message)))
        os.replace(unseen, folder / f"{name}.{queue}.msg")

    def get_table(self, exchange: str) -> Any:
        """The queues bound to an exchange."""
        return _patiently(lambda: super(Channel, self).get_table(exchange))

    def _queue_bind(self, *args: Any) -> None:
        _patiently(lambda: super(Channel, self)._queue_bind(*args))


def _patiently(look: Any) -> Any:
    """Look again while somebody else is writing what is read (an empty file is no JSON)."""
    for _try in range(TRIES):
        try:
            return look()
        except ValueError:
            time.sleep(PAUSE_SECONDS)
    return look()


class Transport(filesystem.Transport):
    """The filesystem transport with that channel."""

    Channel = Channel
