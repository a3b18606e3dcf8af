"""A cluster in the middle of its day, and browsers' clients of the people in it."""

from collections.abc import Callable

import pytest
from django.test import Client

from tests.pages import scene as scenes

As = Callable[[str], Client]


@pytest.fixture
def scene(db: None) -> scenes.Scene:
    """The scene of `tests.pages.scene`."""
    return scenes.build()


@pytest.fixture
def sign_in(scene: scenes.Scene) -> As:
    """A client signed in as that person."""

    def client_of(name: str) -> Client:
        client = Client()
        client.force_login(scene.users[name], backend="django.contrib.auth.backends.ModelBackend")
        return client

    return client_of
