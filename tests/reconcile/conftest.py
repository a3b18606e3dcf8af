"""The world of these tests: four nodes of eight GPUs, one tenant, and the process when started."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from tests.reconcile.world import World, make_world


@pytest.fixture
def sim() -> Iterator[ThreadedSimCluster]:
    with ThreadedSimCluster(uniform_profile(4, nodes_per_leaf=2)) as running:
        yield running


@pytest.fixture
def world(transactional_db: None, sim: ThreadedSimCluster, tmp_path: Path) -> Iterator[World]:
    made = make_world(sim, tmp_path)
    yield made
    made.stop()
