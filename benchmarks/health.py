"""One pass over 1,000 nodes of 8 GPUs: scraped over HTTP, read, judged, written. `python -m benchmarks health`

The exporters are one process of its own that serves a full page (511 lines, 130 KB) for every node; one in a hundred
nodes counts ECC errors and has a GPU that is too warm.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

NODES = 1000
PASSES = 4
PAGE = Path(__file__).parent.parent / "tests" / "fixtures" / "dcgm" / "dcgm_h100_node_prev.prom"

SERVER = """
import asyncio, re, sys
from aiohttp import web
sick = open(sys.argv[1]).read()
SIGNS = "DCGM_FI_DEV_ECC_|DCGM_EXP_GPU_HEALTH_STATUS|DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
well = re.sub(rf"(?m)^((?:{SIGNS}).*) \\d+$", r"\\1 0", sick)
moving = len(sys.argv) > 2
MOVING = re.compile(r"(?m)^(DCGM_FI_DEV_(?:GPU_TEMP|GPU_UTIL|MEM_COPY_UTIL|FB_USED|POWER_USAGE)[{].*[}]) .*$")
# Rendered ahead: what is measured is not this process.
variants = [
    MOVING.sub(lambda m, n=n: f"{m.group(1)} {40 + (n * 7 + hash(m.group(1))) % 40}", well) for n in range(7)
]
asked = 0
def of(node):
    global asked
    asked += 1
    page = variants[asked % 7] if moving else sick if node.endswith("00") else well
    return page.replace("gpu-h100-0022", node).replace('UUID="GPU-', f'UUID="GPU-{node}-').encode()
async def answer(request):
    return web.Response(body=of(request.match_info["node"]), content_type="text/plain")
async def main():
    app = web.Application()
    app.router.add_get("/{node}/metrics", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def results() -> Iterator[dict[str, Any]]:
    """One result a pass, the first with all GPUs new; on SQLite, or on the (empty) database of DATABASE_URL."""
    with tempfile.TemporaryDirectory() as folder, exporters() as port:
        os.environ["VAR"] = folder
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
        import django  # noqa: PLC0415  its settings are known only now
        from django.core.management import call_command  # noqa: PLC0415

        django.setup()
        call_command("migrate", verbosity=0)
        yield from _passes(port)


@contextmanager
def exporters(*, moving: bool = False) -> Iterator[int]:
    """A process that answers for every exporter; its port. moving: all are well, and their values differ each time."""
    words = [sys.executable, "-c", SERVER, str(PAGE), *(["moving"] if moving else [])]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.terminate()
        server.wait(10)


def _passes(port: int) -> Iterator[dict[str, Any]]:
    from scheduler.models import Gpu, Node  # noqa: PLC0415
    from scheduler.services.health_tick import HealthTicker  # noqa: PLC0415
    from tests.scheduler import rows  # noqa: PLC0415

    world = rows.make_world(NODES)
    names = list(Node.objects.order_by("name").values_list("name", flat=True))
    ticker = HealthTicker(world.cluster)
    now = datetime.now(UTC)
    source = _Source(port)
    for number in range(PASSES):
        began, cpu = time.perf_counter(), time.process_time()
        scrapes = asyncio.run(source.scrape(names))
        scraped = time.perf_counter() - began
        moment = now + timedelta(seconds=15 * number)
        ticker.look(scrapes, moment)
        ticker.conclude(names, {}, moment)
        took = time.perf_counter() - began
        yield {
            "pass": number + 1,
            "nodes": sum(readings is not None for readings in scrapes.values()),
            "gpus": Gpu.objects.count(),
            "scrape_and_read_s": round(scraped, 2),
            "judge_and_write_s": round(took - scraped, 2),
            "total_s": round(took, 2),
            "cpu_s": round(time.process_time() - cpu, 2),
        }


class _Source:
    """One reader for all passes, as the process has it, and a session for each: every pass has its own event loop."""

    def __init__(self, port: int) -> None:
        from scheduler.health.pages import PageReader  # noqa: PLC0415

        self.port, self.reader = port, PageReader()

    async def scrape(self, names: list[str]) -> dict[str, Any]:
        from scheduler.scraping.fetching import direct  # noqa: PLC0415

        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{self.port}/{{}}/metrics"
            source = direct(session, url.format, self.reader)
            return await source.read(names)
