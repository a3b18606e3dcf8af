"""The form of a cluster's topology levels: one node label for each level, empty where the level is not used."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from queues.models import Level

WORDS = {
    "zone": (_("Zone"), _("a hall, a site, or all that one core network joins")),
    "spine": (_("Spine"), _("the leaves under one spine switch, or one block")),
    "leaf": (_("Leaf"), _("the nodes under one leaf switch, rail group or rack")),
    "nvlink": (_("NVLink domain"), _("nodes that share NVLink, such as one NVL72 rack")),
}
LONGEST_LABEL = 316


class LevelsForm(forms.Form):
    """A field for each level, widest first. suggestions: labels that nodes bear, offered while typing."""

    def __init__(self, *args: Any, suggestions: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in Level.NAMES:
            label, told = WORDS[name]
            attrs = {"class": "mono", "list": suggestions, "spellcheck": "false"}
            self.fields[name] = forms.CharField(
                label=label,
                help_text=told,
                required=False,
                max_length=LONGEST_LABEL,
                widget=forms.TextInput(attrs=attrs),
            )

    @property
    def levels(self) -> list[tuple[str, str]]:
        """(level, label) of those that are used, widest first; call only when the form is valid."""
        return [(name, self.cleaned_data[name]) for name in Level.NAMES if self.cleaned_data[name]]

    def changes(self) -> dict[str, Any]:
        """What the service reads."""
        return {"levels": [{"name": name, "node_label": label} for name, label in self.levels]}

    @staticmethod
    def values_of(levels: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Levels as this form shows them."""
        return dict(levels)

    def pointer_field(self, pointer: str) -> str:
        """The field that an error of the service speaks of: `/levels/1/node_label` → `spine`."""
        parts = pointer.strip("/").split("/")
        used = [name for name, _label in self.levels]
        if len(parts) > 1 and parts[1].isdecimal() and int(parts[1]) < len(used):
            return used[int(parts[1])]
        return ""
