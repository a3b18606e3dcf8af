"""How the OpenAPI document speaks of signing in. Imported by controlplane/api.py, which registers these."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from tenants.access import SCOPES


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """`Authorization: Bearer mst_…`."""

    target_class = "tenants.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The scheme."""
        scopes = ", ".join(SCOPES)
        return {
            "type": "http",
            "scheme": "bearer",
            "description": f"A token, allowed some of these scopes: {scopes}.",
        }


class CookieScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The login cookie."""

    target_class = "tenants.authentication.CookieAuthentication"
    name = "cookie"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The scheme."""
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": "sessionid",
            "description": "A browser's login; anything but a read also needs X-CSRFToken.",
        }
