"""Reading the project's own documentation, for the tests that hold it to the code."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def table(page: str, heading: str) -> list[list[str]]:
    """Rows of the first table under a `## heading`, cells stripped, the head left out."""
    text = (ROOT / page).read_text()
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def code_words(cell: str) -> list[str]:
    """What stands between backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)
