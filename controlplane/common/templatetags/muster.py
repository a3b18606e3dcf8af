"""The design system's pieces as template tags; every page and pushed fragment uses them.

State chips, reason chips, capacity bars, fields, times and amounts. What they look like is on the
page `templates/design.html`; their words come from `controlplane.common.looks`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.forms import (
    BoundField,
    CheckboxInput,
    CheckboxSelectMultiple,
    Select,
    Textarea,
)
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from controlplane.common import amounts, looks, sentences, svg

register = template.Library()
register.filter("count", amounts.count)
register.filter("duration", amounts.duration)
register.filter("memory", amounts.memory)
register.filter("cores", amounts.cores)
register.filter("moment", amounts.moment)


@register.simple_tag
def glyph(key: str) -> SafeString:
    """The 12-px shape of a state; decorative, since its word stands beside it."""
    return format_html(
        '<svg class="glyph" aria-hidden="true" width="12" height="12"><use href="#s-{}"/></svg>',
        key,
    )


@register.simple_tag
def icon(name: str) -> SafeString:
    """A 14-px icon; decorative, so a control that has only this needs an `aria-label`."""
    return format_html(
        '<svg class="icon" aria-hidden="true" width="14" height="14"><use href="#i-{}"/></svg>',
        name,
    )


def chip(look: looks.Look) -> SafeString:
    """Shape + word + colour of one state."""
    return format_html('<span class="st st-{}">{}{}</span>', look.key, glyph(look.key), look.word)


@register.simple_tag(name="look")
def look_chip(look: looks.Look) -> SafeString:
    """The chip of any look that a view has chosen."""
    return chip(look)


@register.simple_tag
def state(phase: str, outcome: str | None = None) -> SafeString:
    """The chip of a job."""
    return chip(looks.job_look(phase, outcome))


@register.simple_tag
def ending(ended_by: str) -> SafeString:
    """The chip of an attempt's end."""
    return chip(looks.ENDINGS.get(ended_by) or looks.Look("off", ended_by))


@register.simple_tag
def node_state(state_word: str) -> SafeString:
    """The chip of a node."""
    return chip(looks.node_look(state_word))


@register.simple_tag
def queue_state(state_word: str) -> SafeString:
    """The chip of a queue: open, held or closed."""
    return chip(looks.QUEUES.get(state_word) or looks.Look("off", state_word))


@register.simple_tag
def why(
    code: str, numbers: Mapping[str, Any] | None = None, message: str = "", href: str = ""
) -> SafeString:
    """The chip of a reason: what kind of thing is missing | how much. The sentence is its title."""
    if not code:
        return mark_safe("")
    look = looks.reason_look(code)
    short = looks.reason_short(code, numbers or {})
    tag = "a" if href else "span"
    return format_html(
        '<{} class="why{}"{} title="{}"><b>{}{}</b><span>{}</span></{}>',
        mark_safe(tag),
        " never" if look.never else "",
        format_html(' href="{}"', href) if href else "",
        message or look.word,
        icon(look.icon),
        look.kind,
        short,
        mark_safe(tag),
    )


@register.simple_tag
def percent(share: float | None) -> str:
    """A share of 0 to 1 in whole percent."""
    return "–" if share is None else f"{share * 100:.0f} %"


@register.simple_tag
def event_words(event: Any) -> str:
    """An event (`common.models.Event`) as one line of a timeline."""
    return sentences.event_sentence(event.kind, event.message, event.numbers)


@register.simple_tag
def event_glyph(event: Any) -> SafeString:
    """The shape before that line."""
    return glyph(sentences.event_look(event.kind, event.numbers).key)


@register.simple_tag
def capacity(
    own: float, nominal: float, borrowed: float = 0, ceiling: float | None = None, **more: float
) -> SafeString:
    """The capacity bar; `more` may hold `headroom`, `out` and `scale` (see `svg.Capacity`)."""
    bar = svg.Capacity(own=own, borrowed=borrowed, nominal=nominal, ceiling=ceiling, **_known(more))
    label = _("{used} of {nominal} GPUs in use, {borrowed} of them borrowed").format(
        used=amounts.count(own + borrowed),
        nominal=amounts.count(nominal),
        borrowed=amounts.count(borrowed),
    )
    return mark_safe(svg.capacity_bar(bar, label))


@register.inclusion_tag("pieces/_capacity_text.html")
def capacity_text(
    own: float, nominal: float, borrowed: float = 0, ceiling: float | None = None
) -> dict[str, Any]:
    """The numbers of a capacity bar in words, with their keys; stands beside or below the bar."""
    return {"own": own, "nominal": nominal, "borrowed": borrowed, "ceiling": ceiling}


def _known(more: Mapping[str, float]) -> dict[str, float]:
    return {k: v for k, v in more.items() if k in ("headroom", "out", "scale")}


