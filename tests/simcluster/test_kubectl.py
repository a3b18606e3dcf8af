"""kubectl, unmodified, on the simulated cluster: the one on the path, or each of the colon-separated
programs in KUBECTL (Debian 12 has 1.20, which reads other documents than its successors)."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.store.resources import PODS

PROGRAMS = [
    found
    for name in os.environ.get("KUBECTL", "kubectl").split(os.pathsep)
    if (found := shutil.which(name)) is not None
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAMS, reason="kubectl is not installed"),
]
Run = Callable[..., str]
START_LIMIT_SECONDS = 20
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}}}
  annotations: {{sim.muster.dev/run-seconds: "{seconds}", sim.muster.dev/log-lines: "5"}}
spec:
  restartPolicy: Never
  nodeName: {node}
  terminationGracePeriodSeconds: 2
  containers: [{{name: main, image: "registry.example/train:1", resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]
"""


@pytest.fixture(scope="module", params=PROGRAMS or [""])
def program(request: pytest.FixtureRequest) -> str:
    """Each kubectl that is there."""
    return str(request.param)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home of its own: kubectl keeps what it has discovered there."""
    return {"HOME": str(tmp_path_factory.mktemp("home")), "PATH": os.environ["PATH"]}


@pytest.fixture(scope="module")
def minor(program: str, environment: dict[str, str]) -> int:
    """The minor version of the kubectl that runs."""
    shown = subprocess.run(
        [program, "version", "--client", "-o", "json"],
        capture_output=True, text=True, check=True, env=environment,
    ).stdout  # fmt: skip
    return int(re.sub(r"\D", "", json.loads(shown)["clientVersion"]["minor"]))


@pytest.fixture(scope="module")
def sim(program: str) -> Iterator[ThreadedSimCluster]:
    """The demo cluster in real time, a new one for each kubectl."""
    with ThreadedSimCluster("demo", seed=3) as running:
        yield running


@pytest.fixture(scope="module")
def kubectl(sim: ThreadedSimCluster, program: str, environment: dict[str, str]) -> Run:
    """Runs kubectl and returns what it prints; fails when it fails."""

    def run(
        *arguments: str, stdin: str | None = None, check: bool = True, timeout: float = 60
    ) -> str:
        done = subprocess.run(
            [program, "--kubeconfig", sim.kubeconfig, *arguments], input=stdin,
            capture_output=True, text=True, timeout=timeout, check=False, env=environment,
        )  # fmt: skip
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def start(sim: ThreadedSimCluster, kubectl: Run) -> Run:
    """Applies a pod and waits until it runs."""

    def begin(name: str, node: str, seconds: str = "forever") -> str:
        said = kubectl("apply", "-f", "-", stdin=POD.format(name=name, node=node, seconds=seconds))
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while phase_of(sim, name) != "Running":
            assert time.monotonic() < deadline, phase_of(sim, name)
            time.sleep(0.02)
        return said

    return begin


def phase_of(sim: ThreadedSimCluster, name: str) -> str:
    """The phase of a pod in the namespace `default`."""
    found = sim.call(lambda cluster: cluster.world.store.get(PODS, "default", name))
    return "" if found is None else str(found.body["status"]["phase"])


def test_get_nodes_prints_the_usual_columns(kubectl: Run) -> None:
    lines = kubectl("get", "nodes").splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert len(lines) == 73
    assert lines[1].split()[:3] == ["gpu-00000", "Ready", "<none>"]
    wide = kubectl("get", "nodes", "gpu-00003", "-o", "wide")
    assert "INTERNAL-IP" in wide
    assert "containerd://" in wide


def test_get_pods_events_and_namespaces_print_their_columns(kubectl: Run, start: Run) -> None:
    start("columns", "gpu-00001")
    lines = kubectl("get", "pods", "columns").splitlines()
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:4] == ["columns", "1/1", "Running", "0"]
    assert "gpu-00001" in kubectl("get", "pods", "columns", "-o", "wide")
    events = kubectl("get", "events")
    assert events.splitlines()[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "pod/columns" in events
    assert kubectl("get", "ns").splitlines()[1].split()[:2] == ["default", "Active"]
    assert json.loads(kubectl("get", "pod", "columns", "-o", "json"))["kind"] == "Pod"


def test_describe_shows_pod_with_events_and_node_with_its_pods(kubectl: Run, start: Run) -> None:
    start("described", "gpu-00002")
    pod = kubectl("describe", "pod", "described")
    assert "Started container main" in pod
    assert "nvidia.com/gpu:  8" in pod
    node = kubectl("describe", "node", "gpu-00002")
    assert "described" in node
    assert "HolderIdentity:  gpu-00002" in node


def test_logs_follow_until_the_pod_ends(kubectl: Run, start: Run) -> None:
    start("talks", "gpu-00003", seconds="3")
    lines = kubectl("logs", "-f", "talks").splitlines()
    assert len(lines) == 5
    assert lines[-1].endswith("training finished")
    assert len(kubectl("logs", "talks", "--tail=2").splitlines()) == 2
    assert kubectl("logs", "talks", "--timestamps", "--tail=1").startswith("20")


def test_cordon_drain_and_uncordon_empty_a_node(kubectl: Run, start: Run) -> None:
    start("drained", "gpu-00004")
    assert "cordoned" in kubectl("cordon", "gpu-00004")
    assert "SchedulingDisabled" in kubectl("get", "node", "gpu-00004")
    out = kubectl("drain", "gpu-00004", "--force", "--ignore-daemonsets", "--timeout=30s")
    assert "pod/drained evicted" in out
    assert "NotFound" in kubectl("get", "pod", "drained", check=False)
    assert "uncordoned" in kubectl("uncordon", "gpu-00004")


def test_drain_waits_for_a_disruption_budget(kubectl: Run, start: Run) -> None:
    start("guarded", "gpu-00005")
    budget = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: keep}
spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
"""
    kubectl("apply", "-f", "-", stdin=budget)
    out = kubectl("drain", "gpu-00005", "--force", "--timeout=3s", check=False)
    assert "would violate the pod's disruption budget" in out
    kubectl("delete", "pdb", "keep")
    kubectl("drain", "gpu-00005", "--force", "--timeout=30s")


