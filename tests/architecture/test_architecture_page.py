"""docs/architecture.md names files that exist, and each still has its part in a parameter's way."""

import re

import pytest

from tests.architecture.pages import ROOT, code_words, table

PAGE = "docs/architecture.md"
STEPS = table(PAGE, "The way of one parameter")


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[0])
def test_each_step_of_the_parameters_way_is_where_the_page_says(step: list[str]) -> None:
    file, word = code_words(step[1])[0], code_words(step[2])[0]
    assert word in (ROOT / file).read_text()


def test_every_file_that_the_documentation_names_exists() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(
            r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|html|js|css|md|yaml))`", page.read_text()
        )
    }
    assert len(named) > 20
    folders = (ROOT, ROOT / "templates")
    assert not [pair for pair in sorted(named) if not any((f / pair[1]).exists() for f in folders)]


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} → {target}")
    assert not broken, "\n".join(broken)
