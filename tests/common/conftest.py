"""The small world of doors' tests."""

import pytest

from tenants.throttling import buckets
from tests.world import World, make_world


@pytest.fixture
def world(db) -> World:
    """Two tenants and everyone in `tests.world.PEOPLE`, with full rate limits."""
    buckets.clear()
    return make_world()
