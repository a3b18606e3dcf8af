"""The Dockerfile played in a folder: what it copies and no more, its build steps, and what its processes load there.

No container runtime is needed. What is not played: the base image, and pip's download of what is locked.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from controlplane.processes import lineup
from tests.deploy.rendered import ROOT
from tests.deploy.test_image_and_compose import instructions
from tests.e2e.stack import TEST_VARIABLES

pytestmark = pytest.mark.slow
# Each process loads these before it does anything; a module or template that was not copied is found here.
LOAD = """
import django, sys
django.setup()
from django.core.management import get_commands, load_command_class
from django.template.loader import get_template
import celery.__main__, uvicorn
import controlplane.asgi, controlplane.celery, controlplane.processes.supervisor
for name in sys.argv[1:]:
    load_command_class(get_commands()[name], name).create_parser("manage.py", name)
get_template("base.html")
print(controlplane.__file__)
"""


def stage(first: bool) -> list[tuple[str, str]]:
    """The instructions of the stage that builds, or of the one that is shipped."""
    found = instructions()
    second = [i for i, (word, _rest) in enumerate(found) if word == "FROM"][1]
    return found[:second] if first else found[second:]


def environment_of(told: list[tuple[str, str]]) -> dict[str, str]:
    """What ENV sets."""
    pairs = [pair for word, rest in told if word == "ENV" for pair in shlex.split(rest)]
    return dict(pair.split("=", 1) for pair in pairs)


class Image:
    """A folder as the root of the file system. /opt/venv is the environment that the tests run in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "opt/muster"

    def at(self, text: str) -> str:
        """A command or value with its absolute paths inside the folder."""
        text = re.sub(r"(?<![\w/.])/(opt|tmp|var)/", f"{self.root}/\\1/", text)
        return text.replace(f"{self.root}/opt/venv/bin/python", sys.executable)

    def build(self) -> None:
        """COPY and RUN of the first stage, from the folder of the code on."""
        told = stage(first=True)
        environment = environment_of(told)
        inside = told[told.index(("WORKDIR", "/opt/muster")) :]
        self.home.mkdir(parents=True)
        for word, rest in inside:
            if word == "COPY":
                self._copy(*rest.split())
            elif word == "RUN":
                # Compiling one room shows the command as well as all of them would.
                fewer = rest.replace(
                    "compileall -q /opt/muster", "compileall -q /opt/muster/queues"
                )
                self.run(["sh", "-euc", self.at(fewer)], environment)

    def _copy(self, *words: str) -> None:
        *sources, target = words
        for source in sources:
            into_folder = target.endswith("/")
            place = self.home / target / (Path(source).name if into_folder else "")
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, place, ignore=ignored)
            else:
                shutil.copy(ROOT / source, place)

    def run(self, command: list[str], environment: Mapping[str, str]) -> str:
        """Run it in the folder of the code; what it printed."""
        inherited = {k: v for k, v in os.environ.items() if k not in TEST_VARIABLES}
        inherited.pop("PYTHONPATH", None)
        done = subprocess.run(
            command, cwd=self.home, capture_output=True, text=True, check=False,
            env=inherited | {name: self.at(value) for name, value in environment.items()},
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    made = Image(tmp_path_factory.mktemp("image"))
    made.build()
    return made


def test_pages_have_their_hashed_files(image: Image) -> None:
    static = image.root / "opt/static"
    named = json.loads((static / "staticfiles.json").read_text())["paths"]
    assert len(named) > 20
    for name, hashed in named.items():
        assert (static / hashed).is_file(), name
        assert name != hashed


def test_every_process_finds_what_it_loads(image: Image) -> None:
    plane = [*lineup.control_plane("0.0.0.0", 8000, ["default"]), *lineup.in_the_background()]
    managed = {spec.command[2] for spec in plane if spec.command[1] == "manage.py"}
    assert managed == {"run_cluster", "run_health", "run_whatif"}
    settings = {
        "DATABASE_URL": "sqlite://:memory:", "CELERY_BROKER_URL": "redis://localhost:1/0",
        "SECRET_KEY": "x" * 50, "FIELD_KEY": "dGVzdHMgZW5jcnlwdCB3aXRoIHRoaXMgMzIgYnl0ZXM=",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    }  # fmt: skip
    others = ["prepare_run", "create_token", "migrate"]
    command = [sys.executable, "-c", LOAD, *sorted(managed), *others]
    loaded = image.run(command, environment_of(stage(first=False)) | settings)
    assert loaded.strip().startswith(str(image.home))


def test_the_probe_says_whether_a_process_lives(image: Image, tmp_path: Path) -> None:
    probe = ["sh", "deploy/alive.sh", "pulse", "60"]
    environment = os.environ | {"VAR": str(tmp_path)}

    def probed() -> int:
        return subprocess.run(
            probe, cwd=image.home, env=environment, capture_output=True, check=False
        ).returncode

    assert probed() != 0, "no sign of life at all"
    sign = tmp_path / "alive" / "pulse"
    sign.parent.mkdir()
    sign.touch()
    assert probed() == 0
    old = time.time() - 61
    os.utime(sign, (old, old))
    assert probed() != 0
