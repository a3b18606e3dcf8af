"""The form of a queue's settings; `changes()` is what `services.queues` reads."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from queues.contract.queue_fields import QueueFields
from queues.forms.fields import SpanField
from queues.forms.texts import read_words, span_text
from queues.models import Queue, QueueState


class QueueForm(forms.Form):
    """Everything that a tenant admin tunes; presets, which may say more than pods may, only for platform admins."""

    state = forms.ChoiceField(
        label=_("State"),
        choices=QueueState.choices,
        help_text=_("closed: takes no jobs. held: takes jobs, starts none."),
    )
    flavors = forms.CharField(
        label=_("Flavors, in order of preference"),
        max_length=1000,
        help_text=_("A job that names no GPU model tries them in this order."),
    )
    default_limit = SpanField(
        label=_("Time limit when none is asked"),
        required=False,
        max_length=40,
        help_text=_("Such as 24h; empty: none."),
    )
    longest_limit = SpanField(
        label=_("Longest time limit"), required=False, max_length=40, help_text=_("Empty: none.")
    )
    highest_priority_submitter = forms.IntegerField(label=_("Highest priority of a submitter"))
    highest_priority_admin = forms.IntegerField(label=_("Highest priority of an admin"))
    user_fair_share = forms.BooleanField(
        label=_("Whoever has used less goes first, within one priority"), required=False
    )
    bookings = forms.IntegerField(
        label=_("Bookings"),
        help_text=_("How many of the first blocked jobs get a start that nobody may delay."),
    )
    booking_after = SpanField(
        label=_("A booking for every job after"),
        required=False,
        max_length=40,
        help_text=_("However far back it stands."),
    )
    backfill_order = forms.ChoiceField(label=_("Fill gaps with"), choices=Queue.BACKFILL_ORDERS)
    min_runtime = SpanField(
        label=_("Safe from preemption for"),
        required=False,
        help_text=_(
            "After its start no job makes a job leave for so long. Such as 10m; empty: not at all."
        ),
    )
    on_waste = forms.ChoiceField(
        label=_("When GPUs stand idle"),
        required=False,
        choices=[
            ("alert", _("tell the owner")),
            ("lower", _("also lower the job's protection")),
            ("stop", _("also stop the job")),
        ],
    )
    presets = forms.MultipleChoiceField(
        label=_("Presets that jobs may name"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )

    def __init__(self, *args: Any, presets: Sequence[str] = (), **kwargs: Any) -> None:
        """presets: all there are, for those who may give them; without any the field is not there."""
        super().__init__(*args, **kwargs)
        if not presets:
            del self.fields["presets"]
            return
        field = self.fields["presets"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(name, name) for name in presets]

    @staticmethod
    def values_of(fields: QueueFields) -> dict[str, Any]:
        """A queue's fields as this form shows them."""
        return {
            "state": fields.state,
            "flavors": ", ".join(fields.flavors),
            "default_limit": span_text(fields.default_max_runtime_seconds),
            "longest_limit": span_text(fields.longest_max_runtime_seconds),
            "highest_priority_submitter": fields.highest_priority_submitter,
            "highest_priority_admin": fields.highest_priority_admin,
            "user_fair_share": fields.user_fair_share,
            "bookings": fields.bookings,
            "booking_after": span_text(fields.booking_after_seconds),
            "backfill_order": fields.backfill_order,
            "min_runtime": span_text(fields.min_runtime_seconds or None),
            "on_waste": fields.on_waste,
            "presets": list(fields.presets),
        }

    def changes(self) -> dict[str, Any]:
        """What the service reads; call only when the form is valid."""
        sent = dict(self.cleaned_data)
        sent["flavors"] = read_words(sent["flavors"])
        for field, name in RENAMED.items():
            sent[name] = sent.pop(field)
        sent["min_runtime_seconds"] = sent["min_runtime_seconds"] or 0
        if not sent["on_waste"]:
            del sent["on_waste"]
        if sent["booking_after_seconds"] is None:
            del sent["booking_after_seconds"]
        return sent


RENAMED = {
    "default_limit": "default_max_runtime_seconds",
    "longest_limit": "longest_max_runtime_seconds",
    "booking_after": "booking_after_seconds",
    "min_runtime": "min_runtime_seconds",
}


class NewQueueForm(forms.Form):
    """A new queue: a name and its flavors; it begins closed and is tuned on its own page."""

    name = forms.CharField(
        label=_("Name"),
        max_length=40,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    cluster = forms.ChoiceField(label=_("Cluster"))
    flavors = forms.CharField(label=_("Flavors"), max_length=1000)

    def __init__(
        self, *args: Any, clusters: Sequence[str], flavors: Sequence[str], **kw: Any
    ) -> None:
        super().__init__(*args, **kw)
        self.fields["cluster"].choices = [(c, c) for c in clusters]  # type: ignore[attr-defined]
        self.fields["flavors"].help_text = _("In order of preference, such as: {flavors}").format(
            flavors=", ".join(flavors)
        )

    def changes(self) -> dict[str, Any]:
        """What the service reads."""
        return {**self.cleaned_data, "flavors": read_words(self.cleaned_data["flavors"])}


FIELD_OF: dict[str, str] = {name: field for field, name in RENAMED.items()}