def test_apply_changes_and_delete_removes(kubectl: Run) -> None:
    manifest = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: "%s"}
"""
    assert "created" in kubectl("apply", "-f", "-", stdin=manifest % "1")
    assert "configured" in kubectl("apply", "-f", "-", stdin=manifest % "2")
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=manifest % "2")
    assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.a}") == "2"
    assert "deleted" in kubectl("delete", "cm", "settings")
    wrong = kubectl("apply", "-f", "-", stdin=manifest % "1" + "dataa: {}\n", check=False)
    assert 'unknown field "dataa"' in wrong
    assert kubectl("get", "cm", check=False).count("settings") == 0


def test_server_side_apply_shows_conflicts_and_takes_fields_by_force(kubectl: Run) -> None:
    quota = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: gpus}
spec: {hard: {requests.nvidia.com/gpu: "%s"}}
"""
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", stdin=quota % 8)
    out = kubectl(
        "apply", "--server-side", "--field-manager=two", "-f", "-", stdin=quota % 16, check=False
    )
    assert 'conflict with "one"' in out
    kubectl(
        "apply",
        "--server-side",
        "--field-manager=two",
        "--force-conflicts",
        "-f",
        "-",
        stdin=quota % 16,
    )
    assert "/16" in kubectl("get", "quota", "gpus")
    kubectl("delete", "quota", "gpus")


