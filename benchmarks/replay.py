"""Replays of the public trace kth_sp2: the published EASY figures, the default policy, the accuracy of start estimates.

`python -m benchmarks replay`. Whole trace (28,481 jobs), so each of the three takes a minute or more; the figures are
those of docs/scheduling.md.
"""

import gzip
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scheduler.replay.engine import Replay, policy_queue
from scheduler.replay.forecast import ForecastingReplay, accuracy
from scheduler.replay.report import report
from scheduler.replay.trace import read_jobs, read_nodes

TRACES = Path(__file__).parent.parent / "tests" / "fixtures" / "traces"


def results() -> Iterator[dict[str, Any]]:
    """One result a replay."""
    nodes, levels = read_nodes((TRACES / "kth_sp2.nodes.csv").read_text().splitlines())
    with gzip.open(TRACES / "kth_sp2.csv.gz", "rt") as stream:
        jobs = read_jobs(stream.read().splitlines(), levels)
    for policy in ("easy", "default"):
        wall, cpu = time.perf_counter(), time.process_time()
        replay = Replay(nodes, levels, policy_queue(policy))
        replay.run(jobs)
        took = time.perf_counter() - wall
        yield {
            "measure": "replay",
            "trace": "kth_sp2",
            "policy": policy,
            "plans": replay.plans,
            "cpu_s": round(time.process_time() - cpu, 1),
            **report(replay.runs, replay.never_fit, nodes, round(took, 1)),
        }
    cpu = time.process_time()
    telling = ForecastingReplay(nodes, levels, policy_queue("default"))
    telling.run(jobs)
    yield {
        "measure": "start_estimates",
        "trace": "kth_sp2",
        "policy": "default",
        "told": len(telling.forecasts),
        "unknown": telling.unknown,
        "cpu_s": round(time.process_time() - cpu, 1),
        **asdict(accuracy(telling.forecasts)),
    }
