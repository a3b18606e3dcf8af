"""The lint of a cluster's nodes: the sample nodes one by one, 4,000 mixed ones at once, and each rule by a change."""

import json
import time
from collections import Counter
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from queues.models import Cluster, Flavor, Level
from scheduler.kube.parse import parse_node
from scheduler.lint.conventions import CONVENTIONS, fitting, likeliest, preview
from scheduler.lint.findings import RULES, SEVERITIES, Finding
from scheduler.lint.run import lint
from scheduler.lint.sheet import Sheet
from scheduler.models import Node, NodeWatch
from scheduler.reconcile.node_rows import FlavorRule, Policy, columns_of
from scheduler.selectors.lint import findings_of, lint_node
from scheduler.simcluster.naming import Identities
from scheduler.simcluster.nodes.build import node_body
from scheduler.simcluster.nodes.machine import make_machine
from scheduler.simcluster.profiles.model import load_profile
from tests.scheduler import rows
from tests.scheduler.people import add_people, client

SAMPLES = Path(__file__).parent.parent / "fixtures" / "kube" / "nodes"
LEVELS = {"spine": "fabric.topograph.run/tier-1", "leaf": "fabric.topograph.run/tier-0"}
MODELS = {"h100": "NVIDIA-H100-80GB-HBM3", "gb200": "NVIDIA-GB200", "a100": "NVIDIA-A100-SXM4-80GB"}
# Of every cluster with NVIDIA GPUs: what no node can tell.
ALWAYS = {"visible_devices"}


def sample(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLES / f"node_{name}.json").read_text())
    return found


def policy(levels: dict[str, str] = LEVELS, models: dict[str, str] = MODELS) -> Policy:
    rules = [
        FlavorRule(number, "nvidia.com/gpu", "nvidia.com/gpu.product", model)
        for number, model in enumerate(models.values(), 1)
    ]
    return Policy("schedule", levels=levels, flavors=tuple(rules))


def sheet(
    raws: list[dict[str, Any]],
    levels: dict[str, str] = LEVELS,
    models: dict[str, str] = MODELS,
) -> Sheet:
    """As the cluster process would write the rows and the selector read them."""
    names = dict(enumerate(models, 1))
    nodes = []
    for raw in raws:
        seen = parse_node(raw)
        row = columns_of(seen, policy(levels, models))
        row |= {"name": seen.name, "flavor__name": names.get(row["flavor_id"])}
        nodes.append(lint_node(row))
    return Sheet("demo", nodes, tuple(levels.items()), models)


def codes(found: list[Finding]) -> set[str]:
    """What is found, without what concerns flavors that nobody has here."""
    return {finding.code for finding in found} - {"flavor_empty"} - ALWAYS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100_8gpu_leaf_spine", set()),
        ("h100_cordoned", set()),
        ("h100_one_unhealthy_gpu", {"gpu_lost"}),
        ("gpu_no_device_plugin", {"gpu_unseen", "label_missing", "no_telemetry"}),
        ("a100_mig_mixed", {"mig_enabled"}),
        ("t4_timesliced", {"time_sliced", "label_missing"}),
        ("gb200_nvl72_clique", {"clique_unused"}),
    ],
)
def test_sample_is_read_right(name, expected):
    assert codes(lint(sheet([sample(name)]))) == expected


def relabelled(key: str, value: str) -> set[str]:
    node = deepcopy(sample("h100_8gpu_leaf_spine"))
    node["metadata"]["labels"].pop(key, None)
    if value:
        node["metadata"]["labels"][key] = value
    return codes(lint(sheet([node])))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("nvidia.com/gpu-driver-upgrade-state", "drain-required", {"driver_upgrading"}),
        ("nvidia.com/gpu-driver-upgrade-state", "upgrade-failed", {"driver_upgrade_failed"}),
        ("nvidia.com/gpu-driver-upgrade-state", "", set()),
        ("nvidia.com/mig.config.state", "pending", {"mig_changing"}),
        ("nvidia.com/mig.config.state", "failed", {"mig_failed"}),
        ("nvidia.com/mig.config", "all-1g.10gb", {"mig_enabled"}),
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3-MIG-INVALID", {"mig_invalid"}),
        ("nvidia.com/gpu.product", "NVIDIA-B300", {"model_unknown"}),
        ("nvidia.com/gpu.count", "7", {"count_differs"}),
        ("nvidia.com/gpu.sharing-strategy", "mps", {"time_sliced"}),
        ("nvidia.com/gpu.deploy.dcgm-exporter", "", {"no_telemetry"}),
        ("nvidia.com/gpu.deploy.dcgm-exporter", "paused-for-driver-upgrade", {"no_telemetry"}),
        ("fabric.topograph.run/tier-0", "", {"label_missing"}),
        ("fabric.topograph.run/tier-0", "leaf-99", {"label_stale"}),
    ],
)
def test_one_label_is_one_finding(key, value, expected):
    assert relabelled(key, value) == expected


