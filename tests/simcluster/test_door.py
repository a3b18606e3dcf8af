"""The simulated cluster as a process: its command line, and what it must not import."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_simulated_cluster_imports_neither_django_nor_the_official_client() -> None:
    script = (
        "import sys, scheduler.simcluster.door, scheduler.simcluster.background; "
        "print([name for name in sys.modules if name.split('.')[0] in ('django', 'kubernetes')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["-m", "scheduler.simcluster"], ["manage.py", "simulate_cluster"]]
)
def test_command_prints_a_kubeconfig_serves_on_loopback_and_stops(
    command: list[str], tmp_path: Path
) -> None:
    config = tmp_path / "kubeconfig"
    process = subprocess.Popen(
        [sys.executable, *command, "--nodes", "5", "--gpus-per-node", "4", "--nodes-per-leaf", "2",
         "--leaves-per-spine", "2", "--kubeconfig", str(config), "--seed", "9"],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == str(config)
        address = re.search(
            r"server: (http://127\.0\.0\.1:\d+)", config.read_text(encoding="utf-8")
        )
        assert address is not None
        with urllib.request.urlopen(f"{address.group(1)}/api/v1/nodes") as response:
            nodes = json.load(response)["items"]
        leaves = [node["metadata"]["labels"]["network.topology.nvidia.com/leaf"] for node in nodes]
        assert leaves == ["leaf-00", "leaf-00", "leaf-01", "leaf-01", "leaf-02"]
        assert nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        assert config.stat().st_mode & 0o077 == 0
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