@register.simple_tag
def usage_bar(of: Any) -> SafeString:
    """The bar of anything with `used`, `foreign`, `out` and `capacity`."""
    usage = svg.Usage(of.used, of.foreign, of.out, of.capacity)
    label = _("{used} of {capacity} GPUs in use, {out} out").format(
        used=usage.used + usage.foreign, capacity=usage.capacity, out=usage.out
    )
    return mark_safe(svg.usage_bar(usage, label))


# What the key of the map shows: state, GPUs in use of eight, words (None: the state's own).
MAP_KEY = (
    ("free", 0, None),
    ("used", 3, pgettext_lazy("node", "partly used")),
    ("used", 8, None),
    ("cordoned", 4, None),
    ("draining", 4, None),
    ("maintenance", 0, None),
    ("reserved", 0, None),
    ("faulty", 0, None),
    ("unplugged", 0, None),
)


@register.simple_tag
def map_key() -> SafeString:
    """The key of the map: one square and its word for each state."""
    return format_html_join(
        "",
        "<span>{}{}</span>",
        (
            (mark_safe(svg.key_cell(css, used, 8)), word or looks.node_look(css).word)
            for css, used, word in MAP_KEY
        ),
    )


@register.simple_tag
def since(at: datetime | None, now: datetime | None = None) -> SafeString:
    """How long ago, kept fresh by `times.js`; the exact time is the title."""
    return _time(at, "since", lambda moment: moment - at if at else timedelta(), now)


@register.simple_tag
def until(at: datetime | None, now: datetime | None = None) -> SafeString:
    """How long until, kept fresh by `times.js`; the exact time is the title."""
    return _time(at, "until", lambda moment: at - moment if at else timedelta(), now)


def _time(at: datetime | None, kind: str, gap: Any, now: datetime | None) -> SafeString:
    if at is None:
        return mark_safe('<span class="dim">–</span>')
    return format_html(
        '<time datetime="{}" data-{}="" title="{}">{}</time>',
        at.isoformat(),
        mark_safe(kind),
        amounts.exact(at),
        amounts.duration(gap(now or timezone.now())),
    )


@register.simple_tag
def clock(at: datetime | None) -> SafeString:
    """The time of day, with the day when it is not today; the exact time is the title."""
    if at is None:
        return mark_safe('<span class="dim">–</span>')
    local, today = timezone.localtime(at), timezone.localdate()
    text = f"{local:%H:%M:%S}" if local.date() == today else f"{local:%m-%d %H:%M}"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(), amounts.exact(at), text
    )


@register.simple_tag
def start_window(p50: datetime | None, p90: datetime | None = None) -> SafeString:
    """When a waiting job is expected to start: likely, and late; exact times in the title."""
    if p50 is None:
        return mark_safe('<span class="dim">–</span>')
    late = format_html('<span class="dim"> … {}</span>', amounts.moment(p90)) if p90 else ""
    title = amounts.exact(p50) + (f" … {amounts.exact(p90)}" if p90 else "")
    return format_html(
        '<time datetime="{}" title="{}">{}{}</time>',
        p50.isoformat(),
        title,
        amounts.moment(p50),
        late,
    )


@register.filter
def who(actor: str) -> str:
    """Who did something: a person or process by name; a window without the time that tells its occurrences apart."""
    name, _mark, _time_of_it = actor.partition("@")
    return name


@register.filter
def short_id(public_id: str) -> str:
    """The last six characters of an id: enough to tell rows apart."""
    return public_id[-6:].lower()


@register.inclusion_tag("pieces/_field.html")
def field(bound: BoundField, unit: str = "", origin: str = "", css: str = "") -> dict[str, Any]:
    """A form field: label, control, help, errors; help and errors are tied to the control.

    `unit` stands behind the control, `origin` says where the default came from.
    """
    return {
        "bound": bound,
        "control": control(bound, described=bool(bound.help_text or origin)),
        "unit": unit or getattr(bound.field, "unit", ""),
        "origin": origin,
        "css": css,
        "is_check": isinstance(bound.field.widget, CheckboxInput),
        "is_select": type(bound.field.widget) is Select,
    }


@register.simple_tag
def control(bound: BoundField, *, described: bool = True) -> SafeString:
    """A field's control alone, tied to its help (`<id>-help`) and to its errors (`<id>-errors`)."""
    ids = [f"{bound.auto_id}-help"] if described else []
    ids += [f"{bound.auto_id}-errors"] if bound.errors else []
    attrs = {"class": _control_class(bound), "aria-describedby": " ".join(ids)}
    if bound.errors:
        attrs["aria-invalid"] = "true"
    return bound.as_widget(attrs={k: v for k, v in attrs.items() if v})


def _control_class(bound: BoundField) -> str:
    widget = bound.field.widget
    own = str(widget.attrs.get("class", ""))
    if isinstance(widget, CheckboxInput | CheckboxSelectMultiple):
        return own
    return f"control {'mono ' if isinstance(widget, Textarea) else ''}{own}".strip()
