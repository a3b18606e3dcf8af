"""Pages of clusters: findings with their fix, the mode and what it means, levels with a preview before saving."""

import pytest

from queues.models import Cluster, Level
from scheduler.models import ForeignPod, Node
from tests.pages.operations import add_operations

LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
    "topology.kubernetes.io/zone": "dc1-a",
}


@pytest.fixture
def labelled(scene):
    """The scene's nodes with the labels of Topograph beside those of the cluster's own levels."""
    for node in scene.nodes:
        leaf, spine = node.domains["leaf"], node.domains["spine"]
        node.labels = LABELS | {
            "topology.example/leaf": leaf,
            "topology.example/spine": spine,
            "fabric.topograph.run/tier-0": leaf,
            "fabric.topograph.run/tier-1": spine,
        }
    Node.objects.bulk_update(scene.nodes, ["labels"])
    return scene


@pytest.mark.parametrize("name", ["ravi", "vera", "ines", "sam", "admin"])
@pytest.mark.parametrize("path", ["/clusters/", "/clusters/demo/"])
def test_everyone_sees_clusters(labelled, sign_in, name, path):
    assert sign_in(name).get(path).status_code == 200


def test_finding_has_its_fix_its_line_and_its_nodes(labelled, sign_in):
    text = sign_in("ines").get("/clusters/demo/").content.decode()
    assert "GPUs that Kubernetes cannot see" in text
    assert "kubectl label node gpu-00050 nvidia.com/gpu.deploy.device-plugin=true" in text
    assert 'href="/nodes/demo/gpu-00050/"' in text
    listed = sign_in("ines").get("/nodes/?cluster=demo&lint=gpu_unseen").content.decode()
    assert "gpu-00050" in listed
    assert "gpu-00051" not in listed


def test_node_names_and_labels_are_escaped(labelled, sign_in):
    Node.objects.filter(name="gpu-00001").update(
        flavor=None, labels={"nvidia.com/gpu.product": "<script>alert(1)</script>"}
    )
    text = sign_in("ines").get("/clusters/demo/").content.decode()
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_page_asks_few_questions_however_many_nodes(
    labelled, sign_in, django_assert_max_num_queries
):
    client = sign_in("ines")
    client.get("/clusters/demo/")
    with django_assert_max_num_queries(30):
        client.get("/clusters/demo/")
    with django_assert_max_num_queries(20):
        client.get("/clusters/")


def test_live_part_is_fetched_alone(labelled, sign_in):
    answer = sign_in("ines").get("/clusters/demo/", headers={"HX-Request": "true"})
    assert answer.content.decode().strip().startswith('<div id="cluster-live"')


def test_mode_is_told_and_changed_by_platform_admins_alone(labelled, sign_in):
    assert "disabled" in sign_in("ines").get("/clusters/demo/").content.decode()
    path = "/map/demo/mode/?next=/clusters/demo/"
    assert sign_in("ines").post(path, {"mode": "paused"}).status_code == 403
    answer = sign_in("admin").post(path, {"mode": "paused"})
    assert answer["Location"] == "/clusters/demo/"
    assert Cluster.objects.get().mode == "paused"
    away = sign_in("admin").post("/map/demo/mode/?next=//evil.example/", {"mode": "schedule"})
    assert away["Location"] == "/map/demo/"


def test_unclaimed_pods_are_shown_to_their_tenant_and_to_operators(labelled, sign_in):
    ForeignPod.objects.create(
        cluster=labelled.cluster,
        uid="lost-1",
        namespace="muster-vision",
        name="jx-1-main-0-1",
        node="gpu-00003",
        tenant=labelled.tenants["vision"],
        unclaimed=True,
        gpus=8,
        seen_at=labelled.now,
    )
    assert "jx-1-main-0-1" in sign_in("ines").get("/clusters/demo/").content.decode()
    assert "jx-1-main-0-1" in sign_in("mei").get("/clusters/demo/").content.decode()
    assert "jx-1-main-0-1" not in sign_in("ravi").get("/clusters/demo/").content.decode()


def test_preset_fills_the_form_with_labels_that_nodes_bear(labelled, sign_in):
    page = sign_in("admin").get("/clusters/demo/levels/?preset=topograph")
    assert page.context["form"].initial == {
        "zone": "topology.kubernetes.io/zone",
        "spine": "fabric.topograph.run/tier-1",
        "leaf": "fabric.topograph.run/tier-0",
    }
    assert [offer.convention.key for offer in page.context["offers"]] == ["topograph", "kubernetes"]
    assert Level.objects.count() == 2  # nothing is saved


def test_preview_counts_domains_and_says_what_is_wrong(labelled, sign_in):
    Node.objects.filter(name="gpu-00002").update(labels=LABELS)
    sent = {"leaf": "fabric.topograph.run/tier-0"}
    text = sign_in("admin").post("/clusters/demo/levels/preview/", sent).content.decode()
    assert "The label fabric.topograph.run/tier-0 of the level leaf is missing." in text
    assert "8 … 16" in text
    assert Level.objects.count() == 2


def test_preview_warns_of_jobs_that_require_a_level_that_goes(labelled, sign_in):
    sent = {"spine": "topology.example/spine"}
    text = sign_in("admin").post("/clusters/demo/levels/preview/", sent).content.decode()
    assert "1 waiting job requires one leaf and could never start." in text


def test_levels_are_saved_by_platform_admins_alone_and_errors_stand_at_the_field(labelled, sign_in):
    path, sent = "/clusters/demo/levels/", {"leaf": "fabric.topograph.run/tier-0", "version": "1"}
    assert sign_in("ines").post(path, sent).status_code == 403
    wrong = sign_in("admin").post(path, sent | {"spine": "not a label!"})
    assert "spine" in wrong.context["form"].errors
    assert sign_in("admin").post(path, sent)["Location"] == "/clusters/demo/"
    assert list(Level.objects.values_list("name", "node_label")) == [
        ("leaf", "fabric.topograph.run/tier-0")
    ]
    stale = sign_in("admin").post(path, sent | {"leaf": "topology.example/leaf"})
    assert "changed after you read it" in stale.content.decode()


def test_one_spine_is_drawn_with_every_gpu_and_the_jobs_that_one_may_see(scene, sign_in):
    add_operations(scene)
    text = sign_in("ravi").get("/map/demo/?zoom=spine-00").content.decode()
    assert text.count('class="g on') >= 64
    assert text.count('class="cross"') == 2  # the broken one, and the key
    assert 'data-nodes="gpu-00000 gpu-00001' in text
    assert "GPU 7 is not well" in text
    other = sign_in("ravi").get("/map/demo/?zoom=spine-01").content.decode()
    assert "segment-anything" not in other
    assert "segment-anything" in sign_in("mei").get("/map/demo/?zoom=spine-01").content.decode()
    assert sign_in("ravi").get("/map/demo/?zoom=nowhere")["Location"] == "/map/demo/"
