"""What people answer to an alert."""

from datetime import timedelta

from django import forms
from django.utils.translation import gettext_lazy as _

SPANS = (
    ("3600", _("1 hour")),
    ("14400", _("4 hours")),
    ("86400", _("1 day")),
    ("604800", _("7 days")),
    ("2592000", _("30 days")),
)


class AcknowledgeForm(forms.Form):
    """Somebody works on it."""

    note = forms.CharField(
        label=_("Note"),
        required=False,
        max_length=1000,
        help_text=_("What you know, for who comes next."),
    )


class SilenceForm(forms.Form):
    """Tell nobody for a while."""

    span = forms.ChoiceField(label=_("For"), choices=SPANS, initial="14400")
    reason = forms.CharField(label=_("Reason"), max_length=1000)

    @property
    def lasts(self) -> timedelta:
        """How long; call only when the form is valid."""
        return timedelta(seconds=int(self.cleaned_data["span"]))


class ResolveForm(forms.Form):
    """It is over, says a person."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=1000,
        help_text=_("What still finds it raises it again."),
    )
