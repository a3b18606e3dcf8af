"""The documents lead somewhere: every relative link in them names a file that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    for target in LINK.findall(text):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached, left = set(), [ROOT / "README.md"]
    while left:
        document = left.pop()
        if document in reached or document.suffix != ".md":
            continue
        reached.add(document)
        for target in LINK.findall(document.read_text()):
            found = (document.parent / target).resolve()
            if "://" not in target and found.exists():
                left += sorted(found.glob("*.md")) if found.is_dir() else [found]
    assert {path for path in DOCUMENTS if path.parent != ROOT} <= reached
