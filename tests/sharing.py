"""Which tests run in one worker of pytest-xdist: those of a file, and all that share the one running demo.

`--dist loadgroup` would do it by marks, but pytest-xdist 3.8 cannot name groups under pytest 9.2. tests/conftest.py
hands this to xdist.
"""

from xdist.scheduler import LoadScopeScheduling

SHARE_THE_DEMO = (
    "tests/browser/",
    "tests/e2e/test_bad_input.py",
    "tests/e2e/test_gangs.py",
    "tests/e2e/test_mixes.py",
    "tests/e2e/test_speed.py",
)


class ByFileAndDemo(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A unit of work is a file; the files that use the fixture `demo` are one unit."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "the demo" if file.startswith(SHARE_THE_DEMO) else file
