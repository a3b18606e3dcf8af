"""Runbooks as pages: docs/runbooks/*.md, so that the help for an alert is there when nothing else is.

They use few of Markdown's marks (headings, lists, `code`, links between runbooks), and this reads no others.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from controlplane.common.errors import NotVisibleError
from tenants.access import Actor
from tenants.views.shell import Frame, page, render_page

FOLDER = Path(settings.BASE_DIR) / "docs" / "runbooks"
MARKS = re.compile(r"`(?P<code>[^`]+)`|\[(?P<link>[^\]]+)\]\((?P<href>[^)]+)\)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text. kind: "text", "code" or "link" (to the runbook `slug`)."""

    kind: str
    text: str
    slug: str = ""


@dataclass(slots=True)
class Block:
    """kind: "h1", "h2", "p", "ul" or "ol". items: paragraphs have one."""

    kind: str
    items: list[list[Piece]] = field(default_factory=list)


@require_safe
@page
def runbook(request: HttpRequest, actor: Actor, slug: str) -> HttpResponse:
    """One runbook."""
    blocks = read_runbook(slug)
    if blocks is None:
        raise NotVisibleError(_("There is no such runbook."))
    title = "".join(piece.text for piece in blocks[0].items[0])
    context = {"title": title, "blocks": blocks[1:]}
    return render_page(request, actor, "scheduler/runbook.html", context, Frame("alerts"))


@lru_cache(maxsize=64)
def read_runbook(slug: str) -> list[Block] | None:
    """The runbook of that name, a heading first; None where there is none."""
    file = FOLDER / f"{slug}.md"
    return list(_blocks(file.read_text())) if file.is_file() else None


def _blocks(text: str) -> Iterator[Block]:
    block: Block | None = None
    for line in text.splitlines():
        kind, words = _line(line)
        if not words:
            if block is not None:
                yield block
            block = None
        elif block is not None and kind == block.kind in ("ul", "ol"):
            block.items.append(_pieces(words))
        elif block is not None and kind == "p":
            block.items[-1] += [Piece("text", " "), *_pieces(words)]
        else:
            if block is not None:
                yield block
            block = Block(kind, [_pieces(words)])
    if block is not None:
        yield block


def _line(line: str) -> tuple[str, str]:
    """What the line begins, and its words."""
    for mark, kind in (("## ", "h2"), ("# ", "h1"), ("- ", "ul")):
        if line.startswith(mark):
            return kind, line.removeprefix(mark).strip()
    numbered = re.match(r"\d+\. (.*)", line)
    return ("ol", numbered[1].strip()) if numbered else ("p", line.strip())


def _pieces(words: str) -> list[Piece]:
    found, at = [], 0
    for match in MARKS.finditer(words):
        if match.start() > at:
            found.append(Piece("text", words[at : match.start()]))
        at = match.end()
        found.append(_marked(match))
    if at < len(words):
        found.append(Piece("text", words[at:]))
    return found


def _marked(match: re.Match[str]) -> Piece:
    if match["code"]:
        return Piece("code", match["code"])
    target = match["href"]
    inside = "/" not in target and target.endswith(".md")
    return Piece("link" if inside else "text", match["link"], target.removesuffix(".md"))
