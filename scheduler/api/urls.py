"""Addresses under /api/v1/ of what exists and is decided. Included before `queues.api`: jobs/simulate/ is no job."""

from django.urls import path

from scheduler.api import alerts, evictions, nodes, whatif
from scheduler.api.lint import Lint
from scheduler.api.logs import job_log

urlpatterns = [
    path("jobs/simulate/", whatif.Simulate.as_view(), name="api-jobs-simulate"),
    path("jobs/<str:job_id>/explain/", whatif.Explain.as_view(), name="api-job-explain"),
    path("jobs/<str:job_id>/logs/", job_log, name="api-job-logs"),
    path(
        "tenants/<str:tenant>/quotas/preview/",
        whatif.QuotaPreviewDoor.as_view(),
        name="api-quotas-preview",
    ),
    path("evictions/", evictions.Evictions.as_view(), name="api-evictions"),
    path("alerts/", alerts.Alerts.as_view(), name="api-alerts"),
    path("alerts/<int:alert>/", alerts.OneAlert.as_view(), name="api-alert"),
    path(
        "alerts/<int:alert>/acknowledge/",
        alerts.Acknowledge.as_view(),
        name="api-alert-acknowledge",
    ),
    path("alerts/<int:alert>/silence/", alerts.Silence.as_view(), name="api-alert-silence"),
    path("alerts/<int:alert>/resolve/", alerts.Resolve.as_view(), name="api-alert-resolve"),
    path("nodes/", nodes.Nodes.as_view(), name="api-nodes"),
    path("unclaimed/", nodes.Unclaimed.as_view(), name="api-unclaimed"),
    path("clusters/<str:cluster>/lint/", Lint.as_view(), name="api-lint"),
    path("clusters/<str:cluster>/topology/", nodes.Topology.as_view(), name="api-topology"),
    path("clusters/<str:cluster>/nodes/<str:node>/", nodes.OneNode.as_view(), name="api-node"),
    path(
        "clusters/<str:cluster>/nodes/<str:node>/cordon/",
        nodes.Cordon.as_view(),
        name="api-node-cordon",
    ),
    path(
        "clusters/<str:cluster>/nodes/<str:node>/uncordon/",
        nodes.Uncordon.as_view(),
        name="api-node-uncordon",
    ),
]
