"""The manifests: they render with old and new kustomize, an API server takes every object, and they are locked down."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.processes import lineup
from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from tests.deploy.rendered import KUBECTLS, ROOT, pod_specs, render, written
from tests.services.binaries import runs_in_ci

PATHS = {
    "v1": "/api/v1",
    "apps/v1": "/apis/apps/v1",
    "batch/v1": "/apis/batch/v1",
    "policy/v1": "/apis/policy/v1",
    "networking.k8s.io/v1": "/apis/networking.k8s.io/v1",
    "rbac.authorization.k8s.io/v1": "/apis/rbac.authorization.k8s.io/v1",
    "scheduling.k8s.io/v1": "/apis/scheduling.k8s.io/v1",
}
PLURALS = {"NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses"}
SETTINGS = {"DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "FIELD_KEY", "PUBLIC_URL"}


@pytest.fixture(scope="module", params=KUBECTLS or [""])
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """All that is installed, as each kubectl that is there renders it."""
    if not request.param:
        if runs_in_ci():
            pytest.fail("CI needs Debian's package kubernetes-client")
        pytest.skip("kubectl is not installed (Debian: kubernetes-client)")
    return render(request.param)


@pytest.fixture
def sim() -> Iterator[ThreadedSimCluster]:
    with ThreadedSimCluster(uniform_profile(1)) as running:
        yield running


def post(sim: ThreadedSimCluster, body: dict[str, Any]) -> None:
    plural = PLURALS.get(body["kind"], body["kind"].lower() + "s")
    namespace = body["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    token = yaml.safe_load(Path(sim.kubeconfig).read_text())["users"][0]["user"]["token"]
    request = urllib.request.Request(
        f"{sim.url}{PATHS[body['apiVersion']]}{inside}/{plural}?fieldValidation=Strict",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 201
    except urllib.error.HTTPError as error:
        if body["kind"] == "PriorityClass" and error.code == 409:
            return
        pytest.fail(f"{body['kind']} {body['metadata']['name']}: {error.read().decode()}")


def test_an_api_server_takes_every_object(
    objects: list[dict[str, Any]], sim: ThreadedSimCluster
) -> None:
    order = {"Namespace": 0, "PriorityClass": 1}
    for body in sorted(objects, key=lambda body: order.get(body["kind"], 2)):
        post(sim, body)


def test_what_is_misspelt_is_refused_by_the_same_door(
    objects: list[dict[str, Any]], sim: ThreadedSimCluster
) -> None:
    deployment = next(body for body in objects if body["kind"] == "Deployment")
    spoilt = json.loads(json.dumps(deployment))
    spoilt["metadata"]["name"] = "spoilt"
    spoilt["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(pytest.fail.Exception, match="imagee"):
        post(sim, spoilt)


def test_each_process_of_the_lineup_is_deployed() -> None:
    plane = [*lineup.control_plane("0.0.0.0", 8000, ["default"]), *lineup.in_the_background()]
    processes = {spec.name.removesuffix("-default") for spec in plane}
    assert set(pod_specs(written())) == processes | {"setup"}


def test_each_deployed_command_is_that_of_the_lineup() -> None:
    specs = pod_specs(written())
    plane = [*lineup.control_plane("0.0.0.0", 8000, ["$(CLUSTER)"]), *lineup.in_the_background()]
    for spec in plane:
        name = spec.name.removesuffix("-$(CLUSTER)")
        assert specs[name]["containers"][0]["command"] == ["python", *spec.command[1:]], name


def test_every_pod_is_locked_down_and_gets_its_settings() -> None:
    for component, spec in pod_specs(written()).items():
        assert spec["securityContext"]["runAsNonRoot"], component
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"], component
            assert not security["allowPrivilegeEscalation"], component
            assert security["capabilities"] == {"drop": ["ALL"]}, component
            sources = [next(iter(source.values()))["name"] for source in container["envFrom"]]
            assert sources == ["muster-settings", "muster-secrets"], component
            assert "memory" in container["resources"]["limits"], component


def test_only_those_who_speak_to_kubernetes_have_a_token() -> None:
    with_token = {
        component
        for component, spec in pod_specs(written()).items()
        if spec["automountServiceAccountToken"]
    }
    assert with_token == {"web", "cluster", "health", "setup"}
    for component in with_token:
        assert pod_specs(written())[component]["serviceAccountName"] == f"muster-{component}"


def test_services_and_policies_select_pods_that_exist() -> None:
    objects = written()
    labels = [
        body["spec"]["template"]["metadata"]["labels"]
        for body in objects
        if body["kind"] in ("Deployment", "Job")
    ]
    for body in objects:
        spec = body.get("spec", {})
        selector = {
            "Service": lambda s: s["selector"],
            "PodDisruptionBudget": lambda s: s["selector"]["matchLabels"],
            "NetworkPolicy": lambda s: s["podSelector"]["matchLabels"],
        }.get(body["kind"])
        if selector is not None:
            wanted = selector(spec).items()
            assert any(wanted <= found.items() for found in labels), body["metadata"]["name"]


def test_required_settings_are_given_and_examples_are_refused() -> None:
    read = yaml.safe_load((ROOT / "deploy/kustomization.yaml").read_text())
    literals = [
        literal
        for generator in read["configMapGenerator"] + read["secretGenerator"]
        for literal in generator["literals"]
    ]
    given = dict(literal.split("=", 1) for literal in literals)
    assert given.keys() >= SETTINGS
    # prepare_run ends with an error while these are what they are here (tests/installation).
    for name in ("DATABASE_URL", "SECRET_KEY", "FIELD_KEY", "ADMIN_PASSWORD"):
        assert "change-me" in given[name]
