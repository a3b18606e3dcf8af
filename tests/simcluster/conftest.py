"""Clusters for the tests of the simulated cluster."""

import pytest

from scheduler.simcluster.clock import SteppedClock
from scheduler.simcluster.cluster import SimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from tests.simcluster.direct import Direct


@pytest.fixture
def api() -> Direct:
    """Four nodes of 8 H100 in stepped time, called without HTTP."""
    return Direct(SimCluster(uniform_profile(4), clock=SteppedClock(), seed=7))
