"""Pages of exporters, scrape after scrape: what has not changed since the last one is not read again.

A page comes in blocks, one a metric, each headed by `# HELP` and `# TYPE`. From one scrape to the next only the
blocks of a few measured values differ, and in them only the numbers: those are taken over, and everything else stays
as it was read. Whatever looks otherwise is read as a whole, by `read_page`, with which this agrees on every page.
Called by the `health` process, one reader for all exporters of a cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from scheduler.health import names
from scheduler.health.readings import GpuReading, read_page, uuid_of
from scheduler.health.text import labels_of, number_of

Readings = dict[str, GpuReading]
Blocks = dict[str, str]
_MARK = "\n# "


@dataclass(slots=True)
class _Block:
    """What is remembered of a block: the hash of its text, and of its series' labels (None: never looked at)."""

    digest: int
    series: int | None = None


@dataclass(slots=True)
class _Page:
    """What is remembered of an exporter's last page."""

    digest: int
    readings: Readings
    blocks: dict[str, _Block] = field(default_factory=dict)
    # Label text → UUID, of series whose numbers have moved.
    owners: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PageReader:
    """Reads the pages of many exporters. Not for two threads at once."""

    _pages: dict[str, _Page] = field(default_factory=dict)

    def read(self, exporter: str, text: str) -> Readings:
        """As `read_page`. The readings are not changed later; unchanged ones may be those of before."""
        known, digest = self._pages.get(exporter), hash(text)
        if known is not None and known.digest == digest:
            return known.readings
        blocks = blocks_of(text)
        if known is None or not _moved(known, blocks):
            known = self._pages[exporter] = _read_anew(known, text, blocks)
        known.digest = digest
        return known.readings

    def forget_all_but(self, exporters: Iterable[str]) -> None:
        """Of exporters that are gone nothing is kept."""
        kept = set(exporters)
        self._pages = {name: page for name, page in self._pages.items() if name in kept}


def blocks_of(text: str) -> Blocks | None:
    """The wanted blocks by metric; None for a page that is not in blocks, one a metric, one metric a value."""
    found: Blocks = {}
    keys: set[str] = set()
    for chunk in text.removeprefix("# ").split(_MARK):
        if not chunk.startswith("TYPE "):
            if not chunk.startswith("HELP ") or "\n" in chunk:
                return None
            continue
        name = chunk[5 : chunk.find(" ", 5)]
        last = chunk.rstrip("\n")
        if not last.startswith(name, last.rfind("\n") + 1) and "\n" in last:
            return None
        if name not in names.WANTED:
            continue
        key = names.GPU_METRICS.get(name, (name, 1))[0]
        if name in found or key in keys:
            return None
        found[name] = chunk
        keys.add(key)
    return found


def _read_anew(known: _Page | None, text: str, blocks: Blocks | None) -> _Page:
    """The whole page. The series of the blocks that moved are noted: they will move again."""
    page = _Page(0, read_page(text))
    if blocks is None or not all(_is_pure(name, chunk) for name, chunk in blocks.items()):
        return page  # no block is remembered: the next page is read as a whole, too
    for name, chunk in blocks.items():
        before, digest = known.blocks.get(name) if known else None, hash(chunk)
        block = page.blocks[name] = _Block(digest)
        if before is None or name not in names.GPU_METRICS:
            continue
        if before.digest == digest:
            block.series = before.series
        elif (series := _series_of(name, chunk)) is not None:
            block.series = hash(tuple(label_text for label_text, _ in series))
    return page


def _is_pure(name: str, chunk: str) -> bool:
    """Whether all lines of a block are of its metric."""
    lines = chunk.rstrip("\n").count("\n")
    return chunk.count(f"\n{name}{{") == lines


def _moved(known: _Page, blocks: Blocks | None) -> bool:
    """Take over the numbers that moved. False where more than numbers may have: the page has to be read anew."""
    if not blocks or blocks.keys() != known.blocks.keys():
        return False
    values: dict[str, dict[str, float]] = {}
    digests: dict[str, int] = {}
    for name, chunk in blocks.items():
        block, digest = known.blocks[name], hash(chunk)
        if block.digest != digest:
            digests[name] = digest
            if not _take_over(known, name, chunk, block, values):
                return False
    for name, digest in digests.items():
        known.blocks[name].digest = digest
    known.readings = _with_values(known.readings, values)
    return True


def _take_over(
    known: _Page, name: str, chunk: str, block: _Block, values: dict[str, dict[str, float]]
) -> bool:
    metric = names.GPU_METRICS.get(name)
    series = _series_of(name, chunk) if metric is not None else None
    if metric is None or series is None:
        return False
    if block.series is None or block.series != hash(tuple(text for text, _ in series)):
        return False
    key, factor = metric
    for text, number in series:
        uuid = known.owners.get(text)
        if uuid is None:
            uuid = known.owners[text] = uuid_of(labels_of(text))
        own = values.setdefault(uuid, {})
        own[key] = max(own.get(key, float("-inf")), number * factor)
    return True


def _series_of(name: str, chunk: str) -> list[tuple[str, float]] | None:
    """(label text, number) of a block's lines; None where one says anything but a number."""
    found = []
    head = len(name) + 1
    for line in chunk.split("\n")[1:]:
        if not line:
            continue
        end = line.rfind("}")
        if end < head or line[:head] != name + "{":
            return None
        number = number_of(line[end + 1 :])
        if number is None or names.is_blank(number):
            return None
        found.append((line[head:end], number))
    return found


def _with_values(readings: Readings, values: Mapping[str, Mapping[str, float]]) -> Readings:
    return {
        uuid: replace(reading, values={**reading.values, **values[uuid]})
        if uuid in values
        else reading
        for uuid, reading in readings.items()
    }
