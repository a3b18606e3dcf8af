"""Addresses under /api/v1/ of what is asked and allowed. `scheduler.api` has those that need the planner."""

from django.urls import path

from queues.api import catalogue, jobs, queues, quotas, usage

urlpatterns = [
    path("jobs/", jobs.Jobs.as_view(), name="api-jobs"),
    path("jobs/batch/", jobs.Batch.as_view(), name="api-jobs-batch"),
    path("jobs/<str:job_id>/", jobs.OneJob.as_view(), name="api-job"),
    path("jobs/<str:job_id>/cancel/", jobs.Cancel.as_view(), name="api-job-cancel"),
    path("jobs/<str:job_id>/hold/", jobs.Hold.as_view(), name="api-job-hold"),
    path("jobs/<str:job_id>/release/", jobs.Release.as_view(), name="api-job-release"),
    path("jobs/<str:job_id>/requeue/", jobs.Requeue.as_view(), name="api-job-requeue"),
    path("jobs/<str:job_id>/attempts/", jobs.Attempts.as_view(), name="api-job-attempts"),
    path("jobs/<str:job_id>/events/", jobs.JobEvents.as_view(), name="api-job-events"),
    path("queues/", queues.Queues.as_view(), name="api-queues"),
    path("queues/<str:queue>/", queues.OneQueue.as_view(), name="api-queue"),
    path("tenants/<str:tenant>/quotas/", quotas.Quotas.as_view(), name="api-quotas"),
    path(
        "tenants/<str:tenant>/quota-requests/",
        quotas.QuotaRequests.as_view(),
        name="api-quota-requests",
    ),
    path(
        "tenants/<str:tenant>/quota-requests/<int:request_id>/",
        quotas.OneQuotaRequest.as_view(),
        name="api-quota-request",
    ),
    path(
        "tenants/<str:tenant>/quota-requests/<int:request_id>/accept/",
        quotas.Accept.as_view(),
        name="api-quota-request-accept",
    ),
    path(
        "tenants/<str:tenant>/quota-requests/<int:request_id>/refuse/",
        quotas.Refuse.as_view(),
        name="api-quota-request-refuse",
    ),
    path("clusters/", catalogue.Clusters.as_view(), name="api-clusters"),
    path("clusters/<str:cluster>/", catalogue.OneCluster.as_view(), name="api-cluster"),
    path("flavors/", catalogue.Flavors.as_view(), name="api-flavors"),
    path("flavors/<str:flavor>/", catalogue.OneFlavor.as_view(), name="api-flavor"),
    path("presets/", catalogue.Presets.as_view(), name="api-presets"),
    path("usage/", usage.Usage.as_view(), name="api-usage"),
    path("presets/<str:preset>/", catalogue.OnePreset.as_view(), name="api-preset"),
]
