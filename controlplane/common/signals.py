"""Run a coroutine until a signal asks the process to stop. Called by the commands that live in an event loop."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, cancelled by SIGTERM or SIGINT; raises what it raises."""
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()
