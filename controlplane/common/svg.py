"""Small charts as SVG text: capacity and usage bars, and the map of a cluster. Pure.

Called by the template tags and by the map view. No `style` attribute ever (the content security
policy forbids it): colours come from classes, sizes from attributes. Every text is escaped here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """One bar, all in the same unit (GPUs). `ceiling` None: borrowing has no limit."""

    own: float
    borrowed: float
    nominal: float
    ceiling: float | None = None
    headroom: float = 0
    out: float = 0
    scale: float | None = None

    @property
    def full(self) -> float:
        """What the whole width stands for, so that nothing overflows."""
        known = (self.scale or 0, self.ceiling or 0, self.nominal, self.own + self.borrowed)
        return max(*known, 1) if self.scale is None else max(self.scale, self.own + self.borrowed)


def _rect(css: str, start: float, width: float, height: int, fill: str = "") -> str:
    if width <= 0:
        return ""
    paint = f' fill="url(#{fill})"' if fill else ""
    return f'<rect class="{css}" x="{start:.2f}%" width="{width:.2f}%" height="{height}"{paint}/>'


def _mark(css: str, at: float, top: int, bottom: int) -> str:
    return f'<line class="{css}" x1="{at:.2f}%" x2="{at:.2f}%" y1="{top}" y2="{bottom}"/>'


def capacity_bar(bar: Capacity, label: str, height: int = 10) -> str:
    """A bar: own use, then borrowed (hatched), out of service, with marks at nominal and ceiling.

    Widths are percentages, so that the bar fills its column while the hatches keep their shape.
    """
    share = PERCENT / bar.full
    own, borrowed = min(bar.own, bar.full) * share, bar.borrowed * share
    kept, out = bar.headroom * share, bar.out * share
    nominal = bar.nominal * share
    parts = [
        f'<rect class="track" x="0" y="0.5" width="100%" height="{height - 1}"/>',
        _rect("own", 0, own, height),
        _rect("borrowed", own, borrowed, height, "hatch-a"),
        _rect("kept", max(nominal - kept, own), min(kept, nominal - own), height, "hatch-b"),
        _rect("out", PERCENT - out, out, height),
        _mark("mark", nominal, -3, height + 3) if bar.nominal > 0 else "",
        _mark("limit", bar.ceiling * share, -2, height + 2)
        if bar.ceiling is not None and bar.ceiling > bar.nominal
        else "",
    ]
    return (
        f'<svg class="cap" role="img" width="100%" height="{height}" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


@dataclass(frozen=True, slots=True)
class Usage:
    """Units of one node or flavor: used by our jobs, by others, out of service, of so many."""

    used: int
    foreign: int
    out: int
    capacity: int


def usage_bar(usage: Usage, label: str, height: int = 8) -> str:
    """A thin bar: our use, then others' (hatched), the part that is out at the far end."""
    share = PERCENT / max(usage.capacity, 1)
    used, foreign, out = usage.used * share, usage.foreign * share, usage.out * share
    parts = [
        f'<rect class="track" x="0" y="0.5" width="100%" height="{height - 1}"/>',
        _rect("own", 0, used, height),
        _rect("foreign", used, foreign, height, "hatch-c"),
        _rect("gone", PERCENT - out, out, height, "hatch-d"),
    ]
    return (
        f'<svg class="cap" role="img" width="100%" height="{height}" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


@dataclass(frozen=True, slots=True)
class MapNode:
    """One node of the map. `css` is its state class, `used` and `gpus` count seats, `short` names it in its leaf."""

    name: str
    css: str
    used: int
    gpus: int
    label: str
    href: str
    short: str = ""


@dataclass(frozen=True, slots=True)
class MapLeaf:
    """A leaf (rail group) with its nodes in name order."""

    name: str
    nodes: Sequence[MapNode]
    note: str = ""


@dataclass(frozen=True, slots=True)
class MapSpine:
    """A spine with its leaves; the outermost box of the map."""

    name: str
    leaves: Sequence[MapLeaf]
    note: str = ""


def node_classes(css: str, used: int, gpus: int) -> str:
    """The class attribute of a node: what a live patch sends when the node changes.

    The fill has eight steps; any use at all shows at least one, and only a full node shows eight.
    """
    eighths = 0 if gpus <= 0 else used * 8 // gpus
    if used > 0:
        eighths = max(1, min(eighths, 8))
    return f"n {css} u{eighths}"


CELL, GAP, PER_ROW, PAD = 20, 4, 8, 10
# Where there is room a node is a tile: its name over a square for each GPU, in two rows.
TILE, SQUARE, SQUARES, SQUARES_TOP = (46, 36), (9, 7), 8, 16


@dataclass(frozen=True, slots=True)
class MapScale:
    """How large nodes are drawn: plain squares on big clusters, tiles with GPUs on small ones."""

    width: int
    height: int
    tiles: bool


SMALL, LARGE = MapScale(CELL, CELL, tiles=False), MapScale(*TILE, tiles=True)


def _tile_shapes(node: MapNode) -> str:
    """A tile's parts. A square carries the least use (in eighths) that lights it: the node's class tells the use."""
    w, h = TILE
    across, down = SQUARE
    n = min(node.gpus, SQUARES)
    half = max(1, -(-n // 2))
    squares = "".join(
        f'<rect class="q k{max(1, (i + 1) * 8 // n)}" x="{2.5 + i % half * (across + 2)}" '
        f'y="{SQUARES_TOP + 0.5 + i // half * (down + 2)}" width="{across - 1}" height="{down - 1}"/>'
        for i in range(n)
    )
    return (
        f'<rect class="cell" x=".5" y=".5" width="{w - 1}" height="{h - 1}"/>'
        f'<rect class="over b" x="1" y="1" width="{w - 2}" height="{h - 2}" fill="url(#hatch-b)"/>'
        f'<rect class="over c" x="1" y="1" width="{w - 2}" height="{h - 2}" fill="url(#hatch-c)"/>'
        f'<text x="3" y="11">{escape(node.short or node.name)}</text>{squares}'
        f'<path class="mark x" d="M{w - 12} 3l8 8M{w - 4} 3l-8 8"/>'
        f'<path class="mark d" d="M{w - 13} 1H{w - 1}V13Z"/>'
        f'<path class="mark q" d="M{w - 6} 3v5M{w - 6} 10v1.5"/>'
    )


def _cell_shapes() -> str:
    """What a node's square is made of; its class says which parts show."""
    s = CELL
    return (
        f'<rect class="cell" x=".5" y=".5" width="{s - 1}" height="{s - 1}"/>'
        f'<rect class="fill" x="2" y="2" width="{s - 4}" height="{s - 4}"/>'
        f'<rect class="over b" x="1" y="1" width="{s - 2}" height="{s - 2}" fill="url(#hatch-b)"/>'
        f'<rect class="over c" x="1" y="1" width="{s - 2}" height="{s - 2}" fill="url(#hatch-c)"/>'
        f'<path class="mark x" d="M5 5l{s - 10} {s - 10}M{s - 5} 5L5 {s - 5}"/>'
        f'<path class="mark d" d="M1 {s - 9}V{s - 1}H9Z"/>'
        f'<path class="mark q" d="M{s // 2} 5v6M{s // 2} 13.5v1.5"/>'
    )


def key_cell(css: str, used: int, gpus: int) -> str:
    """One square of the map by itself, for the key beside it."""
    return (
        f'<svg class="key-cell" aria-hidden="true" width="{CELL}" height="{CELL}">'
        f'<g class="{node_classes(css, used, gpus)}">{_cell_shapes()}</g></svg>'
    )


def _node(node: MapNode, x: int, y: int, tab: int, scale: MapScale) -> str:
    shapes = _tile_shapes(node) if scale.tiles else _cell_shapes()
    return (
        f'<a href="{escape(node.href)}" id="n-{escape(node.name)}" data-node="{escape(node.name)}" '
        f'class="{node_classes(node.css, node.used, node.gpus)}" '
        f'transform="translate({x} {y})" aria-label="{escape(node.label)}" tabindex="{tab}">'
        f"{shapes}</a>"
    )


def _leaf_size(leaf: MapLeaf, scale: MapScale) -> tuple[int, int]:
    rows = max(1, -(-len(leaf.nodes) // PER_ROW))
    width = PAD * 2 + PER_ROW * scale.width + (PER_ROW - 1) * GAP
    return width, PAD * 2 + rows * (scale.height + GAP) - GAP


def _leaf(leaf: MapLeaf, spine: str, scale: MapScale) -> str:
    """Name and note stand over the drawing: they keep their size where it shrinks, and are told anew alone."""
    width, height = _leaf_size(leaf, scale)
    cells = [
        _node(
            n,
            PAD + i % PER_ROW * (scale.width + GAP),
            PAD + i // PER_ROW * (scale.height + GAP),
            0 if i == 0 else -1,
            scale,
        )
        for i, n in enumerate(leaf.nodes)
    ]
    name = escape(leaf.name)
    return (
        f'<figure class="leaf-box"><figcaption><b>{name}</b>'
        f'<span id="{note_id(spine, leaf.name)}">{escape(leaf.note)}</span></figcaption>'
        f'<svg class="map-svg" role="group" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" aria-label="{name}">{"".join(cells)}</svg></figure>'
    )


def note_id(spine: str, leaf: str = "") -> str:
    """The id of the note beside the name of a spine, or of a leaf in it."""
    path = f"{spine}/{leaf}"
    return "note-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in path)


def spine_svg(spine: MapSpine, scale: MapScale = SMALL) -> str:
    """One spine: a drawing for each of its leaves, so that the page can flow leaves and spines into columns.

    Positions depend only on names and counts: the map keeps its shape while states change.
    """
    css = "leaves tiles" if scale.tiles else "leaves"
    return (
        f'<div class="{css}" role="group" aria-label="{escape(spine.name)}">'
        f"{''.join(_leaf(leaf, spine.name, scale) for leaf in spine.leaves)}</div>"
    )


def span_bar(start: float, end: float, css: str, ticks: Sequence[float], label: str) -> str:
    """A stretch of time on an axis, as shares from 0 to 1; at least a sliver, so that nothing vanishes."""
    width = max(end - start, 0.004)
    lines = [
        f'<line class="tick" x1="{t * PERCENT:.2f}%" x2="{t * PERCENT:.2f}%" y1="0" y2="100%"/>'
        for t in ticks
    ]
    return (
        f'<svg class="span" role="img" width="100%" height="20" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(lines)}"
        f'<rect class="bar {escape(css)}" x="{start * PERCENT:.2f}%" y="4" '
        f'width="{width * PERCENT:.2f}%" height="12"/></svg>'
    )


def span_axis(ticks: Sequence[tuple[float, str]]) -> str:
    """The axis over such stretches: a word at each tick; one at the very end has no room and is left out."""
    words = [
        f'<text x="{share * PERCENT:.2f}%" y="12">{escape(text)}</text>'
        for share, text in ticks
        if share < 0.94
    ]
    return (
        f'<svg class="span axis" aria-hidden="true" width="100%" height="16">{"".join(words)}</svg>'
    )


@dataclass(frozen=True, slots=True)
class ZoomNode:
    """A node drawn with its GPUs. cells: a class for each GPU by index: on, free, bad, suspect, unknown or out."""

    name: str
    css: str
    cells: Sequence[str]
    label: str
    href: str


TILE_WIDTH, TILE_HEIGHT, TILES_PER_ROW, CELL_STEP = 98, 36, 8, 12
LONGEST_NAME = 15


def _tile(node: ZoomNode, x: int, y: int, tab: int) -> str:
    """Name above, GPUs below; many GPUs are drawn narrower, so that all tiles are alike."""
    step = min(CELL_STEP, (TILE_WIDTH - 4) // max(1, len(node.cells)))
    cells = "".join(_gpu(css, 3 + index * step, step - 2) for index, css in enumerate(node.cells))
    short = node.name if len(node.name) <= LONGEST_NAME else f"…{node.name[1 - LONGEST_NAME :]}"
    return (
        f'<a href="{escape(node.href)}" id="t-{escape(node.name)}" data-node="{escape(node.name)}" '
        f'class="n tile {escape(node.css)}" transform="translate({x} {y})" '
        f'aria-label="{escape(node.label)}" tabindex="{tab}">'
        f'<rect class="cell" x=".5" y=".5" width="{TILE_WIDTH - 5}" height="{TILE_HEIGHT - 5}"/>'
        f'<text x="4" y="12">{escape(short)}</text>{cells}</a>'
    )


def _gpu(css: str, x: int, width: int) -> str:
    square = f'<rect class="g {escape(css)}" x="{x + 0.5}" y="17.5" width="{width}" height="10"/>'
    if css != "bad":
        return square
    return (
        square
        + f'<path class="cross" d="M{x + 1} 18l{width - 1} 9M{x + width} 18l-{width - 1} 9"/>'
    )


def zoom_svg(name: str, nodes: Sequence[ZoomNode]) -> str:
    """One leaf with the GPUs of its nodes. At most some hundred nodes: a page shows one wide domain at a time."""
    rows = max(1, -(-len(nodes) // TILES_PER_ROW))
    columns = min(TILES_PER_ROW, max(1, len(nodes)))
    tiles = [
        _tile(
            node,
            index % TILES_PER_ROW * TILE_WIDTH,
            index // TILES_PER_ROW * TILE_HEIGHT,
            0 if index == 0 else -1,
        )
        for index, node in enumerate(nodes)
    ]
    width, height = columns * TILE_WIDTH, rows * TILE_HEIGHT
    return (
        f'<svg class="map-svg" role="group" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" aria-label="{escape(name)}">{"".join(tiles)}</svg>'
    )
