"""The demo's story: the same for one seed, and every scene is a job that the contract accepts."""

import urllib.request
from itertools import islice
from pathlib import Path

import pytest

from controlplane.demo import story
from controlplane.demo.place import CLUSTER
from controlplane.demo.plot import FATAL, FULL_HOUSE, Fault, Repair, Scene, Work, acts, scenes
from controlplane.demo.seed import ACTING_RULES, seed
from controlplane.demo.story import Teller, begin_fault, play, submit
from queues.models import Cluster, Flavor, Job
from scheduler.models import HealthRule, MaintenanceWindow, Node
from scheduler.simcluster.background import ThreadedSimCluster
from scheduler.simcluster.profiles.model import uniform_profile
from tests.factories import NOW


def test_one_seed_tells_one_story() -> None:
    assert list(islice(scenes(1), 200)) == list(islice(scenes(1), 200))
    assert list(islice(scenes(1), 200)) != list(islice(scenes(2), 200))


def test_the_house_is_full_at_once_and_then_jobs_come_one_by_one() -> None:
    story = list(islice(scenes(3), 200))
    assert all(scene.after_seconds == 0 for scene in story[:FULL_HOUSE])
    assert 1 < sum(s.after_seconds for s in story[FULL_HOUSE:]) / (200 - FULL_HOUSE) < 10


def test_a_gang_of_a_whole_leaf_comes_soon_and_again() -> None:
    whole = [n for n, s in enumerate(islice(scenes(1), 200)) if s.job["replicas"] == 16]
    assert whole[0] < 40
    assert len(whole) >= 3


@pytest.mark.django_db
def test_every_scene_is_accepted_by_the_same_door_as_anybodys(tmp_path: Path) -> None:
    seed(tmp_path / "logins.json", NOW)
    Flavor.objects.update(gpus_per_node=8, cpu_millis_per_node=128_000, memory_mib_per_node=10**6)
    for scene in islice(scenes(1), 60):
        submit(scene)
    assert Job.objects.count() == 60


def test_the_story_tells_of_work_of_lent_quota_and_of_gpus_that_fail_and_are_repaired() -> None:
    assert list(islice(acts(1), 300)) == list(islice(acts(1), 300))
    told = list(islice(acts(1), 300))
    assert [type(act) for act in told[: FULL_HOUSE + 1]] == [Scene] * FULL_HOUSE + [Work]
    broken = [
        act.node for act in told if isinstance(act, Fault) and act.parameters["code"] == FATAL
    ]
    assert broken
    assert [act.node for act in told if isinstance(act, Repair)] == broken
    wide = [
        act for act in told if isinstance(act, Scene) and act.job["name"].startswith("pretrain-vit")
    ]
    assert sum(act.job["replicas"] * 8 for act in wide) > 256  # more than vision owns
    assert any(
        isinstance(act, Scene) and act.job["name"].startswith("pretrain-13b") for act in told
    )


@pytest.mark.django_db
def test_work_is_announced_as_by_the_operator(tmp_path: Path) -> None:
    seed(tmp_path / "logins.json", NOW)
    work = next(act for act in acts(1) if isinstance(act, Work))
    node = {"uid": "n", "observed_at": NOW, "domains": {"spine": "spine-00", "leaf": work.leaf}}
    Node.objects.create(cluster=Cluster.objects.get(), name="gpu-00000", **node)
    assert play(work) is False
    window = MaintenanceWindow.objects.get()
    assert (window.title, window.created_by) == ("New driver", "ines")
    assert {rule.mode for rule in HealthRule.objects.filter(key__in=ACTING_RULES)} == {"act"}


def test_a_fault_begins_in_the_simulated_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = next(act for act in acts(1) if isinstance(act, Fault))
    with ThreadedSimCluster(uniform_profile(64)) as sim:
        monkeypatch.setenv("KUBECONFIG", str(sim.kubeconfig))
        begin_fault(fault)
        with urllib.request.urlopen(f"{sim.url}/_sim/nodes/{fault.node}", timeout=5) as answer:
            machine = answer.read().decode()
    assert (
        f'"xid": {fault.parameters["code"]}' in machine
        or f'"xid":{fault.parameters["code"]}' in machine
    )


@pytest.mark.django_db
def test_a_node_that_is_gone_or_well_does_not_end_the_story(tmp_path: Path) -> None:
    seed(tmp_path / "logins.json", NOW)
    assert play(Repair(0, "gpu-99999")) is False
    assert Cluster.objects.get().name == CLUSTER


def test_repairs_wait_for_their_moment_beside_the_others_and_are_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[object] = []

    def playing(act: object) -> bool:
        played.append(act)
        return isinstance(act, Repair) and played.count(act) < 3  # not empty yet, twice

    monkeypatch.setattr(story, "play", playing)
    monkeypatch.setattr(story, "TRY_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(Teller, "_wait_for_room", lambda _self: None)
    repair = Repair(0.0, "gpu-00001")
    jobs = [Scene(0.0, "ravi", {"name": str(n)}) for n in range(3)]
    Teller(sleep=lambda _seconds: None).tell(iter([repair, *jobs]))
    assert played.count(repair) == 3
    assert [act for act in played if isinstance(act, Scene)] == jobs
