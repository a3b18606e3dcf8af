"""Translations: complete, compiled, and with the same placeholders as the original."""

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import translation
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parents[2]
LOCALE, TEMPLATES = ROOT / "locale", ROOT / "templates"
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
PLACEHOLDER = re.compile(r"\{\w+\}|%\(\w+\)s")


@pytest.fixture(autouse=True)
def _english_afterwards() -> Iterator[None]:
    """A test client leaves the language of its last request behind."""
    with translation.override("en"):
        yield


def entries(language: str) -> list[dict[str, str]]:
    """The messages of a .po file: context, original, plural, translation."""
    blocks = (LOCALE / language / "LC_MESSAGES/django.po").read_text().split("\n\n")[1:]
    return [_entry(block) for block in blocks if "\nmsgstr" in block and not block.startswith("#~")]


def _entry(block: str) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in block.splitlines():
        if line.startswith("msg"):
            name, _space, line = line.partition(" ")
            found[name] = ""
        if line.startswith('"') and name:
            found[name] += "".join(TEXT.findall(line))
    return found


def test_chinese_says_everything():
    empty = [e["msgid"] for e in entries("zh_Hans") if not (e.get("msgstr") or e.get("msgstr[0]"))]
    assert empty == []


def test_nothing_is_left_doubtful():
    assert "#, fuzzy" not in (LOCALE / "zh_Hans/LC_MESSAGES/django.po").read_text()


def test_chinese_has_the_placeholders_of_the_original():
    for entry in entries("zh_Hans"):
        said = entry.get("msgstr") or entry["msgstr[0]"]
        asked = set(PLACEHOLDER.findall(entry["msgid"] + entry.get("msgid_plural", "")))
        assert set(PLACEHOLDER.findall(said)) == asked, entry["msgid"]


@pytest.mark.parametrize("language", ["en", "zh_Hans"])
def test_catalogue_is_compiled(language):
    """A .po that was edited and not compiled would go unnoticed."""
    with (LOCALE / language / "LC_MESSAGES/django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for entry in entries(language):
        said = entry.get("msgstr")
        if said and "\\" not in entry["msgid"] + said:
            context = entry.get("msgctxt")
            found = (
                compiled.pgettext(context, entry["msgid"])
                if context
                else compiled.gettext(entry["msgid"])
            )
            assert found == said


def test_page_speaks_the_language_of_the_browser(sign_in):
    text = sign_in("ravi").get("/jobs/", headers={"Accept-Language": "zh-Hans"}).content.decode()
    assert '<html lang="zh-hans"' in text
    assert "提交作业" in text
    assert "需要 64，剩余 48" in text


def test_language_is_chosen_by_a_button_and_kept(sign_in):
    client = sign_in("ravi")
    client.post("/i18n/setlang/", {"language": "zh-hans", "next": "/jobs/"})
    assert "队列" in client.get("/jobs/").content.decode()


def test_every_text_of_the_templates_is_in_the_catalogue():
    """A template that was changed without `makemessages` would show English to everyone."""
    known = {(e.get("msgctxt", ""), e["msgid"]) for e in entries("zh_Hans")}
    unknown = sorted(
        {
            f"{path.name}: {text}"
            for path in TEMPLATES.rglob("*.html")
            for context, text in said_by(path)
            if (context, text) not in known
        }
    )
    assert unknown == []


def said_by(path: Path) -> Iterator[tuple[str, str]]:
    """Contexts and texts that a template has translated, as they stand in a .po file."""
    source = templatize(path.read_text(), origin=path.name)
    for call in ast.walk(ast.parse(source_of(source))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
            words = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
            texts = [word for word in words if isinstance(word, str)]
            if call.func.id == "pgettext":
                yield texts[0], escaped(texts[1])
            elif call.func.id in ("gettext", "ngettext"):
                yield "", escaped(texts[0])


def source_of(text: str) -> str:
    """Only the calls of what Django makes of a template: the rest of it is noise that no parser reads."""
    calls = re.findall(
        r"\\b(?:gettext|ngettext|pgettext|npgettext)\\(.*?\\)\\s", text + " ", re.DOTALL
    )
    return "\\n".join(call.strip() for call in calls)


def escaped(text: str) -> str:
    """As it is written between the quotes of a .po file."""
    return text.replace("\\\\", "\\\\\\\\").replace('"', '\\\\"').replace("\\n", "\\\\n")
