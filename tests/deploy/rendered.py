"""What `kubectl kustomize deploy/` prints, and the compose file, for the tests of both."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
# Debian 12 has kubectl 1.20 with kustomize 2; KUBECTL may name others, with colons between.
KUBECTLS = [
    found
    for name in os.environ.get("KUBECTL", "kubectl").split(os.pathsep)
    if (found := shutil.which(name)) is not None
]


def render(kubectl: str) -> list[dict[str, Any]]:
    """The objects, in the order in which they are printed."""
    done = subprocess.run(
        [kubectl, "kustomize", str(ROOT / "deploy")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [body for body in yaml.safe_load_all(done.stdout) if body]


def written() -> list[dict[str, Any]]:
    """The objects as they are in the files that the kustomization names: kubectl is not needed for these."""
    named = yaml.safe_load((ROOT / "deploy/kustomization.yaml").read_text())["resources"]
    found = []
    for name in named:
        found += list(yaml.safe_load_all((ROOT / "deploy" / name).read_text()))
    return found


def pod_specs(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Pod specs of Deployments and Jobs, by component."""
    return {
        body["metadata"]["labels"]["app.kubernetes.io/component"]: body["spec"]["template"]["spec"]
        for body in objects
        if body["kind"] in ("Deployment", "Job")
    }


def compose() -> dict[str, Any]:
    """docker-compose.yml, anchors and merges resolved."""
    read: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return read
