"""Addresses under /api/v1/ of what exists and is decided. Included before `queues.api`: jobs/simulate/ is no job."""

from django.urls import path

from scheduler.api import (
    alerts,
    attempts,
    bookings,
    changes,
    evictions,
    forecasts,
    health,
    nodes,
    whatif,
    windows,
)
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
    path(
        "clusters/<str:cluster>/estimates/",
        forecasts.EstimateAccuracy.as_view(),
        name="api-cluster-estimates",
    ),
    path(
        "clusters/<str:cluster>/bookings/",
        bookings.Bookings.as_view(),
        name="api-cluster-bookings",
    ),
    path("what-if/", changes.WhatIf.as_view(), name="api-what-if"),
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
    path("gpus/", health.Gpus.as_view(), name="api-gpus"),
    path("gpus/<str:uuid>/override/", health.Override.as_view(), name="api-gpu-override"),
    path("health-rules/", health.Rules.as_view(), name="api-health-rules"),
    path("health-rules/<str:key>/", health.OneRule.as_view(), name="api-health-rule"),
    path(
        "health-rules/<str:key>/dry-run/",
        health.RuleDryRun.as_view(),
        name="api-health-rule-dry-run",
    ),
    path("clusters/<str:cluster>/quarantine/", health.Quarantine.as_view(), name="api-quarantine"),
    path("clusters/<str:cluster>/joining/", health.Joining.as_view(), name="api-joining"),
    path(
        "clusters/<str:cluster>/health-policy/", health.Policy.as_view(), name="api-health-policy"
    ),
    path(
        "clusters/<str:cluster>/nodes/<str:node>/health/",
        health.NodeHealth.as_view(),
        name="api-node-health",
    ),
    path(
        "clusters/<str:cluster>/nodes/<str:node>/timeline/",
        health.Timeline.as_view(),
        name="api-node-timeline",
    ),
    path(
        "clusters/<str:cluster>/nodes/<str:node>/reports/",
        health.Reports.as_view(),
        name="api-node-reports",
    ),
    path(
        "clusters/<str:cluster>/nodes/<str:node>/burn-in/",
        health.BurnInDoor.as_view(),
        name="api-node-burn-in",
    ),
    path(
        "clusters/<str:cluster>/nodes/<str:node>/return/",
        health.Return.as_view(),
        name="api-node-return",
    ),
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
        "clusters/<str:cluster>/nodes/<str:node>/drain/",
        nodes.DrainNode.as_view(),
        name="api-node-drain",
    ),
    path("clusters/<str:cluster>/drain/", nodes.DrainMany.as_view(), name="api-drain"),
    path("maintenance-windows/", windows.Windows.as_view(), name="api-windows"),
    path("maintenance-windows/propose/", windows.Propose.as_view(), name="api-windows-propose"),
    path("maintenance-windows/<int:window>/", windows.OneWindow.as_view(), name="api-window"),
    path(
        "maintenance-windows/<int:window>/finish/",
        windows.FinishWindow.as_view(),
        name="api-window-finish",
    ),
    path("attempts/me/heartbeat/", attempts.Heartbeat.as_view(), name="api-my-heartbeat"),
    path("attempts/me/checkpoint/", attempts.Checkpoint.as_view(), name="api-my-checkpoint"),
    path("attempts/me/notice/", attempts.NoticeDoor.as_view(), name="api-my-notice"),
    path("attempts/me/report/", attempts.NodeReportDoor.as_view(), name="api-my-report"),
    path(
        "maintenance-windows/<int:window>/occurrences/<str:at>/",
        windows.OneOccurrence.as_view(),
        name="api-occurrence",
    ),
    path("calendar.ics", windows.Calendar.as_view(), name="api-calendar"),
    path("me/calendar/", windows.CalendarAddress.as_view(), name="api-my-calendar"),
    path(
        "clusters/<str:cluster>/nodes/<str:node>/uncordon/",
        nodes.Uncordon.as_view(),
        name="api-node-uncordon",
    ),
]
