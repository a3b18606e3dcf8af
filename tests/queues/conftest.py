"""Two tenants that may not see each other, with one submitter each."""

import pytest

from queues.models import Job, Queue
from tenants.models import Tenant, User
from tests import factories


@pytest.fixture
def research(db: None) -> Tenant:
    """The tenant of most tests."""
    return factories.make_tenant("research")


@pytest.fixture
def ravi(research: Tenant) -> User:
    """A submitter in research."""
    return factories.make_member(research, "ravi")


@pytest.fixture
def train(research: Tenant) -> Queue:
    """research's queue on the cluster demo, with H100 alone."""
    return factories.make_queue(research, "train")


@pytest.fixture
def job(train: Queue, ravi: User) -> Job:
    """A pending job of ravi."""
    return factories.make_job(train, ravi)
