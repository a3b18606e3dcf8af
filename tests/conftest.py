"""What every test gets: a database server of the session's own, and the rules of who runs where.

TEST_DATABASE=sqlite runs the tests marked `sqlite` on SQLite; otherwise all run on PostgreSQL and Redis. Where
these are not installed the tests that need them skip and say so; with CI=true they fail.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack, attached_demo, running_demo
from tests.services.binaries import chromium, runs_in_ci, services_missing
from tests.services.session import Session, current_session, end_session, ensure_services
from tests.sharing import ByFileAndDemo, rank

# Each renders whole pages for many people: together they take as long as all other fast tests.
PAGES = Path(__file__).parent / "pages"
DATABASE_FIXTURES = {"db", "transactional_db", "live_server", "django_db_setup"}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFileAndDemo | None:
    """With `--dist loadgroup`: whole files, and one worker for all that share the demo."""
    return ByFileAndDemo(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_unconfigure(config: pytest.Config) -> None:
    """The owner of the session ends it, however the run went."""
    session = current_session()
    if session.owner_pid == os.getpid():
        end_session(session)


def _needs_database(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    return item.get_closest_marker("django_db") is not None or bool(fixtures & DATABASE_FIXTURES)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """On SQLite run only what is meant to; say what a machine lacks; with `--dist loadgroup` long units first."""
    _choose(config, items)
    yield  # pytest-django puts them in an order of its own
    if getattr(config.option, "loadgroup", False):
        items.sort(key=lambda item: rank(item.nodeid))


def _choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if PAGES in item.path.parents:
            item.add_marker(pytest.mark.slow)
    on_sqlite = current_session().database == "sqlite"
    chosen = os.environ.get("TEST_DATABASE") == "sqlite"
    missing = ", ".join(services_missing())
    skipped = pytest.mark.skip(reason=f"needs a server that is not installed: {missing}")
    deselected = []
    for item in items:
        if not on_sqlite or not _needs_database(item) or item.get_closest_marker("sqlite"):
            continue
        if chosen:
            deselected.append(item)
        elif not runs_in_ci():
            item.add_marker(skipped)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in set(deselected)]


@pytest.fixture(scope="session")
def test_session() -> Session:
    """The session's folder, ports and database."""
    return current_session()


@pytest.fixture(scope="session")
def services(test_session: Session) -> Session:
    """The session with its servers running."""
    missing = services_missing()
    if missing and os.environ.get("TEST_DATABASE") != "sqlite":
        if runs_in_ci():
            pytest.fail(f"CI needs these Debian packages: {', '.join(missing)}")
        if test_session.database == "postgresql":
            pytest.skip(f"not installed: {', '.join(missing)}")
    ensure_services(test_session)
    return test_session


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    services: Session, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """pytest-django asks this before it makes the test database: the server must run by then."""


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Path of the system's Chromium."""
    found = chromium()
    if found is None:
        if runs_in_ci():
            pytest.fail("CI needs Debian's package chromium")
        pytest.skip("Chromium is not installed (Debian: chromium)")
    return str(found)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The demo without its story, on SQLite and a broker that needs no server, for tests that only use it.

    E2E_DEMO names the folder of one that runs already: for those who write these tests.
    """
    running = os.environ.get("E2E_DEMO")
    if running:
        yield attached_demo(Path(running))
        return
    with running_demo(tmp_path_factory.mktemp("demo")) as stack:
        yield stack
