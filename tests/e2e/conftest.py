"""One running demo for all tests that only use it; those that hurt it start their own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.api import Api
from tests.e2e.stack import Stack, attached_demo, running_demo
from tests.e2e.witness import Witness


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The demo without its story, on SQLite and a broker that needs no server.

    E2E_DEMO names the folder of one that runs already: for those who write these tests.
    """
    running = os.environ.get("E2E_DEMO")
    if running:
        yield attached_demo(Path(running))
        return
    with running_demo(tmp_path_factory.mktemp("demo")) as stack:
        yield stack


@pytest.fixture
def ravi(demo: Stack) -> Api:
    """A submitter in `research`."""
    return demo.api("ravi")


@pytest.fixture
def witness(demo: Stack) -> Iterator[Witness]:
    """Sees every pod on the Kubernetes API while the test runs."""
    with Witness(Path(demo.kubeconfig)) as watching:
        yield watching
