"""The forms of GPU health: overrides, rules, a cluster's budget and burn-in, a person's report."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django_stubs_ext import StrOrPromise

from queues.forms.fields import SpanField
from queues.forms.texts import span_text
from scheduler.health.rules import RuleSpec
from scheduler.models import HealthPolicy, HealthState, RuleMode

SPANS = (
    ("1", _("1 day")),
    ("7", _("7 days")),
    ("30", _("30 days")),
)


class OverrideForm(forms.Form):
    """An operator's word about a GPU."""

    state = forms.ChoiceField(
        label=_("It is"),
        choices=[
            (each.value, each.label)
            for each in (HealthState.HEALTHY, HealthState.SUSPECT, HealthState.UNHEALTHY)
        ],
    )
    days = forms.ChoiceField(
        label=_("For"), choices=SPANS, initial="7", help_text=_("Then rules judge again.")
    )
    reason = forms.CharField(label=_("Why"), max_length=1000)

    @property
    def lasts(self) -> timedelta:
        """How long; call only when the form is valid."""
        return timedelta(days=int(self.cleaned_data["days"]))


class ReasonForm(forms.Form):
    """Why; kept with who and when."""

    reason = forms.CharField(label=_("Why"), max_length=1000)


class ReportForm(forms.Form):
    """What a person saw of a node."""

    kind = forms.ChoiceField(
        label=_("What"),
        choices=[
            ("xid", "XID"),
            ("ecc", "ECC"),
            ("nvlink", "NVLink"),
            ("thermal", _("thermal")),
            ("hang", _("hang")),
            ("other", _("other")),
        ],
    )
    code = forms.IntegerField(label=_("Code"), required=False, min_value=0, max_value=9_999)
    gpu = forms.IntegerField(label=_("GPU number"), required=False, min_value=0, max_value=255)
    message = forms.CharField(label=_("In words"), required=False, max_length=2_000)

    def changes(self) -> dict[str, Any]:
        """What the service reads; call only when the form is valid."""
        return {key: value for key, value in self.cleaned_data.items() if value not in (None, "")}


class RuleForm(forms.Form):
    """Mode and thresholds of one rule."""

    mode = forms.ChoiceField(label=_("Mode"), choices=RuleMode.choices)

    def __init__(self, *args: Any, spec: RuleSpec, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in spec.parameters:
            known = _parameter(name)
            field = forms.FloatField(
                label=known.label,
                min_value=0,
                widget=forms.NumberInput(attrs={"step": "any"}),
                help_text=_now("Comes as {value}.").format(value=f"{spec.parameters[name]:g}"),
            )
            field.unit = known.unit  # type: ignore[attr-defined]  # the `field` tag shows it
            self.fields[name] = field
            if isinstance(shown := self.initial.get(name), float) and shown.is_integer():
                self.initial[name] = int(shown)

    def changes(self) -> dict[str, Any]:
        """What the service reads; call only when the form is valid."""
        sent = dict(self.cleaned_data)
        return {"mode": sent.pop("mode"), "parameters": sent}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A threshold as people read it: the field's label and unit, and the phrase with its value."""

    label: StrOrPromise
    unit: StrOrPromise
    phrase: StrOrPromise


def parameter_phrase(name: str, value: float) -> str:
    """A threshold with its value and unit: "above 85 °C", "for 2 min"."""
    said = span_text(int(value)) if name == "seconds" else f"{value:g}"
    return str(_parameter(name).phrase).format(value=said)


def _parameter(name: str) -> Parameter:
    words = name.replace("_", " ")
    return PARAMETERS.get(name, Parameter(words.capitalize(), "", f"{words} {{value}}"))


PARAMETERS: Mapping[str, Parameter] = {
    "jobs": Parameter(_("Over so many jobs"), "", _("over {value} jobs")),
    "seconds": Parameter(_("For"), _("seconds"), _("for {value}")),
    "above": Parameter(_("Above"), "", _("above {value}")),
    "above_c": Parameter(_("Above"), "°C", _("above {value} °C")),
    "above_percent": Parameter(_("Above"), "%", _("above {value} %")),
    "below_percent": Parameter(_("Below"), "%", _("below {value} %")),
    "crc_per_hour": Parameter(_("CRC errors an hour"), "", _("{value} CRC errors an hour")),
    "recoveries": Parameter(_("Recoveries"), "", _("{value} recoveries")),
}


class PolicyForm(forms.Form):
    """A cluster's budget, burn-in, and where its metrics are."""

    budget_percent = forms.FloatField(
        label=_("Budget, percent of the nodes"),
        min_value=0,
        max_value=100,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    budget_nodes = forms.IntegerField(
        label=_("Or so many nodes"), min_value=0, help_text=_("Whichever is more.")
    )
    budget_window_seconds = SpanField(
        label=_("Within"), shortest=60, help_text=_("Such as 30m or 2h.")
    )
    burn_in_image = forms.CharField(
        label=_("Burn-in image"),
        required=False,
        max_length=500,
        help_text=_("Empty: nodes come back without a burn-in."),
    )
    burn_in_command = forms.CharField(label=_("Command"), required=False, max_length=2_000)
    burn_in_limit_seconds = SpanField(
        label=_("Burn-in limit"), shortest=1, help_text=_("Such as 10m.")
    )
    exporter_url = forms.CharField(
        label=_("Exporters at"),
        required=False,
        max_length=300,
        help_text=_("Such as http://{address}:9400/metrics; empty: found through their pods."),
    )
    prometheus_url = forms.CharField(
        label=_("Or a Prometheus server"), required=False, max_length=300
    )
    scrape_seconds = SpanField(label=_("Asked every"), shortest=5, help_text=_("Such as 15s."))

    def clean_burn_in_command(self) -> list[str]:
        """A shell line → its words."""
        try:
            return shlex.split(self.cleaned_data["burn_in_command"])
        except ValueError as error:
            raise ValidationError(_now("is no shell line: {error}").format(error=error)) from None

    def changes(self) -> dict[str, Any]:
        """What the service reads; call only when the form is valid."""
        return dict(self.cleaned_data)

    @staticmethod
    def values_of(policy: HealthPolicy) -> dict[str, Any]:
        """A policy as this form shows it."""
        return {
            "budget_percent": f"{policy.budget_percent:g}",
            "budget_nodes": policy.budget_nodes,
            "budget_window_seconds": span_text(policy.budget_window_seconds),
            "burn_in_image": policy.burn_in_image,
            "burn_in_command": shlex.join(policy.burn_in_command),
            "burn_in_limit_seconds": span_text(policy.burn_in_limit_seconds),
            "exporter_url": policy.exporter_url,
            "prometheus_url": policy.prometheus_url,
            "scrape_seconds": span_text(policy.scrape_seconds),
        }
