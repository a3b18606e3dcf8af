"""How accounts come to be: platform admins and single sign-on make them, nobody signs up by themselves."""

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class ClosedSignup(DefaultAccountAdapter):  # type: ignore[misc]
    """Switches allauth's open registration off."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Nobody may register by form."""
        return False
