"""Pages and fragments about what exists and is decided."""

from django.urls import path

from scheduler.views import alerts, answers, clusters, levels, logs, maps, nodes, now, previews

urlpatterns = [
    path("", now.now_page, name="now"),
    path("map/", maps.first_map, name="map"),
    path("map/<str:cluster>/", maps.cluster_map, name="cluster-map"),
    path("map/<str:cluster>/mode/", maps.set_mode, name="cluster-mode"),
    path("alerts/", alerts.alert_list, name="alert-list"),
    path("alerts/<int:pk>/", alerts.alert_page, name="alert"),
    path("alerts/<int:pk>/<slug:answer>/", alerts.answer_alert, name="alert-answer"),
    path("clusters/", clusters.cluster_list, name="cluster-list"),
    path("clusters/<str:cluster>/", clusters.cluster_page, name="cluster"),
    path("clusters/<str:cluster>/levels/", levels.cluster_levels, name="cluster-levels"),
    path(
        "clusters/<str:cluster>/levels/preview/",
        levels.preview_levels,
        name="cluster-levels-preview",
    ),
    path("nodes/", nodes.node_list, name="node-list"),
    path("nodes/<str:cluster>/<str:name>/", nodes.node_page, name="node"),
    path("nodes/<str:cluster>/<str:name>/cordon/", nodes.cordon, name="node-cordon"),
    path("nodes/<str:cluster>/<str:name>/brief/", maps.node_brief, name="node-brief"),
    path("jobs/new/verdict/", answers.job_verdict, name="job-verdict"),
    path("jobs/<str:job_id>/log/", logs.job_log, name="job-log"),
    path("jobs/<str:job_id>/explain/", answers.job_explanation, name="job-explain"),
    path("tenants/<slug:slug>/quotas/preview/", previews.quota_preview, name="quota-preview"),
]
