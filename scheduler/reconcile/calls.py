"""Calls to the API server, counted for Prometheus by the cluster process; served where CLUSTER_METRICS says."""

from prometheus_client import Counter, Histogram

from controlplane.common.metrics import bounded_method, registry
from scheduler.kube.connection import CallMeter

CALLS = Counter(
    "muster_kube_calls_total",
    "Calls to the API server; code 0: no answer.",
    ("cluster", "method", "code"),
    registry=registry,
)
SECONDS = Histogram(
    "muster_kube_call_seconds",
    "Time of calls to the API server, watches aside.",
    ("cluster", "method"),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20),
    registry=registry,
)


def metered(cluster: str) -> CallMeter:
    """A meter for the connection to this cluster."""

    def count(method: str, code: int, seconds: float) -> None:
        verb = bounded_method(method)
        CALLS.labels(cluster, verb, str(code)).inc()
        SECONDS.labels(cluster, verb).observe(seconds)

    return count
