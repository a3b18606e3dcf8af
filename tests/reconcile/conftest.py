"""The world of these tests: four nodes of eight GPUs, one tenant, and the process when started.

The process is nobody but the shipped service account, the API server refuses all that its role does not name, and no
test passes in which anything was refused.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.cluster import Options
from scheduler.simcluster.profiles.model import uniform_profile
from tests.deploy.roles import install_roles, kubeconfig_of, refused_to_us
from tests.reconcile.world import World, make_world


@pytest.fixture
def sim() -> Iterator[ThreadedSimCluster]:
    profile = uniform_profile(4, nodes_per_leaf=2)
    with ThreadedSimCluster(profile, options=Options(rbac=True)) as running:
        running.call(install_roles)
        yield running


@pytest.fixture
def world(transactional_db: None, sim: ThreadedSimCluster, tmp_path: Path) -> Iterator[World]:
    made = make_world(sim, tmp_path)
    made.kubeconfig = kubeconfig_of(sim.cluster, "muster-cluster", tmp_path)
    yield made
    made.stop()
    assert not sim.call(refused_to_us)
