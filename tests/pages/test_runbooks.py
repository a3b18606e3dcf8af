"""Runbooks as pages: every one of docs/runbooks can be read, and says what its file says."""

import re

import pytest
from django.test import Client

from scheduler.views.runbooks import FOLDER, read_runbook
from tests.factories import make_user

SLUGS = sorted(path.stem for path in FOLDER.glob("*.md"))
pytestmark = pytest.mark.django_db


@pytest.fixture
def reader(client: Client) -> Client:
    client.force_login(make_user("vera"))
    return client


@pytest.mark.parametrize("slug", SLUGS)
def test_every_runbook_says_all_that_its_file_says(slug: str) -> None:
    blocks = read_runbook(slug) or []
    said = " ".join(p.text for block in blocks for item in block.items for p in item)
    written = re.sub(r"\]\([^)]+\)", "", (FOLDER / f"{slug}.md").read_text())
    marks = re.compile(r"^(#+ |- |\d+\. )", re.MULTILINE)
    words = marks.sub("", written).replace("`", "").replace("[", "").split()
    assert "".join(said.split()) == "".join(words)
    assert blocks[0].kind == "h1"
    links = [p.slug for b in blocks for item in b.items for p in item if p.kind == "link"]
    assert set(links) <= set(SLUGS)


def test_a_runbook_is_a_page_with_its_lists_code_and_links(reader: Client) -> None:
    page = reader.get("/runbooks/node-lost/").content.decode()
    assert "<h1>Node lost</h1>" in page
    assert "<ol><li>" in page
    assert "<code>kubectl delete node NAME</code>" in page
    page = reader.get("/runbooks/drain/").content.decode()
    assert '<a href="/runbooks/node-lost/">node lost</a>' in page


@pytest.mark.parametrize("slug", ["unknown", "README", "..", "node_lost"])
def test_what_is_no_runbook_is_not_found(reader: Client, slug: str) -> None:
    assert reader.get(f"/runbooks/{slug}/").status_code == 404


def test_strangers_are_sent_to_the_login(client: Client) -> None:
    assert client.get("/runbooks/node-lost/").status_code == 302
