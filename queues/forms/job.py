"""What may be changed of a job that is there; `changes()` is what `services.jobs.change_job` reads."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from queues.forms.fields import SpanField
from queues.forms.texts import span_text
from queues.lifecycle import Phase
from queues.models import Job


class ChangeForm(forms.Form):
    """Priority and time limit. version: the one that the page was made of."""

    priority = forms.IntegerField(label=_("Priority"), min_value=0, max_value=1000, required=False)
    limit = SpanField(
        label=_("Time limit"),
        required=False,
        max_length=40,
        help_text=_("Such as 24h. A running job gets longer only where nobody is delayed by it."),
    )
    version = forms.IntegerField(widget=forms.HiddenInput)

    def changes(self) -> dict[str, Any]:
        """What was filled in; call only when the form is valid."""
        sent = self.cleaned_data
        named = {"priority": sent["priority"], "max_runtime_seconds": sent["limit"]}
        return {name: value for name, value in named.items() if value is not None}

    @staticmethod
    def values_of(job: Job) -> dict[str, Any]:
        """A job as this form shows it; the priority only while it decides anything."""
        waits = job.phase in (Phase.PENDING, Phase.HELD)
        return {
            "priority": job.priority if waits else None,
            "limit": span_text(job.max_runtime_seconds),
            "version": job.version,
        }
