"""The shipped roles in a simulated cluster that refuses everything else; for whoever runs the product against one.

Make the cluster with `Options(rbac=True)`, call `install_roles`, and let a process speak with `token_of` its account.
`refused_to_us` says afterwards what was forbidden to the shipped accounts: nothing, where all works.
"""

from pathlib import Path
from typing import Any

import yaml

from scheduler.simcluster.api.request import User
from scheduler.simcluster.cluster import SimCluster
from tests.deploy.rendered import ROOT
from tests.simcluster.direct import Direct

NAMESPACE = "muster-system"
OURS = f"system:serviceaccount:{NAMESPACE}:"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}
ACCOUNTS = ("muster", "muster-cluster", "muster-web", "muster-health", "muster-setup")


def role_objects() -> list[dict[str, Any]]:
    """As deploy/ has them, the namespace first."""
    files = [ROOT / "deploy/kubernetes" / name for name in ("namespace.yaml", "rbac.yaml")]
    return [body for file in files for body in yaml.safe_load_all(file.read_text())]


def install_roles(sim: SimCluster) -> None:
    """In the cluster's own thread: make the objects, and know each account by its token."""
    direct = Direct(sim)
    for body in role_objects():
        direct.ok("POST", COLLECTIONS[body["kind"]], body)
    sim.access.tokens.update({token_of(account): user_of(account) for account in ACCOUNTS})


def token_of(account: str) -> str:
    """What a pod with this service account finds in its volume."""
    return f"token-of-{account}"


def user_of(account: str) -> User:
    """Who a pod with this service account is to the API server."""
    return User(OURS + account, ("system:serviceaccounts", "system:authenticated"))


def let_health_read_through_the_server(sim: SimCluster) -> None:
    """The one rule more that rbac.yaml names, for exporters that only the API server reaches."""
    rule = {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]}
    metadata = {"name": "muster-health-proxy"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"} | metadata
    subject = {"kind": "ServiceAccount", "name": "muster-health", "namespace": NAMESPACE}
    direct = Direct(sim)
    direct.ok("POST", COLLECTIONS["ClusterRole"], {"metadata": metadata, "rules": [rule]})
    direct.ok(
        "POST", COLLECTIONS["ClusterRoleBinding"],
        {"metadata": metadata, "roleRef": role, "subjects": [subject]},
    )  # fmt: skip


def kubeconfig_of(sim: SimCluster, account: str, folder: Path) -> str:
    """The path of a kubeconfig with which one is this account."""
    file = folder / f"kubeconfig-{account}"
    file.write_text(yaml.safe_dump(sim.kubeconfig_body(token_of(account), account)))
    return str(file)


def refused_to_us(sim: SimCluster) -> dict[str, int]:
    """What was forbidden to the shipped accounts, and how often."""
    return {text: count for text, count in sim.access.refused.items() if text.startswith(OURS)}
