"""The design system's pure pieces: words, amounts, and SVG that a strict policy accepts."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from django.template import engines

from controlplane.common import amounts, looks, sentences, svg
from controlplane.common.preferences import zone_named
from controlplane.common.templatetags import muster
from queues.lifecycle import EndedBy, Outcome, Phase
from scheduler.core.reasons import FOR_EVER, REASON_NUMBERS, ReasonCode

ROOT = Path(__file__).resolve().parents[2]
SPRITE = (ROOT / "templates/pieces/_sprite.html").read_text()


def render(source: str, **context: object) -> str:
    return engines["django"].from_string("{% load muster %}" + source).render(context)


def test_every_phase_outcome_and_ending_has_a_look():
    assert set(looks.PHASES) == set(Phase.values)
    assert set(looks.OUTCOMES) == set(Outcome.values)
    assert set(looks.ENDINGS) == set(EndedBy.values)


def test_every_look_has_a_glyph_in_the_sprite_and_a_colour():
    css = (ROOT / "static/css/pieces.css").read_text()
    every = [looks.PHASES, looks.OUTCOMES, looks.ENDINGS, looks.NODES, looks.QUEUES]
    for look in {look for table in every for look in table.values()}:
        assert f'id="s-{look.key}"' in SPRITE, look
        assert re.search(rf"\.st-{look.key}\b", css), look


def test_every_reason_has_words_an_icon_and_says_never_only_for_ever():
    assert set(looks.REASONS) == {str(code) for code in ReasonCode}
    for code, look in looks.REASONS.items():
        assert f'id="i-{look.icon}"' in SPRITE, code
        assert look.never == (ReasonCode(code) in FOR_EVER)


@pytest.mark.parametrize("code", list(ReasonCode))
def test_reason_short_uses_only_numbers_that_the_planner_always_gives(code):
    asked = set(re.findall(r"{(\w+)}", str(looks.REASONS[code].short)))
    assert asked <= set(REASON_NUMBERS[code])


def test_event_sentence_speaks_of_outcomes_phases_and_the_unknown():
    assert sentences.event_sentence("job.phase", "", {"to": "running"}) == "All replicas run"
    ended = {"to": "finished", "outcome": "timed_out"}
    assert sentences.event_sentence("job.phase", "limit 1 h", ended) == "Timed out: limit 1 h"
    assert sentences.event_sentence("pod.seen", "hello", {}) == "hello"
    assert sentences.event_sentence("pod.seen", "", {}) == "pod.seen"


def test_reason_short_without_its_numbers_falls_back_to_words():
    words = "no domain holds it whole"
    assert looks.reason_short("waiting_for_topology", {}) == words
    numbers: dict[str, object] = {"best_domain": None, "free_there": 6, "needed_nodes": 8}
    assert looks.reason_short("waiting_for_topology", numbers) == words
    numbers["best_domain"] = "leaf-03"
    assert looks.reason_short("waiting_for_topology", numbers) == "leaf-03 has 6 of 8 nodes"


def test_reason_short_speaks_epochs_and_spans():
    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert looks.reason_short("begin_time", {"begin_at": at.timestamp()}) == "from 01-02 03:04"
    assert looks.reason_short("waiting_for_booking", {"longest_seconds": 7500}) == (
        "fits if under 2 h 05"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-5, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (7500, "2 h 05"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
        (timedelta(days=3, hours=4), "3 d 4 h"),
    ],
)
def test_duration_uses_two_units_at_most(seconds, text):
    assert amounts.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0, "0"), (1234567, "1\u202f234\u202f567"), (2.5, "2.5")]
)
def test_count_groups_thousands(value, text):
    assert amounts.count(value) == text


def test_capacity_bar_never_overflows_and_carries_no_style():
    bar = svg.Capacity(own=300, borrowed=80, nominal=256, ceiling=512, scale=300)
    root = ElementTree.fromstring(svg.capacity_bar(bar, 'a "label" <b>'))
    assert root.attrib["aria-label"] == 'a "label" <b>'
    assert "style" not in {key for element in root.iter() for key in element.attrib}
    ends = [
        float(r.attrib["x"].rstrip("%")) + float(r.attrib["width"].rstrip("%"))
        for r in root.iter("rect")
    ]
    assert max(ends) <= 100.01


@pytest.mark.parametrize(
    ("used", "gpus", "step"),
    [(0, 8, 0), (1, 8, 1), (7, 8, 7), (8, 8, 8), (1, 72, 1), (71, 72, 7), (3, 0, 1)],
)
def test_node_classes_show_any_use_and_only_a_full_node_as_full(used, gpus, step):
    assert svg.node_classes("used", used, gpus) == f"n used u{step}"


def test_spine_svg_keeps_positions_when_states_change():
    def drawn(css: str, used: int) -> dict[str, str]:
        nodes = [
            svg.MapNode(f"n{i}", css, used, 8, f"n{i} <&>", f"/nodes/n{i}/") for i in range(20)
        ]
        root = ElementTree.fromstring(
            svg.spine_svg(svg.MapSpine("s", [svg.MapLeaf("l", nodes)] * 3))
        )
        assert not [e for e in root.iter() if "style" in e.attrib]
        return {e.attrib["id"]: e.attrib["transform"] for e in root.iter("a")}

    assert drawn("free", 0) == drawn("faulty", 8)
    assert len(drawn("free", 0)) == 20


def test_state_chip_has_shape_word_and_colour():
    html = render("{% state 'finished' 'timed_out' %}")
    assert 'href="#s-timed_out"' in html
    assert "timed out" in html
    assert "st-timed_out" in html


def test_reason_chip_escapes_what_the_planner_says():
    html = render(
        "{% why code numbers message %}",
        code="queue_held",
        numbers={"queue": "<i>"},
        message='"><script>',
    )
    assert "<script>" not in html
    assert "queue &lt;i&gt; is held" in html


def test_times_carry_the_exact_moment():
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    html = render("{% since at now %}", at=at, now=at + timedelta(minutes=3))
    assert 'datetime="2026-01-02T03:04:05+00:00"' in html
    assert "2026-01-02 03:04:05 UTC" in html
    assert ">3 min<" in html


@pytest.mark.parametrize("name", ["", "Nowhere/Town", "../etc/passwd", "x" * 80, "\0"])
def test_unknown_zone_is_refused(name):
    assert zone_named(name) is None


def test_short_id_tells_rows_apart():
    assert muster.short_id("job_01J8ZK0001QX7A") == "01qx7a"


def test_no_template_or_script_breaks_the_content_policy():
    """No inline style, handler or script: the policy forbids them and the browser would drop them."""
    for path in (ROOT / "templates").rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"\sstyle\s*=", text), path
        assert not re.search(r"\son[a-z]+\s*=", text), path
        assert not re.search(r"\bhx-on\b", text), path
        assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", text), path
        assert "<style" not in text, path


EVENT_NUMBERS: dict[str, object] = dict.fromkeys(
    (
        *("queue", "priority", "attempt", "cause", "grace_seconds", "ended_by", "pods", "gpus"),
        *("before", "after", "step", "key", "value"),
    ),
    1,
)
# Of these no timeline tells: they wake processes, or what they tell of has its own line.
SILENT_KINDS = {"node.usage", "attempt.pods", "job.phase", "job.reason"}


def test_every_event_of_a_job_or_node_has_words():
    named = re.compile(r'"((?:job|attempt|node|eviction|drift)\.[a-z_]+)"')
    kinds: set[str] = set()
    for room in ("queues", "scheduler"):
        for source in (ROOT / room).rglob("*.py"):
            kinds |= set(named.findall(source.read_text()))
    assert len(kinds) > 10
    told = {kind for kind in kinds if sentences.event_sentence(kind, "", EVENT_NUMBERS) != kind}
    assert kinds - told <= SILENT_KINDS


@pytest.mark.parametrize(
    ("gpus", "used", "lit"),
    [(8, 0, 0), (8, 1, 1), (8, 7, 7), (4, 1, 1), (4, 3, 3), (3, 2, 2), (0, 0, 0)],
)
def test_tile_lights_as_many_squares_as_gpus_are_in_use(gpus, used, lit):
    node = svg.MapNode("gpu-1", "used", used, gpus, "gpu-1", "/", "1")
    drawn = svg.spine_svg(svg.MapSpine("s", [svg.MapLeaf("l", [node])]), svg.LARGE)
    step = int(re.findall(r'class="n used u(\d)"', drawn)[0])
    squares = [int(k) for k in re.findall(r'class="q k(\d)"', drawn)]
    assert len(squares) == gpus
    assert sum(step >= k for k in squares) == lit
