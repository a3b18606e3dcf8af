"""The roles by process: each may do its own work and nothing of the others'. That the cluster process needs no more
than its role is shown by tests/reconcile/test_rights.py, on a gang's whole life."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scheduler.simcluster.api.request import User
from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.cluster import Options
from scheduler.simcluster.profiles.model import uniform_profile
from tests.deploy.rendered import ROOT

RBAC = "/apis/rbac.authorization.k8s.io/v1"
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/muster-system/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}
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
    """A cluster that enforces roles, with ours installed; tokens are named as the accounts."""
    with ThreadedSimCluster(uniform_profile(1), options=Options(rbac=True)) as running:
        admin = yaml.safe_load(Path(running.kubeconfig).read_text())["users"][0]["user"]["token"]
        for name in ("namespace.yaml", "rbac.yaml"):
            for body in yaml.safe_load_all((ROOT / "deploy/kubernetes" / name).read_text()):
                assert status(running, admin, "POST", COLLECTIONS[body["kind"]], body) == 201
        known = {f"of-{account}": user_of(account) for account, *_rest in MAY}
        running.call(lambda cluster: cluster.access.tokens.update(known))
        yield running


def user_of(account: str) -> User:
    """Who a pod with this service account is to the API server."""
    name = f"muster-{account}" if account else "muster"
    full = f"system:serviceaccount:muster-system:{name}"
    return User(full, ("system:serviceaccounts", "system:authenticated"))


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
    answered = status(sim, f"of-{account}", method, path)
    assert (answered != 403) == allowed, answered
    assert answered in (200, 403, 404)
