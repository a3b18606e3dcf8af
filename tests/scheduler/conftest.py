"""What tests of the scheduler share: a what-if process in a thread."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web

from scheduler.whatif.server import Whatif
from tests.services.session import free_port


@pytest.fixture
def whatif(transactional_db: None, settings) -> Iterator[Whatif]:
    """The what-if process at WHATIF_URL, reading the test's database."""
    port = free_port()
    settings.WHATIF_URL = f"http://127.0.0.1:{port}"
    settings.WHATIF_TIMEOUT_SECONDS = 10.0
    process = Whatif(deadline_seconds=9.0)
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(process.app())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(runner.setup(), loop).result(10)
    site = asyncio.run_coroutine_threadsafe(_listen(runner, port), loop)
    site.result(10)
    yield process
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


async def _listen(runner: web.AppRunner, port: int) -> None:
    await web.TCPSite(runner, "127.0.0.1", port).start()
