"""What import-linter cannot see: the planner runs without Django, and no module is named by a string."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.pages import ROOT

APPS = ("controlplane", "tenants", "queues", "scheduler")
PURE = [
    room
    for room in ("scheduler.core", "scheduler.replay", "scheduler.health")
    if (ROOT / room.replace(".", "/")).is_dir()
]
BLOCKED = ("django", "celery", "kubernetes", "aiohttp", "queues", "tenants", "controlplane")


def modules_of(package: str) -> list[str]:
    folder = ROOT / package.replace(".", "/")
    names = (path.relative_to(ROOT).with_suffix("") for path in sorted(folder.rglob("*.py")))
    return [".".join(name.parts).removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("package", PURE)
def test_a_pure_room_can_be_imported_where_nothing_else_can(package: str) -> None:
    modules = modules_of(package)
    assert modules
    code = f"""
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
for name in {modules!r}:
    importlib.import_module(name)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def sources() -> Iterator[Path]:
    for app in APPS:
        for path in (ROOT / app).rglob("*.py"):
            if "migrations" not in path.parts:
                yield path


def dotted_strings(path: Path) -> Iterator[tuple[int, str]]:
    """Strings that name a module of ours: an import that the contracts would not see."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            first, dot, rest = node.value.partition(".")
            if dot and first in APPS and rest.replace(".", "").isidentifier():
                yield node.lineno, node.value


def is_module(name: str) -> bool:
    """Whether the dotted name, or what it is an attribute of, is a module of ours."""
    parts = name.split(".")
    candidates = (ROOT.joinpath(*parts[:length]) for length in range(len(parts), 1, -1))
    return any(c.is_dir() or c.with_suffix(".py").exists() for c in candidates)


def own_name(path: Path) -> str:
    """The module's dotted name."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


# The wiring that Django and Celery want as strings, and programs started as `python -m …`.
WIRING = {
    "controlplane/settings.py",
    "controlplane/celery.py",
    "controlplane/asgi.py",
    "controlplane/api.py",
    "tenants/api/security.py",
    "controlplane/processes/lineup.py",
    "controlplane/demo/stage.py",
}


def test_no_module_is_imported_by_a_string() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sources()
        if str(path.relative_to(ROOT)) not in WIRING and path.name not in {"apps.py", "urls.py"}
        for line, name in dotted_strings(path)
        if is_module(name) and not name.startswith(own_name(path))  # a task's own name
    ]
    assert not found, "\n".join(found)


def functions_that_import(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    yield f"{path.relative_to(ROOT)}:{inner.lineno}"


def test_no_function_imports() -> None:
    # AppConfig.ready() must: models cannot be imported before it.
    bodies = (path for path in sources() if path.name != "apps.py")
    found = [place for path in bodies for place in functions_that_import(path)]
    assert not found, "\n".join(found)


def test_every_module_opens_with_what_lives_in_it() -> None:
    bare = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.stat().st_size and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not bare, "\n".join(bare)
