"""Django behind ASGI: threads are used again, their number is bounded, streams hold nobody up."""

import asyncio
import threading

import pytest
from asgiref.testing import ApplicationCommunicator
from django.http import HttpResponse, StreamingHttpResponse

from controlplane.common import handler as handler_module
from controlplane.common.handler import Handler
from tests.live.test_hub import until

SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/",
    "query_string": b"",
    "headers": [(b"host", b"127.0.0.1")],
}


@pytest.fixture
async def handler():
    """Django with views of the test's own."""
    made = Handler()
    yield made
    await made.close()


def asked(handler):
    """A request on its way."""
    return ApplicationCommunicator(handler, dict(SCOPE))


async def ask(caller):
    """Send the whole request, read the whole answer."""
    await caller.send_input({"type": "http.request", "body": b"", "more_body": False})
    await caller.receive_output(timeout=10)
    body = await caller.receive_output(timeout=10)
    await caller.wait(timeout=10)
    return body["body"]


async def test_requests_one_after_another_share_a_thread(handler):
    seen = []

    def answer(_request):
        seen.append(threading.get_ident())
        return HttpResponse("ok")

    handler.get_response = answer
    for _ in range(20):
        assert await ask(asked(handler)) == b"ok"
    assert len(set(seen)) == 1


async def test_no_more_than_so_many_at_once_and_few_threads_are_kept(handler, monkeypatch):
    monkeypatch.setattr(handler_module, "KEPT_THREADS", 2)
    handler._turns = asyncio.Semaphore(5)
    lock, running, most = threading.Lock(), 0, 0
    gate = threading.Event()

    def answer(_request):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(10)
        with lock:
            running -= 1
        return HttpResponse("ok")

    handler.get_response = answer
    asking = [asyncio.create_task(ask(asked(handler))) for _ in range(12)]
    await until(lambda: running == 5)
    gate.set()
    assert await asyncio.gather(*asking) == [b"ok"] * 12
    assert most == 5
    assert len(handler._idle) == 2


async def test_stream_gives_up_its_turn(handler):
    handler._turns = asyncio.Semaphore(1)
    go_on = asyncio.Event()

    async def pieces():
        yield b"first"
        await go_on.wait()
        yield b"last"

    handler.get_response = lambda _request: StreamingHttpResponse(pieces())
    streaming = asked(handler)
    await streaming.send_input({"type": "http.request", "body": b"", "more_body": False})
    await streaming.receive_output(timeout=10)
    assert (await streaming.receive_output(timeout=10))["body"] == b"first"
    handler.get_response = lambda _request: HttpResponse("ok")
    assert await ask(asked(handler)) == b"ok"
    go_on.set()
    assert (await streaming.receive_output(timeout=10))["body"] == b"last"
    await streaming.receive_output(timeout=10)
    await streaming.wait(timeout=10)


async def test_crash_gives_the_turn_back(handler):
    handler._turns = asyncio.Semaphore(1)

    def crash(_request):
        raise RuntimeError("no view does this")

    handler.get_response = crash
    failing = asked(handler)
    await failing.send_input({"type": "http.request", "body": b"", "more_body": False})
    with pytest.raises(RuntimeError):
        await failing.wait(timeout=10)
    handler.get_response = lambda _request: HttpResponse("ok")
    assert await ask(asked(handler)) == b"ok"
