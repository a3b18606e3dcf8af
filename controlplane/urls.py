"""Every URL of the web process. Apps keep their own lists; this file only says where they hang."""

from django.urls import include, path

from controlplane.common import answers, health
from controlplane.common.design import design

handler400 = answers.bad_request
handler403 = answers.forbidden
handler404 = answers.not_found
handler500 = answers.server_error

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("api/v1/", include("controlplane.api")),
    path("accounts/", include("allauth.urls")),
    path("design/", design, name="design"),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("scheduler.urls")),
    path("", include("queues.urls")),
    path("", include("tenants.urls")),
]