def test_get_watch_prints_changes_as_they_come(
    program: str, environment: dict[str, str], start: Run, sim: ThreadedSimCluster
) -> None:
    process = subprocess.Popen(
        [program, "--kubeconfig", sim.kubeconfig, "get", "pods", "-w"],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        time.sleep(0.5)
        start("watched", "gpu-00006")
        assert process.stdout is not None
        lines: list[str] = []
        while not any("watched" in line and "Running" in line for line in lines):
            line = process.stdout.readline()
            assert line
            lines.append(line)
        assert any("ContainerCreating" in line for line in lines)
    finally:
        process.kill()
        process.wait()


def test_api_resources_versions_and_explain_are_answered(kubectl: Run) -> None:
    resources = kubectl("api-resources")
    for name in ("pods", "leases", "poddisruptionbudgets", "customresourcedefinitions"):
        assert name in resources
    assert "v1.36.0+sim" in kubectl("version")
    assert "resources" in kubectl("explain", "pod.spec.containers")


def test_auth_can_i_and_whoami_are_answered(kubectl: Run, minor: int) -> None:
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "*.*" in kubectl("auth", "can-i", "--list")
    if minor >= 28:  # older ones have no whoami
        assert "kubernetes-admin" in kubectl("auth", "whoami")


def test_create_and_delete_of_a_namespace_takes_its_contents(kubectl: Run) -> None:
    kubectl("create", "namespace", "short")
    kubectl("create", "configmap", "x", "-n", "short", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "y", "-n", "short", "--from-literal=a=b")
    kubectl("delete", "namespace", "short", timeout=30)
    assert "NotFound" in kubectl("get", "ns", "short", check=False)


def test_label_annotate_taint_and_patch_work_on_nodes(kubectl: Run) -> None:
    kubectl("label", "node", "gpu-00007", "rack=r1")
    kubectl("annotate", "node", "gpu-00007", "note=x")
    kubectl("taint", "node", "gpu-00007", "muster.dev/bad=xid-79:NoSchedule")
    kubectl("patch", "node", "gpu-00007", "-p", '{"metadata":{"labels":{"row":"1"}}}')
    assert "gpu-00007" in kubectl("get", "nodes", "-l", "rack=r1,row=1")
    kubectl("taint", "node", "gpu-00007", "muster.dev/bad-")


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "i:1"}]}
"""


def test_apply_leaves_what_others_added_to_a_list_that_merges_by_name(kubectl: Run) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    side = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "s:1"}]}}}}
    kubectl("patch", "deployment", "web", "-p", json.dumps(side))
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT.replace("i:1", "i:2"))
    images = "jsonpath={.spec.template.spec.containers[*].image}"
    assert sorted(kubectl("get", "deployment", "web", "-o", images).split()) == ["i:2", "s:1"]
    kubectl("delete", "deployment", "web")


def test_dry_run_on_the_server_answers_and_stores_nothing(kubectl: Run) -> None:
    out = kubectl("apply", "--dry-run=server", "-f", "-", stdin=DEPLOYMENT)
    assert "created (server dry run)" in out
    assert "NotFound" in kubectl("get", "deployment", "web", check=False)


def test_workloads_are_checked_and_stored(kubectl: Run) -> None:
    assert "created" in kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    assert "deployment.apps/web" in kubectl("get", "all")
    wrong = kubectl(
        "apply", "-f", "-", stdin=DEPLOYMENT.replace("replicas", "replicos"), check=False
    )
    assert re.search(r'unknown field "(spec\.)?replicos"', wrong)
    kubectl("delete", "deployment", "web")


def test_exec_is_refused_with_a_reason(kubectl: Run, start: Run) -> None:
    start("closed", "gpu-00008")
    assert "run no programs" in kubectl("exec", "closed", "--", "ls", check=False)


def test_custom_resources_are_served_like_built_in_ones(kubectl: Run) -> None:
    definition = Path(__file__).with_name("podgroups.yaml").read_text(encoding="utf-8")
    kubectl("apply", "-f", "-", stdin=definition)
    kubectl(
        "wait",
        "crd/podgroups.scheduling.example.com",
        "--for=condition=Established",
        "--timeout=10s",
    )
    group = "apiVersion: scheduling.example.com/v1\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 4}\n"
    kubectl("apply", "-f", "-", stdin=group)
    assert "g" in kubectl("get", "pg")
    assert "greater than or equal to 1" in kubectl(
        "apply", "-f", "-", stdin=group.replace("4", "0"), check=False
    )
    kubectl("delete", "crd", "podgroups.scheduling.example.com")
