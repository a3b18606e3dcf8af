"""The REST doors' first check: signed in, and the token has the scope that the view names.

What the user may do to the thing itself is decided by services and selectors (`tenants.access`).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from controlplane.common.errors import ForbiddenError
from tenants.access import SCOPES
from tenants.authentication import actor_of
from tenants.models import User

if TYPE_CHECKING:
    # REST framework imports this module while it loads its views.
    from rest_framework.views import APIView

Scopes = Mapping[str, str | Sequence[str]]


class HasScope(BasePermission):
    """A view declares `required_scopes`: by method, or one for reading and one for changing.

    required_scopes = {"GET": "jobs:read", "POST": "jobs:write"}
    required_scopes = {"read": "quotas:read", "write": "quotas:write"}
    required_scopes = {"GET": ()}   # any token

    A method that nothing is declared for is refused, so that no door is open by oversight.
    """

    def has_permission(self, request: Request, view: "APIView") -> bool:
        """True, or an exception that says what is missing."""
        if not isinstance(request.user, User):
            raise NotAuthenticated
        method = (request.method or "").lower()
        if method not in view.http_method_names or not hasattr(view, method):
            return True  # the answer is 405
        wanted = scopes_for(view, request.method or "GET")
        granted = actor_of(request).scopes
        missing = [scope for scope in wanted if granted is not None and scope not in granted]
        if missing:
            raise ForbiddenError(
                _("This token lacks the scope {scope}.").format(scope=missing[0]),
                code="missing_scope",
                hint=_("Use a token with the scope {scope}.").format(scope=missing[0]),
            )
        return True


def scopes_for(view: "APIView", method: str) -> tuple[str, ...]:
    """The scopes that `view` declares for `method`. Raises LookupError where it declares none."""
    declared: Scopes = getattr(view, "required_scopes", {})
    kind = "read" if method in SAFE_METHODS else "write"
    same = "GET" if method in ("HEAD", "OPTIONS") else method
    for name in (same, kind):
        if name in declared:
            found = declared[name]
            scopes = (found,) if isinstance(found, str) else tuple(found)
            unknown = set(scopes) - set(SCOPES)
            if unknown:
                raise LookupError(f"{type(view).__name__} names unknown scopes {sorted(unknown)}")
            return scopes
    if method == "OPTIONS":
        return ()
    raise LookupError(f"{type(view).__name__} declares no scope for {method}")
