"""Signs of life of processes that have no door of their own: VAR/alive/NAME is touched, `deploy/alive.sh` looks.

Called once a round by the pulse, the postman, the cluster and the health process: a round that hangs shows.
"""

import time
from pathlib import Path

from django.conf import settings

EVERY_SECONDS = 5.0
_touched: dict[str, float] = {}


def sign_of_life(name: str) -> None:
    """Touch the file, every five seconds at most. A full or missing disk ends no round."""
    now = time.monotonic()
    if now - _touched.get(name, float("-inf")) < EVERY_SECONDS:
        return
    _touched[name] = now
    try:
        folder = Path(settings.VAR) / "alive"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    except OSError:
        return
