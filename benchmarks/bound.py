"""When pods were created and bound, as the Kubernetes API showed it: a watch that reads as little as it can.

Used by `bind`. The witness of the end-to-end tests reads every field; at thousands of pods on the same two cores
it would be part of what is measured.
"""

import contextlib
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import httpx

_NAME = re.compile(rb'"name":"(j[0-9a-z]{8}-[^"]+)"')
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')


@dataclass(slots=True)
class PodTimes:
    """Seconds (monotonic) by pod: first seen, and first seen with a node."""

    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)

    def take(self, line: bytes, at: float) -> None:
        """One event of the watch, as it came."""
        found = _NAME.search(line)
        if found is None:
            return
        name = found.group(1).decode()
        self.created.setdefault(name, at)
        if b'"nodeName":"' in line:
            self.bound.setdefault(name, at)

    def of(self, jobs: Iterable[str]) -> "PodTimes":
        """Those of some jobs alone; a pod's name begins with the end of its job's id."""
        prefixes = {f"j{job[-8:].lower()}" for job in jobs}
        # Copies: the watch's thread goes on writing.
        created, bound = dict(self.created), dict(self.bound)
        return PodTimes(
            {name: at for name, at in created.items() if name[:9] in prefixes},
            {name: at for name, at in bound.items() if name[:9] in prefixes},
        )


class PodWatch:
    """`with PodWatch(url, token) as watch: …; watch.times`."""

    def __init__(self, url: str, token: str) -> None:
        self.times = PodTimes()
        self._url = f"{url}/api/v1/pods"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._version = ""
        self._open = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pod-watch", daemon=True)

    def __enter__(self) -> "PodWatch":
        self._thread.start()
        assert self._open.wait(10), "the watch of pods could not be opened"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _watch(self) -> None:
        listed = httpx.get(self._url, params={"limit": 1}, headers=self._headers, timeout=20)
        listed.raise_for_status()
        self._version = str(listed.json()["metadata"]["resourceVersion"])
        while not self._stop.is_set():
            with contextlib.suppress(httpx.ReadTimeout):
                self._watch_on()

    def _watch_on(self) -> None:
        query = {"watch": "1", "resourceVersion": self._version, "timeoutSeconds": "600"}
        # The read time-out is how often a quiet watch looks whether it should stop.
        timeout = httpx.Timeout(10, read=1)
        with httpx.stream(
            "GET", self._url, params=query, headers=self._headers, timeout=timeout
        ) as answer:
            answer.raise_for_status()
            self._open.set()
            rest = b""
            for chunk in answer.iter_raw():
                at = time.monotonic()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self.times.take(line, at)
                if lines and (found := _VERSION.search(lines[-1])):
                    self._version = found.group(1).decode()
                if self._stop.is_set():
                    return
