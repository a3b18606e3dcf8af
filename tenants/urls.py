"""Pages about who."""

from django.urls import path

from tenants.views import members, people, secrets, tenants, tokens

urlpatterns = [
    path("tenants/", tenants.tenant_list, name="tenant-list"),
    path("tenants/<slug:slug>/members/", members.member_list, name="member-list"),
    path("tenants/<slug:slug>/members/<int:pk>/", members.change_member, name="member-change"),
    path("tenants/<slug:slug>/secrets/", secrets.secret_list, name="secret-list"),
    path("tenants/<slug:slug>/secrets/<int:pk>/", secrets.forget_secret, name="secret-forget"),
    path("tenants/<slug:slug>/tokens/", tokens.tenant_tokens, name="tenant-token-list"),
    path("people/", people.people_list, name="people"),
    path("people/<int:pk>/", people.change_person, name="person-change"),
    path("tokens/", tokens.own_tokens, name="token-list"),
    path("tokens/<int:pk>/revoke/", tokens.end_token, name="token-revoke"),
]
