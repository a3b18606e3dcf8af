"""Pages about who."""

from django.urls import path

from tenants.views import audit, members, people, secrets, tenants, tokens, webhooks

urlpatterns = [
    path("tenants/", tenants.tenant_list, name="tenant-list"),
    path("tenants/<slug:slug>/members/", members.member_list, name="member-list"),
    path("tenants/<slug:slug>/members/<int:pk>/", members.change_member, name="member-change"),
    path("tenants/<slug:slug>/secrets/", secrets.secret_list, name="secret-list"),
    path("tenants/<slug:slug>/secrets/<int:pk>/", secrets.forget_secret, name="secret-forget"),
    path("tenants/<slug:slug>/tokens/", tokens.tenant_tokens, name="tenant-token-list"),
    path("tenants/<slug:slug>/webhooks/", webhooks.tenant_webhooks, name="webhook-list"),
    path("cohorts/<int:pk>/order/", tenants.set_order, name="cohort-order"),
    path("webhooks/", webhooks.platform_webhooks, name="platform-webhooks"),
    path("webhooks/<int:pk>/", webhooks.webhook_page, name="webhook"),
    path("webhooks/<int:pk>/act/", webhooks.act_on_webhook, name="webhook-act"),
    path("notices/", webhooks.own_notices, name="own-notices"),
    path("audit/", audit.audit_list, name="audit"),
    path("people/", people.people_list, name="people"),
    path("people/<int:pk>/", people.change_person, name="person-change"),
    path("tokens/", tokens.own_tokens, name="token-list"),
    path("tokens/<int:pk>/revoke/", tokens.end_token, name="token-revoke"),
]
