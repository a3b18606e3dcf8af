"""The reader that takes over what has not changed, against the one that reads every page as a whole."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.health import pages
from scheduler.health.pages import PageReader, blocks_of
from scheduler.health.readings import read_page

FOLDER = Path(__file__).parent.parent / "fixtures" / "dcgm"
PAGES = sorted(FOLDER.glob("*.prom"))
STEPS = 60


def moved(text: str, dice: random.Random) -> str:
    """The numbers of some measured metrics differ, as they do from scrape to scrape."""
    lines = text.split("\n")
    for place, line in enumerate(lines):
        if re.match(r"DCGM_FI_DEV_(GPU_TEMP|GPU_UTIL|FB_USED|POWER)", line):
            lines[place] = f"{line.rsplit(' ', 1)[0]} {dice.choice([0, 1, 35.5, 77, 90])}"
    return "\n".join(lines)


def with_odd_line(text: str, dice: random.Random) -> str:
    """Anything else: another code, pod, host, a value that is none, a line or a block that is gone, or twice."""
    lines = text.split("\n")
    place = dice.randrange(len(lines))
    line = lines[place]
    odd = dice.choice(
        [
            lambda: re.sub(r" \S+$", " NaN", line),
            lambda: re.sub(r" \S+$", " 2147483632", line),
            lambda: re.sub(r" \d+$", " 79", line),
            lambda: line.replace('pod="', 'pod="other-'),
            lambda: line.replace("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL"),
            lambda: line.replace('gpu="0"', 'gpu="one"'),
            lambda: "",
            lambda: f"{line}\n{line}",
            lambda: "# what else",
        ]
    )
    lines[place] = odd()
    return "\n".join(lines)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
@pytest.mark.parametrize("seed", [1, 2])
def test_reader_agrees_with_whole_reads_whatever_changes(path: Path, seed: int) -> None:
    dice, reader = random.Random(seed), PageReader()
    first = text = path.read_text()
    for step in range(STEPS):
        change: Callable[[str, random.Random], str]
        change = dice.choice([moved, moved, moved, with_odd_line, lambda *_: first])
        text = change(text, dice)
        assert reader.read("node", text) == read_page(text), f"seed {seed}, step {step}"


def test_reader_reads_only_the_numbers_that_move(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: list[str] = []

    def counted(text: str) -> object:
        whole.append(text)
        return read_page(text)

    monkeypatch.setattr(pages, "read_page", counted)
    dice, reader = random.Random(3), PageReader()
    text = (FOLDER / "dcgm_h100_node.prom").read_text()
    before = reader.read("node", text)
    assert reader.read("node", text) is before
    for _ in range(10):
        text = moved(text, dice)
        found = reader.read("node", text)
    # The first page, and the first on which these metrics moved.
    assert len(whole) == 2
    assert found == read_page(text)
    assert before == read_page((FOLDER / "dcgm_h100_node.prom").read_text())
    reader.forget_all_but([])
    reader.read("node", text)
    assert len(whole) == 3


def test_blocks_are_of_wanted_metrics_each_once() -> None:
    text = "# HELP DCGM_FI_DEV_GPU_TEMP t\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{} 1\n"
    blocks = blocks_of(text)
    assert blocks is not None
    assert list(blocks) == ["DCGM_FI_DEV_GPU_TEMP"]
    assert blocks_of(text + text) is None
    assert blocks_of(text.replace("GPU_TEMP{", "GPU_UTIL{")) is None
    assert blocks_of("DCGM_FI_DEV_GPU_TEMP{} 1\n") is None
    assert blocks_of(text.replace("GPU_TEMP", "OTHER")) == {}
