"""The simulate endpoint over HTTP, 1,024 nodes and 10,000 waiting jobs, while pages are kept live.

`python -m benchmarks simulate`: PostgreSQL, Redis and `make run` beside a simulated cluster that is full. One client
asks over and over what would become of jobs of many shapes; another holds and releases waiting jobs all the while,
and an open page's socket says when it was told.
"""

import asyncio
import json
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from benchmarks.installation import Production, production
from tests.e2e.api import Api, job
from tests.e2e.production import ADMIN, ADMIN_PASSWORD
from tests.e2e.stack import wait_until

NODES = 1_024
WAITING = 10_000
SHAPES = 100
BATCH = 500
ASKS = 200
PAUSE_SECONDS = 0.1
CHANGE_SECONDS = 0.5
SEED = 20_261_129
MOST_ASK_SECONDS = 0.5
MOST_PUSH_SECONDS = 2.0
REASONS_SECONDS = 180.0
LONG = {"run_seconds": 36_000, "max_runtime_seconds": 36_000}


def results() -> Iterator[dict[str, Any]]:
    """One result: how long answers and pushes took, in seconds, and processor seconds by process meanwhile."""
    with tempfile.TemporaryDirectory() as folder, production(Path(folder), NODES) as running:
        fill(running)
        used = running.cpu_seconds()
        began = time.monotonic()
        asked, pushed = measured(running.installation.api, running.installation.url)
        took = time.monotonic() - began
        cpu = {
            name: seconds - used.get(name, 0.0) for name, seconds in running.cpu_seconds().items()
        }
    yield {
        "nodes": NODES,
        "waiting": WAITING,
        "asks": len(asked.seconds),
        "ask_p50_s": quantile(asked.seconds, 0.5),
        "ask_p95_s": quantile(asked.seconds, 0.95),
        "ask_inside_web_p50_s": quantile(asked.inside, 0.5),
        "ask_max_s": quantile(asked.seconds, 1.0),
        "answers": dict(asked.answers),
        "changes": len(pushed),
        "push_p50_s": quantile(pushed, 0.5),
        "push_p95_s": quantile(pushed, 0.95),
        "push_max_s": quantile(pushed, 1.0),
        "kept": quantile(asked.seconds, 0.95) <= MOST_ASK_SECONDS
        and quantile(pushed, 0.95) <= MOST_PUSH_SECONDS,
        "seconds": round(took, 1),
        "cores": {name: round(s / took, 2) for name, s in sorted(cpu.items()) if s / took >= 0.01},
    }


def quantile(seconds: list[float], share: float) -> float:
    """The least value that so large a share does not exceed."""
    ordered = sorted(seconds)
    return round(ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)], 3)


def ask(**fields: Any) -> dict[str, Any]:
    """A job of the installation's own tenant."""
    return job(**{"tenant": "default", "queue": "default", "name": "bench"} | LONG | fields)


def fill(running: Production) -> None:
    """Gangs on every node, and a line behind them; each has its reason when this returns."""
    api = running.installation.api
    in_batches(api, [ask(replicas=8) for _ in range(NODES // 8)])
    wait_until(lambda: count(running, "phase = 'running'") == NODES // 8, REASONS_SECONDS)
    shapes = [shape(number) for number in range(SHAPES)]
    in_batches(api, [ask(**shapes[number % SHAPES]) for number in range(WAITING)])
    waits = "phase = 'pending' AND reason_code NOT IN ('', 'not_yet_considered')"
    wait_until(lambda: count(running, waits) == WAITING, REASONS_SECONDS)


def shape(number: int) -> dict[str, Any]:
    """1 to 10 replicas, with and without a required leaf; priorities tell the rest apart."""
    replicas = 1 + number % 10
    level = {"level": "leaf", "mode": "required" if number % 3 == 0 else "preferred"}
    return {"replicas": replicas, "priority": 400 + number % 100, "topology": level}


def in_batches(api: Api, bodies: list[dict[str, Any]]) -> None:
    """Submit all."""
    for start in range(0, len(bodies), BATCH):
        api.submit_many(bodies[start : start + BATCH])


def count(running: Production, condition: str) -> int:
    """Jobs for which the condition holds."""
    found = running.installation.rows(f"SELECT count(*) FROM queues_job WHERE {condition}")
    return int(found[0][0])


@dataclass(slots=True)
class Asked:
    """What a client that asks over and over has seen. inside: the time that the web process says it took."""

    seconds: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)

    def ask_on(self, api: Api) -> None:
        """Ask `ASKS` times, a moment apart."""
        dice = random.Random(SEED)
        for _ in range(ASKS):
            body = ask(**shape(dice.randrange(SHAPES)))
            began = time.perf_counter()
            answer = api.call("POST", "jobs/simulate/", json=body)
            self.seconds.append(time.perf_counter() - began)
            told = answer.json()
            total = re.search(r"total;dur=([0-9.]+)", answer.headers.get("Server-Timing", ""))
            self.inside.append(float(total[1]) / 1000 if total else 0.0)
            self.answers[str(told.get("verdict") or told.get("code"))] += 1
            time.sleep(PAUSE_SECONDS)


def measured(api: Api, url: str) -> tuple[Asked, list[float]]:
    """Ask in one thread, change jobs and hear of it in this one, until all is asked."""
    asked = Asked()
    thread = threading.Thread(target=asked.ask_on, args=(Api(url, api.token),), name="asks")
    thread.start()
    pushed = asyncio.run(pushes(api, url, thread.is_alive))
    thread.join()
    return asked, pushed


async def pushes(api: Api, url: str, goes_on: Any) -> list[float]:
    """Seconds from each request that holds or releases a job until an open page hears of that job."""
    jobs = [found["id"] for found in api.get("jobs/", phase="pending", limit=100)["results"]]
    took: list[float] = []
    async with connect(
        f"{url.replace('http', 'ws', 1)}/ws/live/",
        origin=Origin(url),
        additional_headers={"Cookie": login_cookie(url)},
        max_size=None,
    ) as socket:
        await socket.send(json.dumps({"type": "subscribe", "topics": ["jobs"], "after": 0}))
        while goes_on():
            chosen = jobs[(len(took) // 2) % len(jobs)]
            verb = "release" if len(took) % 2 else "hold"
            began = time.perf_counter()
            heard = asyncio.create_task(until_told(socket, chosen))
            answer = await asyncio.to_thread(
                api.call, "POST", f"jobs/{chosen}/{verb}/", json={"reason": "benchmark"}
            )
            assert answer.status_code == 200, answer.text
            await asyncio.wait_for(heard, 30)
            took.append(time.perf_counter() - began)
            await asyncio.sleep(CHANGE_SECONDS)
    return took


async def until_told(socket: ClientConnection, job_id: str) -> None:
    """Read until a message tells of the job's row."""
    while True:
        message = json.loads(await socket.recv())
        targets = {each["target"] for each in message.get("fragments", ())}
        if f"#job-{job_id}" in targets:
            return


def login_cookie(url: str) -> str:
    """As a browser logs in."""
    with httpx.Client(base_url=url, follow_redirects=True) as client:
        page = client.get("/accounts/login/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token is not None
        form = {"csrfmiddlewaretoken": token[1], "login": ADMIN, "password": ADMIN_PASSWORD}
        answer = client.post("/accounts/login/", data=form, headers={"Referer": url})
        assert "/accounts/login/" not in str(answer.url), "the login was refused"
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())
