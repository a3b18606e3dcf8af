"""Which tests run in one worker of pytest-xdist: those of a file, and all that share the one running demo.

`--dist loadgroup` would do it by marks, but pytest-xdist 3.8 cannot name groups under pytest 9.2. tests/conftest.py
hands this to xdist.
"""

from typing import Any

from xdist.scheduler import LoadScopeScheduling

SHARE_THE_DEMO = (
    "tests/browser/",
    "tests/e2e/test_bad_input.py",
    "tests/e2e/test_gangs.py",
    "tests/e2e/test_mixes.py",
    "tests/e2e/test_speed.py",
)


# Units that take long begin first: one that begins last keeps one worker busy while the other has nothing left.
LONG = (
    *SHARE_THE_DEMO,
    "tests/e2e/",
    "tests/chaos/",
    "tests/replay/",
    "tests/pages/test_screens.py",
    "tests/house/test_migrations.py",
    "tests/reconcile/",
    "tests/simcluster/",
)


def rank(nodeid: str) -> int:
    """The place of a test in the order in which units begin: long ones first, else as they come."""
    return next((n for n, prefix in enumerate(LONG) if nodeid.startswith(prefix)), len(LONG))


class ByFileAndDemo(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A unit of work is a file; the files that use the fixture `demo` are one unit."""

    def __init__(self, config: Any, log: Any = None) -> None:
        config.option.loadscopereorder = False  # tests/conftest.py has put them in order
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "the demo" if file.startswith(SHARE_THE_DEMO) else file
