"""The forms of maintenance windows, reservations and drains; `changes()` is what the services read."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from queues.forms.fields import SpanField
from queues.forms.texts import read_words, span_text
from scheduler.maintenance.recurrence import RecurrenceError, Span, zone_of
from scheduler.models import Crossing, MaintenanceWindow, RunningJobs, WindowKind

LOCAL = "%Y-%m-%dT%H:%M"
REPEATS = (
    ("", _("once")),
    ("FREQ=DAILY", _("every day")),
    ("FREQ=WEEKLY", _("every week")),
    ("FREQ=WEEKLY;INTERVAL=2", _("every second week")),
    ("FREQ=MONTHLY", _("every month, on this day")),
    ("other", _("by another rule")),
)
# Fields of the contract → the field of the form that its errors belong to.
FIELD_OF = {"ends_at": "lasts", "rrule": "rule", "nodes": "domains", "admits": "tenants"}
PART_OF = {"names": "names", "labels": "labels", "flavor": "flavor", "domains": "domains"}


class LocalTimeField(forms.CharField):
    """A wall-clock moment as the browser's field sends it; cleans to a naive datetime or None."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format=LOCAL)

    def clean(self, value: Any) -> datetime | None:
        """The moment, without a zone: another field names it."""
        text = str(super().clean(value) or "")
        if not text:
            return None
        try:
            return datetime.fromisoformat(text).replace(tzinfo=None)
        except ValueError:
            raise ValidationError(_now("must be a date and a time")) from None


class ZoneField(forms.CharField):
    """The name of a time zone; cleans to the zone."""

    def clean(self, value: Any) -> ZoneInfo:
        """The zone."""
        try:
            return zone_of(str(super().clean(value)))
        except RecurrenceError as error:
            raise ValidationError(str(error)) from None


class WhichNodes(forms.Form):
    """Nodes by domain, name, label or flavor; what is named together must all hold but names and domains add up."""

    domains = forms.CharField(
        label=_("Domains"),
        required=False,
        max_length=4000,
        widget=forms.TextInput(attrs={"list": "domain-names", "autocomplete": "off"}),
        help_text=_("Such as leaf/leaf-02, spine/spine-00."),
    )
    names = forms.CharField(
        label=_("Nodes by name"),
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
    )
    labels = forms.CharField(
        label=_("By label"), required=False, max_length=2000, help_text=_("Such as rack=r07.")
    )
    flavor = forms.ChoiceField(label=_("Of flavor"), required=False)

    def clean_domains(self) -> list[dict[str, str]]:
        """`leaf/leaf-02` → {"level", "name"}."""
        found = []
        for word in read_words(self.cleaned_data["domains"]):
            level, slash, name = word.partition("/")
            if not slash:
                raise ValidationError(
                    _now("“{word}” names no level; write it as leaf/leaf-02").format(word=word)
                )
            found.append({"level": level, "name": name})
        return found

    def clean_labels(self) -> dict[str, str]:
        """`rack=r07` → {"rack": "r07"}."""
        pairs = [word.partition("=") for word in read_words(self.cleaned_data["labels"])]
        if any(not mark for _key, mark, _value in pairs):
            raise ValidationError(_now("write labels as key=value"))
        return {key: value for key, _mark, value in pairs}

    def nodes(self) -> dict[str, Any]:
        """The selector as the services read it; call only when the form is valid."""
        sent = self.cleaned_data
        return {
            "names": read_words(sent["names"]),
            "domains": sent["domains"],
            "labels": sent["labels"],
            "flavor": sent["flavor"] or None,
        }

    @staticmethod
    def nodes_of(nodes: Mapping[str, Any]) -> dict[str, str]:
        """A stored selector as these fields show it."""
        domains = [f"{each['level']}/{each['name']}" for each in nodes.get("domains") or ()]
        labels = [f"{key}={value}" for key, value in (nodes.get("labels") or {}).items()]
        return {
            "domains": ", ".join(domains),
            "names": "\n".join(nodes.get("names") or ()),
            "labels": ", ".join(labels),
            "flavor": nodes.get("flavor") or "",
        }


