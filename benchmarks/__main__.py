"""`python -m benchmarks [NAME …]`: run all benchmarks, or those named; one JSON object a line on standard output."""

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks import (
    bind,
    health,
    health_cost,
    idle,
    loop,
    planner,
    replay,
    simcluster,
    simulate,
    slow_api,
    submit_to_bound,
    watcher,
)

BENCHMARKS: Mapping[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "bind": bind.results,
    "health": health.results,
    "health_cost": health_cost.results,
    "idle": idle.results,
    "loop": loop.results,
    "planner": planner.results,
    "replay": replay.results,
    "simcluster": simcluster.results,
    "simulate": simulate.results,
    "slow_api": slow_api.results,
    "submit_to_bound": submit_to_bound.results,
    "watcher": watcher.results,
}


def main(names: list[str]) -> int:
    """Exit code 2 for a name that is not known."""
    # What was started is stopped on the way out, however we are told to go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        for result in BENCHMARKS[name]():
            print(json.dumps({"benchmark": name, **result}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