def test_exporters_are_silent_or_not_as_the_health_process_has_found_them(db):
    world = rows.make_world(3)
    Node.objects.update(labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})

    def mute() -> set[str]:
        found = [each for each in findings_of(world.cluster) if each.code == "no_telemetry"]
        return {name for each in found for name in each.nodes}

    names = list(Node.objects.order_by("name").values_list("name", flat=True))
    assert mute() == set(names)  # nobody has looked, and the operator's label is not there
    first, second, _third = Node.objects.order_by("name")
    moment = datetime(2026, 11, 29, tzinfo=UTC)
    NodeWatch.objects.create(node=first, answered_at=moment)
    NodeWatch.objects.create(node=second, answered_at=moment, unknown_since=moment)
    assert mute() == set(names[1:])


def test_driver_that_says_nothing_is_found():
    node = deepcopy(sample("h100_8gpu_leaf_spine"))
    labels = node["metadata"]["labels"]
    node["metadata"]["labels"] = {k: v for k, v in labels.items() if "cuda" not in k}
    assert codes(lint(sheet([node]))) == {"driver_unknown"}


def test_taint_of_others_is_found_and_those_of_gpus_are_not():
    node = deepcopy(sample("h100_8gpu_leaf_spine"))
    node["spec"]["taints"].append({"key": "team", "value": "vision", "effect": "NoSchedule"})
    [found] = [f for f in lint(sheet([node])) if f.code == "kept_off"]
    assert found.commands == ["kubectl taint node gpu-h100-0017 team=vision:NoSchedule-"]


def fleet(leaves: int = 4, size: int = 4) -> list[dict[str, Any]]:
    """Healthy nodes: so many leaves of so many, two leaves to a spine."""
    made = []
    for index in range(leaves * size):
        node = deepcopy(sample("h100_8gpu_leaf_spine"))
        node["metadata"]["name"] = f"n{index:02d}"
        leaf = index // size
        for base, word in (("leaf", f"leaf-{leaf}"), ("spine", f"spine-{leaf // 2}")):
            node["metadata"]["labels"][f"network.topology.nvidia.com/{base}"] = word
        node["metadata"]["labels"] |= {
            LEVELS["leaf"]: f"leaf-{leaf}",
            LEVELS["spine"]: f"spine-{leaf // 2}",
        }
        made.append(node)
    return made


def test_even_fleet_has_nothing_to_say():
    assert codes(lint(sheet(fleet()))) == set()


def test_mixed_driver_in_a_leaf_names_the_odd_nodes():
    nodes = fleet()
    nodes[5]["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"] = "550.163.01"
    [found] = [f for f in lint(sheet(nodes)) if f.code == "driver_mixed"]
    assert found.nodes == ("n05",)
    assert found.message == "Part of leaf-1 runs the driver 550.163.01, the rest 570.158.01."


def test_other_models_drivers_are_no_mixture():
    nodes = fleet()
    nodes[5]["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"] = "550.163.01"
    nodes[5]["metadata"]["labels"]["nvidia.com/gpu.product"] = MODELS["a100"]
    assert "driver_mixed" not in codes(lint(sheet(nodes)))


def test_leaf_under_two_spines_is_a_clash():
    nodes = fleet()
    for key in (LEVELS["spine"], "network.topology.nvidia.com/spine"):
        nodes[2]["metadata"]["labels"][key] = "spine-9"
    [found] = [f for f in lint(sheet(nodes)) if f.code == "label_clash"]
    assert (found.nodes, found.severity) == (("n02",), "error")
    assert found.numbers["parents"] == "spine-0, spine-9"


def test_smaller_leaf_is_uneven():
    [found] = [f for f in lint(sheet(fleet()[:-1])) if f.code == "domain_uneven"]
    assert (found.numbers["domain"], found.numbers["size"], found.numbers["usual"]) == (
        "leaf-3",
        3,
        4,
    )


