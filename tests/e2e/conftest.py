"""What end-to-end tests share: people's API clients and a witness on the Kubernetes API."""

from collections.abc import Iterator

import pytest

from tests.e2e.api import Api
from tests.e2e.stack import Stack
from tests.e2e.witness import Witness


@pytest.fixture
def ravi(demo: Stack) -> Api:
    """A submitter in `research`."""
    return demo.api("ravi")


@pytest.fixture
def witness(demo: Stack) -> Iterator[Witness]:
    """Sees every pod on the Kubernetes API while the test runs."""
    with Witness(demo.kubeconfig) as watching:
        yield watching
