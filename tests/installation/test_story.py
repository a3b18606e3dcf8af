"""The demo's story: the same for one seed, and every scene is a job that the contract accepts."""

from itertools import islice
from pathlib import Path

import pytest

from controlplane.demo.plot import FULL_HOUSE, scenes
from controlplane.demo.seed import seed
from controlplane.demo.story import submit
from queues.models import Flavor, Job
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
