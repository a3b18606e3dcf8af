"""What `make run` reads off a real cluster's nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.demo.seed import FLAVORS, PEOPLE, seed
from controlplane.installation.bootstrap import FirstAdmin, bootstrap, make_first_admin
from controlplane.installation.survey import slug, survey
from queues.models import Cluster, Flavor, Queue, Quota
from scheduler.kube.parse import parse_node
from scheduler.kube.seen import NodeSeen
from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.profiles.model import load_profile
from tenants.models import Membership, Tenant, User
from tests.factories import NOW


def node(
    name: str, labels: dict[str, str], gpus: int, resource: str = "nvidia.com/gpu"
) -> NodeSeen:
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "110", resource: str(gpus)}
    return parse_node(
        {
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels},
            "spec": {},
            "status": {"capacity": capacity, "allocatable": capacity},
        }
    )


def h100(name: str, labels: dict[str, str] | None = None, gpus: int = 8) -> NodeSeen:
    product = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    return node(name, product | (labels or {}), gpus)


def test_each_gpu_model_becomes_a_flavor_with_all_its_gpus() -> None:
    amd = node("c", {"amd.com/gpu.product-name": "MI300X"}, 8, "amd.com/gpu")
    offer = survey([h100("a"), h100("b", gpus=4), amd, node("cpu", {}, 0)])
    assert {(f.name, f.resource_name, n) for f, n in offer.flavors.items()} == {
        ("nvidia-h100-80gb-hbm3", "nvidia.com/gpu", 12),
        ("mi300x", "amd.com/gpu", 8),
    }


@pytest.mark.parametrize(
    ("labels", "levels"),
    [
        ({}, []),
        ({f"topology.k8s.aws/network-node-layer-{n}": "x" for n in (1, 2, 3)}, ["spine", "leaf"]),
        ({"fabric.topograph.run/tier-0": "l"}, []),
    ],
)
def test_levels_are_those_that_some_node_bears_in_full(
    labels: dict[str, str], levels: list[str]
) -> None:
    assert list(survey([h100("a", labels)]).levels) == levels


def test_zones_count_only_where_there_is_more_than_one() -> None:
    zone = "topology.kubernetes.io/zone"
    assert list(survey([h100("a", {zone: "z1"}), h100("b", {zone: "z1"})]).levels) == []
    assert list(survey([h100("a", {zone: "z1"}), h100("b", {zone: "z2"})]).levels) == ["zone"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA-A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("8x Strange (GPU)", "gpu-8x-strange-gpu"),
        ("X" * 60, "x" * 40),
    ],
)
def test_a_flavor_gets_a_name_that_a_slug_may_be(model: str, name: str) -> None:
    assert slug(model) == name


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with ThreadedSimCluster(load_profile("demo")) as cluster:
        yield Path(cluster.kubeconfig)


@pytest.mark.django_db
def test_an_empty_database_gets_cluster_flavors_tenant_and_queue(kubeconfig: Path) -> None:
    make_first_admin(FirstAdmin("root", "a long enough password"), NOW)
    bootstrap("root", kubeconfig, NOW)
    cluster = Cluster.objects.get()
    assert (cluster.name, cluster.mode) == ("default", "schedule")
    assert list(cluster.levels.values_list("name", flat=True)) == ["spine", "leaf"]
    # One A100 node shows no GPUs: its device plugin is missing.
    nominal = dict(Quota.objects.values_list("flavor__name", "nominal"))
    assert nominal == {"nvidia-h100-80gb-hbm3": 512, "nvidia-a100-sxm4-80gb": 56}
    assert Queue.objects.get().tenant.slug == "default"
    assert Membership.objects.get().user.username == "root"


@pytest.mark.django_db
def test_bootstrapping_again_changes_nothing(kubeconfig: Path) -> None:
    make_first_admin(FirstAdmin("root", "a long enough password"), NOW)
    bootstrap("root", kubeconfig, NOW)
    Flavor.objects.filter(name="nvidia-a100-sxm4-80gb").update(gpus_per_nvlink_domain=4)
    bootstrap("root", kubeconfig, NOW)
    make_first_admin(FirstAdmin("other", "another long password"), NOW)
    assert Flavor.objects.get(name="nvidia-a100-sxm4-80gb").gpus_per_nvlink_domain == 4
    assert not User.objects.filter(username="other").exists()


@pytest.mark.django_db
def test_the_demo_is_seeded_once_and_remembers_its_tokens(tmp_path: Path) -> None:
    seed(tmp_path / "logins.json", NOW)
    first = (tmp_path / "logins.json").read_text()
    seed(tmp_path / "logins.json", NOW)
    assert (tmp_path / "logins.json").read_text() == first
    assert User.objects.count() == len(PEOPLE)
    assert set(Tenant.objects.values_list("slug", flat=True)) == {"research", "vision"}
    assert Quota.objects.count() == 2 * len(FLAVORS)
    assert {q.name for q in Queue.objects.all()} == {"train"}
