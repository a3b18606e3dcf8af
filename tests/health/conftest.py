"""People for the tests of doors."""

import pytest

from tests.world import World, make_world


@pytest.fixture
def people(db: None) -> World:
    """CONTRACT's people."""
    return make_world()
