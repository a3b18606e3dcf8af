"""A webhook's other side on 127.0.0.1: keeps what it is sent, answers what it is told to."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(slots=True)
class Received:
    """One call."""

    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """answers: statuses of the next calls, the last one for all that follow. delay_seconds: before each."""

    url: str = ""
    calls: list[Received] = field(default_factory=list)
    answers: list[int] = field(default_factory=lambda: [204])
    headers: dict[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Runs in a thread until the block ends."""
    state = Receiver()

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.calls.append(Received({k.lower(): v for k, v in self.headers.items()}, body))
            time.sleep(state.delay_seconds)
            code = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            self.send_response(code)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/hook?x=1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
