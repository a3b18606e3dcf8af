"""Pages about what is asked and allowed."""

from django.urls import path

from queues.views import catalogue, job, jobs, queues, quotas, submit

urlpatterns = [
    path("jobs/", jobs.job_list, name="job-list"),
    path("jobs/bulk/", jobs.act_on_jobs, name="job-bulk"),
    path("jobs/new/", submit.submit_page, name="job-new"),
    path("jobs/<str:job_id>/", job.job_page, name="job"),
    path("jobs/<str:job_id>/live/", job.job_live, name="job-live"),
    path("jobs/<str:job_id>/change/", job.change_asked, name="job-change"),
    path("jobs/<str:job_id>/<slug:action>/", job.act_on_job, name="job-action"),
    path("flavors/", catalogue.flavor_list, name="flavor-list"),
    path("flavors/<str:name>/", catalogue.flavor_page, name="flavor"),
    path("presets/", catalogue.preset_list, name="preset-list"),
    path("presets/<str:name>/", catalogue.preset_page, name="preset"),
    path("tenants/<slug:slug>/quotas/", quotas.quota_page, name="quotas"),
    path(
        "tenants/<slug:slug>/quotas/requests/<int:pk>/", quotas.decide_request, name="quota-decide"
    ),
    path("tenants/<slug:slug>/queues/", queues.queue_list, name="queue-list"),
    path("tenants/<slug:slug>/queues/<slug:name>/", queues.queue_page, name="queue"),
]
