"""Forms of the tenant pages. They shape the fields; what holds is decided by the services."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from tenants.access import SCOPES
from tenants.models import MailChoice, PlatformRole, Secret, TenantRole, WebhookEndpoint
from tenants.services.tokens import DEFAULT_DAYS


class MemberForm(forms.Form):
    """A new member."""

    user = forms.CharField(
        label=_("Account"),
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=_("The login name. With single sign-on, logging in once makes the account."),
    )
    role = forms.ChoiceField(label=_("Role"), choices=TenantRole.choices, initial="submitter")


class UnreadTextarea(forms.Textarea):
    """A field of several lines that a refused form shows empty again: what was typed is secret."""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        return super().get_context(name, None, attrs)


class SecretForm(forms.Form):
    """A secret, new or written again."""

    name = forms.CharField(
        label=_("Name"),
        max_length=40,
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off"}),
        help_text=_("A name that exists gets the new value; pods that run keep the old one."),
    )
    kind = forms.ChoiceField(label=_("Kind"), choices=Secret.KINDS)
    value = forms.CharField(
        label=_("Value"),
        widget=UnreadTextarea(attrs={"rows": 3, "autocomplete": "off", "spellcheck": "false"}),
        help_text=_("Stored encrypted. Nobody can read it back, not even you."),
        strip=False,
    )


LIFETIMES = (("7", _("7 days")), ("30", _("30 days")), ("90", _("90 days")), ("365", _("a year")))


class TokenForm(forms.Form):
    """A token for a member of one tenant."""

    name = forms.CharField(
        label=_("Name"), max_length=80, help_text=_("Where it is used, such as “nightly CI”.")
    )
    user = forms.ChoiceField(label=_("Acts as"), help_text=_("Jobs show this account."))
    days = forms.ChoiceField(label=_("Expires after"), choices=LIFETIMES, initial=str(DEFAULT_DAYS))
    scopes = forms.MultipleChoiceField(
        label=_("May"),
        choices=[(scope, scope) for scope in SCOPES],
        initial=["jobs:read", "jobs:write"],
        widget=forms.CheckboxSelectMultiple,
    )

    def __init__(self, *args: Any, usernames: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(name, name) for name in usernames]
        self.fields["user"].choices = choices  # type: ignore[attr-defined]


class TenantForm(forms.Form):
    """A new tenant."""

    slug = forms.CharField(
        label=_("Short name"),
        max_length=40,
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off"}),
        help_text=_("In addresses, and in the namespace muster-…; it never changes."),
    )
    name = forms.CharField(label=_("Name"), max_length=120)
    cohort = forms.CharField(
        label=_("Cohort"),
        max_length=40,
        required=False,
        help_text=_("With whom it lends and borrows; a new name makes a new cohort."),
    )


class PersonForm(forms.Form):
    """A new account."""

    username = forms.CharField(
        label=_("Login name"), max_length=150, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    password = forms.CharField(
        label=_("First password"),
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_("Empty for an account that only single sign-on or tokens open."),
    )
    email = forms.EmailField(label=_("E-mail"), required=False)
    platform_role = forms.ChoiceField(
        label=_("Role on the platform"), choices=PlatformRole.choices, required=False
    )


class WebhookForm(forms.Form):
    """An endpoint that hears of events. existing: one that can be switched off and on."""

    url = forms.URLField(
        label=_("Address"),
        max_length=500,
        assume_scheme="https",
        help_text=_("Messages are signed as Standard Webhooks say; the secret is shown once."),
    )
    kinds = forms.ChoiceField(
        label=_("Hears of"),
        required=False,
        choices=[
            ("", _("everything")),
            ("alert.", _("alerts, when they open and when they are over")),
            ("alert.opened", _("alerts that open")),
            ("alert.resolved", _("alerts that are over")),
        ],
    )
    description = forms.CharField(label=_("What for"), required=False, max_length=120)
    active = forms.BooleanField(label=_("Switched on"), required=False, initial=True)

    def __init__(self, *args: Any, existing: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not existing:
            del self.fields["active"]

    @staticmethod
    def values_of(endpoint: WebhookEndpoint) -> dict[str, Any]:
        """An endpoint as this form shows it."""
        return {
            "url": endpoint.url,
            "kinds": endpoint.kinds[0] if endpoint.kinds else "",
            "description": endpoint.description,
            "active": endpoint.active,
        }


class MailForm(forms.Form):
    """Which alerts come by mail."""

    alerts = forms.ChoiceField(label=_("Alerts by mail"), choices=MailChoice.LEVELS)
