"""What machines ask about this process: /healthz (it runs), /readyz (it can serve), /metrics (Prometheus)."""

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from controlplane.common.live import hub
from controlplane.common.log import latest_seq
from controlplane.common.metrics import installation, registry


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers; nothing else is asked of it."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when every check is ok, else 503 with the check that is not."""
    checks = {"database": _database(), "event_log": _event_log()}
    ready = all(word == "ok" for word in checks.values())
    answer = {"status": "ok" if ready else "unavailable", "checks": checks}
    return JsonResponse(answer, status=200 if ready else 503)


def _database() -> str:
    """Reachable, and as new as this code."""
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return "unreachable"
    return "migrations missing" if missing else "ok"


def _event_log() -> str:
    """Readable, and followed by the hub where live pages are open."""
    try:
        latest_seq()
    except DatabaseError:
        return "unreachable"
    return "ok" if hub.is_current() else "behind"


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Counters of this process and numbers of the installation, in Prometheus' text format."""
    text = generate_latest(registry) + generate_latest(installation)
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)
