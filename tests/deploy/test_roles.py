"""The roles by process: each may do its own work and nothing of the others'. That the cluster process needs no more
than its role is shown by tests/reconcile/test_rights.py, on a gang's whole life."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.cluster import Options
from scheduler.simcluster.profiles.model import uniform_profile
from tests.deploy.roles import RBAC, install_roles, token_of

NODES, PODS, SECRETS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/default/secrets"
LOG = "/api/v1/namespaces/default/pods/absent/log"
# Account → (method, path, whether it may).
MAY = [
    ("web", "GET", LOG, True),
    ("web", "GET", PODS, False),
    ("web", "GET", NODES, False),
    ("web", "GET", SECRETS, False),
    ("web", "DELETE", "/api/v1/namespaces/default/pods/absent", False),
    ("setup", "GET", NODES, True),
    ("setup", "GET", PODS, False),
    ("setup", "PATCH", f"{NODES}/absent", False),
    ("health", "PATCH", f"{NODES}/absent", False),
    ("health", "DELETE", "/api/v1/namespaces/default/pods/absent", False),
    ("cluster", "GET", PODS, True),
    ("cluster", "GET", f"{SECRETS}/absent", True),
    ("cluster", "GET", SECRETS, False),
    ("cluster", "GET", f"{RBAC}/clusterroles", False),
    ("cluster", "DELETE", f"{NODES}/absent", False),
    ("cluster", "DELETE", "/api/v1/namespaces/absent", False),
    ("", "GET", NODES, False),
    ("", "GET", LOG, False),
]


@pytest.fixture(scope="module")
def sim() -> Iterator[ThreadedSimCluster]:
    """A cluster that enforces roles, with ours installed."""
    with ThreadedSimCluster(uniform_profile(1), options=Options(rbac=True)) as running:
        running.call(install_roles)
        yield running


def status(sim: ThreadedSimCluster, token: str, method: str, path: str, body: object = None) -> int:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request = urllib.request.Request(
        sim.url + path,
        data=json.dumps(body if body is not None else {}).encode() if method != "GET" else None,
        headers={"Authorization": f"Bearer {token}", "Content-Type": kind},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(("account", "method", "path", "allowed"), MAY)
def test_each_process_may_do_its_own_work_only(
    sim: ThreadedSimCluster, account: str, method: str, path: str, allowed: bool
) -> None:
    name = f"muster-{account}" if account else "muster"
    answered = status(sim, token_of(name), method, path)
    assert (answered != 403) == allowed, answered
    assert answered in (200, 403, 404)
