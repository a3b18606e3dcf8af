"""Numbers of the loop for Prometheus, served by the worker where SCHEDULER_METRICS names an address."""

from prometheus_client import Counter, Histogram

from controlplane.common.metrics import registry

CYCLE_SECONDS = Histogram(
    "muster_cycle_seconds",
    "One planning cycle, from reading what changed to the last commit.",
    ["cluster"],
    registry=registry,
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
PLAN_STARTS = Histogram(
    "muster_plan_starts",
    "Gangs that one plan starts.",
    ["cluster"],
    registry=registry,
    buckets=(0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000),
)
STARTS = Counter("muster_gang_starts_total", "Gangs placed.", ["cluster"], registry=registry)
OUTDATED = Counter(
    "muster_gang_starts_outdated_total",
    "Starts that no longer matched the rows.",
    ["cluster"],
    registry=registry,
)
SNAPSHOT_DEFECTS = Counter(
    "muster_snapshot_defects_total",
    "Comparisons in which the warm snapshot differed from a cold one: each is a defect.",
    ["cluster"],
    registry=registry,
)
