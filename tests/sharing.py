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


# Two heaps for two cores: units that mostly wait (for pods, browsers, processes) and units that mostly compute. The
# first worker takes from the one end of the list, the others from the other, so that one unit of each kind runs at a
# time and neither core is idle; long units first, the many short ones in the middle fill up what is left.
WAITING = (
    *SHARE_THE_DEMO,
    "tests/e2e/",
    "tests/health/",
    "tests/windows/",
    "tests/live/",
    "tests/reconcile/",
    "tests/simcluster/test_kubectl.py",
)
COMPUTING = (
    "tests/chaos/",
    "tests/replay/",
    "tests/pages/test_screens.py",
    "tests/house/test_migrations.py",
    "tests/core/",
    "tests/queues/test_contract_fuzz.py",
    "tests/scheduler/",
    "tests/simcluster/",
)


def rank(nodeid: str) -> int:
    """The place of a test in the list: waiting units from the front, computing ones from the back, others between."""
    front = next((n for n, prefix in enumerate(WAITING) if nodeid.startswith(prefix)), None)
    if front is not None:
        return front
    back = next(
        (n for n, prefix in enumerate(COMPUTING) if nodeid.startswith(prefix)), len(COMPUTING)
    )
    return len(WAITING) + len(COMPUTING) - back


class ByFileAndDemo(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """A unit of work is a file; the files that use the fixture `demo` are one unit."""

    def __init__(self, config: Any, log: Any = None) -> None:
        config.option.loadscopereorder = False  # tests/conftest.py has put them in order
        super().__init__(config, log)

    def _assign_work_unit(self, node: Any) -> None:
        if node.gateway.id != "gw0":
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "the demo" if file.startswith(SHARE_THE_DEMO) else file
