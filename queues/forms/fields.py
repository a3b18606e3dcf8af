"""Fields of forms that read what people type: spans of time, quantities, lines. Called by the forms of all apps."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django_stubs_ext import StrOrPromise

from queues.forms import texts
from queues.quantities import QuantityError


class SpanField(forms.CharField):
    """A span of time as text; cleans to seconds or None. shortest: in seconds, for those that must have one."""

    def __init__(self, *, shortest: int = 0, **kwargs: Any) -> None:
        super().__init__(**{"max_length": 40} | kwargs)
        self.shortest = shortest

    def clean(self, value: Any) -> int | None:
        """Seconds."""
        seconds = texts.read_span(str(super().clean(value) or ""))
        if seconds is not None and seconds < self.shortest:
            least = texts.span_text(self.shortest)
            raise ValidationError(_("must be at least {least}").format(least=least))
        return seconds


class ReadField(forms.CharField):
    """Text that a function reads into values."""

    def __init__(self, read: Callable[[str], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.read = read

    def clean(self, value: Any) -> Any:
        """What `read` makes of the text."""
        return self.read(str(super().clean(value) or ""))


def lines(label: StrOrPromise, read: Callable[[str], Any], help_text: StrOrPromise) -> ReadField:
    widget = forms.Textarea(attrs={"rows": 2, "spellcheck": "false"})
    return ReadField(read, label=label, required=False, widget=widget, help_text=help_text)


def word(label: StrOrPromise, help_text: StrOrPromise = "", **attrs: str) -> forms.CharField:
    widget = forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off", **attrs})
    return forms.CharField(
        label=label, required=False, max_length=4096, widget=widget, help_text=help_text
    )


def whole(label: StrOrPromise, help_text: StrOrPromise = "") -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, help_text=help_text)


class QuantityField(forms.CharField):
    """CPU or memory as Kubernetes writes it, read into thousandths of a core or MiB."""

    def __init__(self, read: Callable[[str], int], **kwargs: Any) -> None:
        super().__init__(max_length=20, **kwargs)
        self.read = read

    def clean(self, value: Any) -> int:
        """The whole number. Raises ValidationError."""
        try:
            return self.read(super().clean(value))
        except QuantityError:
            raise ValidationError(_("Write a quantity such as 8, 500m or 64Gi.")) from None
