"""Django's entry for the app `tenants`."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """WHO: tenants, cohorts, members, secrets, tokens, audit."""

    name = "tenants"
