"""The forms of flavors and presets; `changes()` is what `services.catalogue` reads."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from queues.contract.catalogue import NVLINK_SIZES, FlavorFields, PresetFields
from queues.forms.fields import QuantityField
from queues.quantities import cpu_millis, cpu_text, memory_mib, memory_text


class FlavorForm(forms.Form):
    """A kind of accelerator capacity. name and cluster are only asked of a new one."""

    name = forms.CharField(
        label=_("Name"), max_length=40, help_text=_("Short, as people say it: h100.")
    )
    cluster = forms.ChoiceField(label=_("Cluster"))
    model = forms.CharField(
        label=_("Model"),
        max_length=63,
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
        help_text=_("The value of the node label, such as NVIDIA-H100-80GB-HBM3."),
    )
    model_label = forms.CharField(
        label=_("Node label"),
        max_length=316,
        initial=FlavorFields().model_label,
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
    )
    resource_name = forms.CharField(
        label=_("Resource"),
        max_length=253,
        initial=FlavorFields().resource_name,
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
        help_text=_("What a pod asks Kubernetes for."),
    )
    gpus_per_nvlink_domain = forms.TypedChoiceField(
        label=_("GPUs of an NVLink domain"),
        coerce=int,
        choices=[(size, str(size)) for size in NVLINK_SIZES],
        initial=FlavorFields().gpus_per_nvlink_domain,
        help_text=_("A tensor-parallel group never leaves one."),
    )
    default_cpu_millis_per_gpu = QuantityField(
        cpu_millis,
        label=_("CPU for each GPU"),
        initial=cpu_text(FlavorFields().default_cpu_millis_per_gpu),
        help_text=_("Cores, such as 8 or 500m, when a job does not say."),
    )
    default_memory_mib_per_gpu = QuantityField(
        memory_mib,
        label=_("Memory for each GPU"),
        initial=memory_text(FlavorFields().default_memory_mib_per_gpu),
        help_text=_("Such as 64Gi, when a job does not say."),
    )

    def __init__(self, *args: Any, clusters: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not clusters:
            del self.fields["name"], self.fields["cluster"]
            return
        field = self.fields["cluster"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, name) for name in clusters]

    def changes(self) -> dict[str, Any]:
        """What the service reads; call only when the form is valid."""
        return dict(self.cleaned_data)

    @staticmethod
    def values_of(fields: FlavorFields) -> dict[str, Any]:
        """A flavor's fields as this form shows them."""
        return asdict(fields) | {
            "default_cpu_millis_per_gpu": cpu_text(fields.default_cpu_millis_per_gpu),
            "default_memory_mib_per_gpu": memory_text(fields.default_memory_mib_per_gpu),
        }


class PresetForm(forms.Form):
    """What is merged into pods. The name is only asked of a new one."""

    name = forms.CharField(label=_("Name"), max_length=40)
    description = forms.CharField(label=_("What for"), required=False, max_length=200)
    flavor = forms.ChoiceField(
        label=_("Only for flavor"), required=False, help_text=_("Empty: for any.")
    )
    spec = forms.CharField(
        label=_("Merged into pods"),
        required=False,
        max_length=100_000,
        widget=forms.Textarea(attrs={"rows": 16, "spellcheck": "false"}),
        help_text=_(
            "JSON with any of: resources, capabilities, runtime_class_name, tolerations, node_selector, env, "
            "volumes, volume_mounts, annotations, labels, pod_security."
        ),
    )

    def __init__(
        self, *args: Any, flavors: Sequence[str], existing: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if existing:
            del self.fields["name"]
        field = self.fields["flavor"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", _now("any")), *((name, name) for name in flavors)]

    def clean_spec(self) -> dict[str, Any]:
        """The JSON object; its keys are the service's matter."""
        text = self.cleaned_data["spec"].strip()
        if not text:
            return {}
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValidationError(_now("is no JSON: {error}").format(error=error)) from None
        if not isinstance(found, dict):
            raise ValidationError(_now("must be a JSON object"))
        return found

    def changes(self) -> dict[str, Any]:
        """What the service reads; call only when the form is valid. An empty text is none at all."""
        return {
            name: value if name == "spec" else value or None
            for name, value in self.cleaned_data.items()
        }

    @staticmethod
    def values_of(fields: PresetFields) -> dict[str, Any]:
        """A preset's fields as this form shows them; what is empty is left out."""
        spec = {key: value for key, value in fields.spec.items() if value}
        return {
            "description": fields.description,
            "flavor": fields.flavor,
            "spec": json.dumps(spec, indent=2, ensure_ascii=False),
        }
