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


@pytest.fixture
def shop(research: Tenant, train: Queue, ravi: User) -> Tenant:
    """research with all that a job may name: secrets, presets, a short queue, a closed one, a job; and vision."""
    factories.make_job(train, ravi, external_id="stored")
    factories.make_secret(research, "wandb")
    factories.make_secret(research, "regcred", kind="dockerconfigjson")
    train.presets.add(factories.make_preset("infiniband"))
    factories.make_queue(research, "short", longest_max_runtime_seconds=3600)
    factories.make_queue(research, "shut", state="closed")
    vision = factories.make_tenant("vision")
    factories.make_queue(vision, "train").presets.add(factories.make_preset("vision-only"))
    return research
