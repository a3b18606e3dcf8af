"""What processes count for Prometheus. Labels are bounded: routes, methods, status codes; no names.

Other rooms register collectors of their own in `registry`; nothing here may tell tenants apart, since
`/metrics` asks for no login.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

registry = CollectorRegistry()
# Numbers of the whole installation, read from the database: only the web serves them.
installation = CollectorRegistry()
ProcessCollector(registry=registry)
PlatformCollector(registry=registry)
GCCollector(registry=registry)

requests_total = Counter(
    "muster_http_requests_total",
    "Requests answered.",
    ("method", "route", "status"),
    registry=registry,
)
request_seconds = Histogram(
    "muster_http_request_seconds",
    "Time to answer, long polls included.",
    ("method", "route"),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 30, 60),
    registry=registry,
)
live_sockets = Gauge("muster_live_sockets", "Open live sockets.", registry=registry)
live_messages_total = Counter(
    "muster_live_messages_total", "Messages sent to live sockets.", ("type",), registry=registry
)
live_renders_total = Counter(
    "muster_live_renders_total",
    "Renders of changed rows for live sockets.",
    ("topic",),
    registry=registry,
)
live_log_seq = Gauge(
    "muster_live_log_seq", "Newest event the live hub has read.", registry=registry
)
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


def bounded_method(method: str | None) -> str:
    """The method, or "other" for one that is made up."""
    return method if method in METHODS else "other"


def serve_metrics(address: str) -> None:
    """Serve this process's counters at "host:port" from a thread; an empty address: not at all."""
    if not address:
        return
    host, _colon, port = address.rpartition(":")
    start_http_server(int(port), addr=host or "127.0.0.1", registry=registry)
