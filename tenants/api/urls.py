"""Addresses under /api/v1/ of what tenants own."""

from django.urls import path

from tenants.api import views, webhooks
from tenants.api.events import Events

urlpatterns = [
    path("whoami/", views.Who.as_view(), name="api-whoami"),
    path("tenants/", views.Tenants.as_view(), name="api-tenants"),
    path("tenants/<str:tenant>/", views.OneTenant.as_view(), name="api-tenant"),
    path("tenants/<str:tenant>/members/", views.Members.as_view(), name="api-members"),
    path("tenants/<str:tenant>/members/<str:user>/", views.OneMember.as_view(), name="api-member"),
    path("tenants/<str:tenant>/tokens/", views.Tokens.as_view(), name="api-tokens"),
    path("tenants/<str:tenant>/tokens/<int:token>/", views.OneToken.as_view(), name="api-token"),
    path("tenants/<str:tenant>/secrets/", views.Secrets.as_view(), name="api-secrets"),
    path("tenants/<str:tenant>/secrets/<str:name>/", views.OneSecret.as_view(), name="api-secret"),
    path("audit/", views.Audit.as_view(), name="api-audit"),
    path("events/", Events.as_view(), name="api-events"),
    path("me/mail/", webhooks.MyMail.as_view(), name="api-my-mail"),
    path("webhooks/", webhooks.Endpoints.as_view(), name="api-webhooks"),
    path("webhooks/<int:endpoint>/", webhooks.OneEndpoint.as_view(), name="api-webhook"),
    path(
        "webhooks/<int:endpoint>/renew-secret/",
        webhooks.RenewSecret.as_view(),
        name="api-webhook-renew-secret",
    ),
    path("webhooks/<int:endpoint>/try/", webhooks.TryEndpoint.as_view(), name="api-webhook-try"),
    path(
        "webhooks/<int:endpoint>/deliveries/",
        webhooks.Deliveries.as_view(),
        name="api-webhook-deliveries",
    ),
]
