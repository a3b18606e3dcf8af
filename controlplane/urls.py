"""Every URL of the web process. Apps keep their own lists; this file only says where they hang."""

from django.urls import include, path

urlpatterns = [
    path("accounts/", include("allauth.urls")),
]
