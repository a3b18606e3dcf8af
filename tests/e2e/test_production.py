"""`make run` on PostgreSQL and Redis: it finds the cluster's GPUs, runs gangs, and needs no broker to do so."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.cluster import Options
from tests.deploy.roles import install_roles, kubeconfig_of, refused_to_us
from tests.e2e.production import Installation, running_installation
from tests.e2e.stack import ROOT, wait_until
from tests.services.session import Session

# A little longer than the lease in the suite; half a minute by `make chaos`.
BROKER_AWAY_SECONDS = float(os.environ.get("BROKER_AWAY_SECONDS") or 14)
pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def installation(
    services: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """A running installation beside a cluster of 72 nodes that refuses all but what the shipped role names."""
    folder = tmp_path_factory.mktemp("production")
    with ThreadedSimCluster("demo", options=Options(rbac=True)) as cluster:
        cluster.call(install_roles)
        kubeconfig = Path(kubeconfig_of(cluster.cluster, "muster-cluster", folder))
        with running_installation(folder, services, kubeconfig) as running:
            yield running
        refused = set(cluster.call(refused_to_us))
        # Where no exporter has a pod the health process tries the one right that rbac.yaml leaves to the installer.
        assert not {text for text in refused if not text.endswith(" get nodes/proxy")}


def submitted(installation: Installation, **fields: object) -> str:
    """A job of the tenant that the first start has made."""
    made = installation.api.submit(tenant="default", queue="default", **fields)
    return str(made["id"])


def test_the_first_start_offers_what_the_cluster_has(installation: Installation) -> None:
    flavors = installation.api.get("flavors/")["results"]
    assert {f["name"] for f in flavors} == {"nvidia-h100-80gb-hbm3", "nvidia-a100-sxm4-80gb"}


def test_a_gang_runs_and_finishes_on_postgresql_and_redis(installation: Installation) -> None:
    leaf = {"level": "leaf", "mode": "required"}
    job_id = submitted(installation, replicas=8, topology=leaf, run_seconds=1, log_lines=2)
    running = installation.api.until(job_id, "running", 20)
    assert len({p["node"] for p in running["placement"]}) == 8
    assert installation.api.until(job_id, "finished", 20)["outcome"] == "succeeded"


def test_jobs_start_within_three_seconds_while_the_broker_is_stopped(
    installation: Installation,
) -> None:
    installation.broker.stop()
    try:
        for _ in range(3):
            job_id = submitted(installation, replicas=2, run_seconds=1)
            started = installation.api.until(job_id, "running", 3)
            assert started["phase"] in {"running", "finished"}
            assert installation.api.until(job_id, "finished", 20)["outcome"] == "succeeded"
    finally:
        installation.broker.start()


def test_jobs_start_when_the_scheduler_is_started_without_a_broker(
    installation: Installation,
) -> None:
    installation.broker.stop()
    try:
        kill(installation, "scheduler")
        job_id = submitted(installation, replicas=2, run_seconds=1)
        assert installation.api.until(job_id, "running", 20)["phase"] in {"running", "finished"}
    finally:
        installation.broker.start()


def test_gangs_survive_cut_connections_and_a_leader_that_comes_back_late(
    installation: Installation,
) -> None:
    """Redis is gone all the while. Two schedulers; the leader stands still until the other has taken over."""
    installation.broker.stop()
    second = installation.second_scheduler()
    paused = pid_of(installation, "scheduler")
    try:
        sent = [submitted(installation, replicas=r, run_seconds=4) for r in (1, 2, 4, 8) * 3]
        os.kill(paused, signal.SIGSTOP)
        until = time.monotonic() + BROKER_AWAY_SECONDS
        cut = 0
        while time.monotonic() < until:
            cut += installation.cut_connections()
            time.sleep(2)
        os.kill(paused, signal.SIGCONT)
        for job_id in sent:
            assert installation.api.until(job_id, "finished", 60)["outcome"] == "succeeded"
        assert cut > 10, "too few connections were cut to mean anything"
        holders = installation.rows("select token from scheduler_lease")
        assert holders[0][0] >= 2, "nobody took over"
        assert installation.rows("select count(*) from scheduler_seat") == [(0,)]
    finally:
        os.kill(paused, signal.SIGCONT)
        second.kill()
        second.wait(10)
        installation.broker.start()


def kill(installation: Installation, name: str) -> None:
    """`kill -9`, and wait for the supervisor's new one."""
    pid = pid_of(installation, name)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid_of(installation, name) != pid, 10)


def pid_of(installation: Installation, name: str) -> int:
    """As the supervisor last wrote it."""
    return int(json.loads((installation.var / "pids.json").read_text())[name])


@pytest.mark.parametrize("name", ["DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "FIELD_KEY"])
def test_a_missing_setting_is_named(name: str) -> None:
    given = dict.fromkeys(("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "FIELD_KEY"), "x")
    del given[name]
    ran = subprocess.run(
        [sys.executable, "-m", "controlplane.processes"],
        cwd=ROOT,
        env={"PATH": "/usr/bin"} | given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert name in ran.stderr