class WallClock(forms.Form):
    """Checks that the moments typed in are ones that the clocks of the zone show."""

    def check_wall(self, zone: ZoneInfo | None, *names: str) -> None:
        """Refuse what lies in the hour that is skipped in spring."""
        for name in names:
            wall = self.cleaned_data.get(name)
            if wall is None or zone is None:
                continue
            back = wall.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None)
            if back != wall:
                message = _now("the clocks skip this time on that day; say {time}")
                self.add_error(name, message.format(time=f"{back:%H:%M}"))


class WindowForm(WhichNodes, WallClock):
    """A maintenance window or a reservation."""

    title = forms.CharField(label=_("Title"), max_length=200)
    cluster = forms.ChoiceField(label=_("Cluster"))
    kind = forms.ChoiceField(label=_("Kind"), choices=WindowKind.choices)
    starts_at = LocalTimeField(label=_("Starts"))
    lasts = SpanField(label=_("Lasts"), max_length=40, help_text=_("Such as 2h or 90m."))
    time_zone = ZoneField(
        label=_("Time zone"),
        max_length=64,
        help_text=_("Repetitions keep the wall clock of this zone."),
    )
    repeat = forms.ChoiceField(label=_("Repeats"), required=False, choices=REPEATS)
    rule = forms.CharField(
        label=_("Rule"),
        required=False,
        max_length=300,
        help_text=_("iCalendar, such as FREQ=MONTHLY;BYDAY=1TU, when it repeats by another rule."),
    )
    running_jobs = forms.ChoiceField(label=_("Jobs that run"), choices=RunningJobs.choices)
    latest_at = LocalTimeField(
        label=_("Leave anyway at"),
        required=False,
        help_text=_(
            "Of the first time; later ones keep the distance to their start. Empty: in time for the"
            " start; those that may finish, never."
        ),
    )
    crossing = forms.ChoiceField(label=_("May be placed across it"), choices=Crossing.choices)
    notice_minutes = forms.IntegerField(
        label=_("Notice"), min_value=0, help_text=_("Owners are told so long before.")
    )
    tenants = forms.CharField(
        label=_("Admits tenants"), required=False, max_length=2000, help_text=_("Of a reservation.")
    )
    queues = forms.CharField(
        label=_("Admits queues"),
        required=False,
        max_length=2000,
        help_text=_("Such as research.train."),
    )
    jobs = forms.CharField(label=_("Admits jobs"), required=False, max_length=4000)

    def __init__(
        self, *args: Any, clusters: Sequence[str], flavors: Sequence[str], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._choose("cluster", [(name, name) for name in clusters])
        self._choose("flavor", [("", _("any")), *((name, name) for name in flavors)])

    def clean(self) -> dict[str, Any]:
        """All fields, each moment one that there is."""
        self.check_wall(self.cleaned_data.get("time_zone"), "starts_at", "latest_at")
        return self.cleaned_data

    def _choose(self, name: str, choices: list[tuple[Any, Any]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def changes(self) -> dict[str, Any]:
        """What the service reads; call only when the form is valid."""
        sent = self.cleaned_data
        starts, ends = _moments(sent["starts_at"], sent["lasts"], sent["time_zone"])
        rule = sent["rule"] if sent["repeat"] == "other" else sent["repeat"]
        latest = sent["latest_at"]
        admits = {key: read_words(sent[key]) for key in ("tenants", "queues", "jobs")}
        return {
            "title": sent["title"],
            "cluster": sent["cluster"],
            "kind": sent["kind"],
            "starts_at": starts,
            "ends_at": ends,
            "time_zone": sent["time_zone"].key,
            "rrule": rule or None,
            "nodes": self.nodes(),
            "crossing": sent["crossing"],
            "running_jobs": sent["running_jobs"],
            "latest_at": latest and latest.replace(tzinfo=sent["time_zone"]).isoformat(),
            "notice_minutes": sent["notice_minutes"],
            "admits": admits if any(admits.values()) else None,
        }

    @classmethod
    def values_of(cls, row: MaintenanceWindow) -> dict[str, Any]:
        """A stored window as this form shows it."""
        known = row.rrule in [value for value, _word in REPEATS]
        zone = ZoneInfo(row.time_zone)
        admits: Mapping[str, Sequence[str]] = row.admits or {}
        return {
            "title": row.title,
            "cluster": row.cluster.name,
            "kind": row.kind,
            "starts_at": row.starts_at.astimezone(zone).strftime(LOCAL),
            "lasts": span_text(round((row.ends_at - row.starts_at).total_seconds())),
            "time_zone": row.time_zone,
            "repeat": row.rrule if known else "other",
            "rule": "" if known else row.rrule,
            "running_jobs": row.running_jobs,
            "latest_at": row.latest_at.astimezone(zone).strftime(LOCAL) if row.latest_at else "",
            "crossing": row.crossing,
            "notice_minutes": row.notice_minutes,
            **{key: ", ".join(admits.get(key, ())) for key in ("tenants", "queues", "jobs")},
            **cls.nodes_of(row.nodes),
        }


class OccurrenceForm(WallClock):
    """One time of a series, on the wall clock of the window's zone."""

    starts_at = LocalTimeField(label=_("Starts"))
    lasts = SpanField(label=_("Lasts"), max_length=40, help_text=_("Such as 2h or 90m."))
    reason = forms.CharField(label=_("Why"), max_length=1000, required=False)

    def __init__(self, *args: Any, zone: ZoneInfo, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._zone = zone

    def clean(self) -> dict[str, Any]:
        """All fields, each moment one that there is."""
        self.check_wall(self._zone, "starts_at")
        return self.cleaned_data

    @staticmethod
    def values_of(row: MaintenanceWindow, span: Span) -> dict[str, Any]:
        """A time as this form shows it."""
        return {
            "starts_at": span.starts_at.astimezone(ZoneInfo(row.time_zone)).strftime(LOCAL),
            "lasts": span_text(round((span.ends_at - span.starts_at).total_seconds())),
        }

    def changes(self, do: str) -> dict[str, Any]:
        """What the service reads; call only when the form is valid. do: "skip", "restore", else move."""
        sent = self.cleaned_data
        if do in ("skip", "restore"):
            return {"skipped": do == "skip", "reason": sent["reason"]}
        starts, ends = _moments(sent["starts_at"], sent["lasts"], self._zone)
        return {"starts_at": starts, "ends_at": ends, "reason": sent["reason"]}


def _moments(wall: datetime, seconds: float | None, zone: ZoneInfo) -> tuple[str, str]:
    """Start and end in UTC: hours that pass while the clocks change count as they pass."""
    starts = wall.replace(tzinfo=zone).astimezone(UTC)
    return starts.isoformat(), (starts + timedelta(seconds=seconds or 0)).isoformat()


def field_of(pointer: str) -> str:
    """The field that an error of a service belongs to: "/nodes/domains/0/name" → `domains`."""
    parts = pointer.strip("/").split("/")
    if parts[0] == "nodes" and len(parts) > 1:
        return PART_OF.get(parts[1], "domains")
    if parts[0] == "admits" and len(parts) > 1:
        return parts[1]
    return FIELD_OF.get(parts[0], parts[0])


class DrainForm(WhichNodes):
    """Nodes that an operator wants empty."""

    reason = forms.CharField(label=_("Why"), max_length=1000)
    running_jobs = forms.ChoiceField(label=_("Jobs that run"), choices=RunningJobs.choices)
    within = SpanField(
        label=_("Leave anyway after"),
        required=False,
        max_length=40,
        help_text=_("Such as 4h. Empty: when they are done, or have saved."),
    )
    plan_id = forms.CharField(required=False, max_length=40, widget=forms.HiddenInput)

    def __init__(self, *args: Any, flavors: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["flavor"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", _("any")), *((name, name) for name in flavors)]
        self.fields["running_jobs"].initial = RunningJobs.CHECKPOINT

    def changes(self, now: datetime) -> dict[str, Any]:
        """What the service reads; call only when the form is valid."""
        sent = self.cleaned_data
        within = sent["within"]
        latest = None if within is None else now + timedelta(seconds=within)
        return {
            "nodes": self.nodes(),
            "reason": sent["reason"],
            "running_jobs": sent["running_jobs"],
            "latest_at": latest.isoformat() if latest else None,
            "plan_id": sent["plan_id"] or None,
        }