def test_stopped_plugin_offers_none():
    node = deepcopy(sample("h100_8gpu_leaf_spine"))
    node["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    assert codes(lint(sheet([node]))) == {"gpu_none_offered"}


def test_driver_without_any_resource_is_unseen():
    node = deepcopy(sample("h100_8gpu_leaf_spine"))
    labels = node["metadata"]["labels"]
    for key in [k for k in labels if k.startswith(("nvidia.com/gpu.product", "feature."))]:
        del labels[key]
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        del amounts["nvidia.com/gpu"]
    assert "gpu_unseen" in codes(lint(sheet([node])))


def test_cluster_without_levels_is_told_the_convention():
    [found] = [f for f in lint(sheet(fleet(), levels={})) if f.code == "no_levels"]
    assert "Topograph 1.0" in found.message


def test_every_sentence_and_command_can_be_said():
    """No rule names a number that its check does not give."""
    every = [sample(path.stem.removeprefix("node_")) for path in SAMPLES.glob("node_*.json")]
    found = lint(sheet([*every, *mixed_nodes(step=7)])) + lint(sheet(fleet(), levels={}))
    for finding in found:
        assert "{" not in finding.message + finding.fix
        assert all("{node}" not in line for line in finding.commands)
    assert set(SEVERITIES) == {rule.severity for rule in RULES.values()}


def mixed_nodes(step: int = 1) -> list[dict[str, Any]]:
    """The nodes of the profile mixed-4000 as their kubelets report them; every `step`-th."""
    profile, identities = load_profile("mixed-4000"), Identities(7)
    bodies: list[dict[str, Any]] = []
    for group in profile.groups:
        for number in range(0, group.count, step):
            machine = make_machine(group, number, len(bodies), identities)
            bodies.append(node_body(machine, f"uid-{len(bodies)}", profile.region, 1.7e9))
    return bodies


def test_mixed_4000_is_judged_whole_and_in_time():
    cluster = sheet(mixed_nodes())
    began = time.perf_counter()
    found = lint(cluster)
    seconds = time.perf_counter() - began
    by_code = Counter({f.code: 0 for f in found})
    for finding in found:
        by_code[finding.code] += len(finding.nodes)
    print(f"4,000 nodes in {seconds:.2f} s: {dict(by_code)}")
    assert seconds < 2
    assert by_code["gpu_unseen"] == 2  # h100-00077 and h100-01301
    assert by_code["driver_mixed"] == 3  # nodes 7, 911 and 1203
    assert by_code["time_sliced"] == 400
    assert by_code["mig_enabled"] == 96
    assert by_code["clique_unused"] == 288
    # A100 (AWS labels), A100-40 (GKE) and T4 (none) have no label of either level.
    assert by_code["label_missing"] == 2 * (768 + 96 + 400)
    models = {f.numbers["model"] for f in found if f.code == "model_unknown"}
    assert models == {"NVIDIA-H200"}
    assert not [f for f in found if any(name.startswith("cpu-") for name in f.nodes)]
    assert [f.severity for f in found] == sorted(
        (f.severity for f in found), key=["error", "warning", "advice"].index
    )


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda c: c.key)
def test_convention_goes_from_wide_to_narrow(convention):
    order = ["zone", "spine", "leaf", "nvlink"]
    names = [name for name, _label in convention.levels]
    assert names == sorted(names, key=order.index)
    assert len({label for _name, label in convention.levels}) == len(convention.levels)


def test_likeliest_convention_and_what_its_levels_would_be():
    nodes = sheet(fleet(), levels={}).nodes
    convention = likeliest(nodes)
    assert convention is not None
    assert convention.key == "topograph"
    levels = fitting(nodes, convention)
    assert [name for name, _label in levels] == ["zone", "spine", "leaf"]
    _zone, spine, leaf = preview(nodes, levels)
    assert (spine.domains, spine.largest) == (2, 8)
    assert (leaf.domains, leaf.smallest, leaf.largest, leaf.without) == (4, 4, 4, 0)


def test_rows_are_read_in_four_queries(db, django_assert_num_queries):
    now = datetime(2026, 11, 29, tzinfo=UTC)
    cluster = Cluster.objects.create(name="demo", created_at=now)
    Level.objects.create(cluster=cluster, name="leaf", node_label=LEVELS["leaf"], position=0)
    flavor = Flavor.objects.create(
        cluster=cluster, name="h100", resource_name="nvidia.com/gpu", model=MODELS["h100"]
    )
    for raw in (sample("h100_one_unhealthy_gpu"), sample("gpu_no_device_plugin")):
        columns = columns_of(parse_node(raw), policy()) | {"flavor_id": None}
        if "gpu.product" in str(columns["labels"]):
            columns["flavor_id"] = flavor.pk
        Node.objects.create(
            cluster=cluster, name=raw["metadata"]["name"], observed_at=now, **columns
        )
    with django_assert_num_queries(4):
        found = findings_of(cluster)
    assert {"gpu_lost", "gpu_unseen"} <= codes(found)


def test_lint_is_answered_to_everyone_who_sees_nodes(world):
    rows.change_node(world, "gpu-00003", gpus_allocatable=7)
    answer = client("ravi").get(f"/api/v1/clusters/{world.cluster.name}/lint/")
    assert answer.status_code == 200
    [lost] = [f for f in answer.json()["findings"] if f["code"] == "gpu_lost"]
    assert (lost["nodes"], lost["count"], lost["severity"]) == (["gpu-00003"], 1, "error")
    assert lost["numbers"] == {"missing": 1}
    assert "gpu-00003" in lost["commands"][0]
    assert client("ravi").get("/api/v1/clusters/nowhere/lint/").status_code == 404


@pytest.fixture
def world(db):
    made = rows.make_world(8, nodes_per_leaf=4, leaves_per_spine=1)
    add_people(made)
    return made
