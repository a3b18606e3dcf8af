"""The image and docker-compose.yml: what they name exists, and they run what the manifests run."""

import re
from pathlib import PurePosixPath

from controlplane.processes import lineup
from tests.deploy.rendered import ROOT, compose, pod_specs, written

SERVERS = {"postgres", "redis"}
# What the running product reads from its folder; tests, benchmarks and the repository's own files stay out.
NEEDED = {
    "controlplane",
    "tenants",
    "queues",
    "scheduler",
    "templates",
    "static",
    "locale",
    "manage.py",
}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line.strip() for line in joined.splitlines() if line.strip()]
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines]


def copied_from_here() -> list[str]:
    """Sources of COPY that are files of the repository."""
    return [
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]


def test_the_image_takes_what_exists_and_all_that_is_needed() -> None:
    sources = copied_from_here()
    for source in sources:
        assert (ROOT / source).exists(), source
    assert {PurePosixPath(source).parts[0] for source in sources} >= NEEDED


def test_what_is_copied_is_not_ignored() -> None:
    let_in = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for source in copied_from_here():
        assert any(source == kept or source.startswith(f"{kept}/") for kept in let_in), source


def test_the_image_installs_by_hash_and_runs_as_nobody() -> None:
    known = {"ARG", "FROM", "ENV", "RUN", "COPY", "WORKDIR", "USER", "VOLUME", "EXPOSE", "CMD"}
    assert {word for word, _rest in instructions()} <= known
    assert any("--require-hashes" in rest for word, rest in instructions() if word == "RUN")
    last_stage = instructions()[
        max(i for i, (word, _rest) in enumerate(instructions()) if word == "FROM") :
    ]
    assert ("USER", "10001:10001") in last_stage
    assert last_stage.index(("USER", "10001:10001")) > max(
        i for i, (word, _rest) in enumerate(last_stage) if word in ("RUN", "COPY")
    )


def test_compose_runs_the_processes_of_the_lineup() -> None:
    plane = [*lineup.control_plane("0.0.0.0", 8000, ["default"]), *lineup.in_the_background()]
    processes = {spec.name.removesuffix("-default") for spec in plane}
    assert set(compose()["services"]) == processes | SERVERS | {"setup"}


def test_compose_runs_what_the_manifests_run() -> None:
    manifests = pod_specs(written())
    for name, service in compose()["services"].items():
        if name in SERVERS:
            continue
        deployed = manifests[name]["containers"][0]["command"]
        command = [word.replace("${CLUSTER:-default}", "$(CLUSTER)") for word in service["command"]]
        assert command == deployed, name
        assert service["read_only"], name
        assert service["user"] == "10001:10001", name


def test_compose_asks_for_every_variable_that_the_example_names() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    asked = set(re.findall(r"\$\{([A-Z_]+)", text))
    example = (ROOT / "deploy/compose.env.example").read_text()
    assert set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE)) >= asked - {
        "PORT",
        "CLUSTER",
        "ADMIN_USER",
    }
