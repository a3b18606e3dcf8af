"""The witness itself: what it must complain about, and what it must let pass."""

from typing import Any

import pytest

from tests.e2e.witness import Sighting, gangs_in_part, gpus_given_twice, sighting_of

NODES = {"gpu-00000": 8, "gpu-00001": 8}


def seen(at: float, name: str, node: str = "", phase: str = "Pending", **changes: Any) -> Sighting:
    fields: dict[str, Any] = {
        "deleted": False,
        "uid": f"uid-{name}",
        "job": "job_a",
        "attempt": "1",
        "gpus": 8,
        "terminating": False,
    }
    return Sighting(at=at, name=name, node=node, phase=phase, **(fields | changes))


def test_two_pods_on_the_gpus_of_one_node_are_noticed() -> None:
    both = [seen(0, "a", "gpu-00000", "Running"), seen(1, "b", "gpu-00000")]
    assert len(gpus_given_twice(both, NODES)) == 1


@pytest.mark.parametrize("end", [{"phase": "Succeeded"}, {"phase": "Running", "deleted": True}])
def test_gpus_may_be_given_again_once_their_pod_is_gone(end: dict[str, Any]) -> None:
    story = [
        seen(0, "a", "gpu-00000", "Running"),
        seen(1, "a", "gpu-00000", **end),
        seen(2, "b", "gpu-00000"),
    ]
    assert not gpus_given_twice(story, NODES)


def test_a_terminating_pod_still_holds_its_gpus() -> None:
    story = [
        seen(0, "a", "gpu-00000", "Running", terminating=True),
        seen(2, "b", "gpu-00000"),
    ]
    assert len(gpus_given_twice(story, NODES)) == 1


def test_half_a_gang_for_longer_than_binding_takes_is_noticed() -> None:
    story = [seen(0, "a", "gpu-00000"), seen(0, "b")]
    assert len(gangs_in_part(story, {"job_a": 2}, ended_at=31)) == 1
    assert not gangs_in_part(story, {"job_a": 2}, ended_at=29)


def test_a_gang_that_was_late_but_whole_at_the_end_is_noticed() -> None:
    story = [seen(0, "a", "gpu-00000"), seen(40, "b", "gpu-00001")]
    assert len(gangs_in_part(story, {"job_a": 2}, ended_at=50)) == 1


def test_a_gang_may_wind_down_pod_by_pod() -> None:
    story = [
        seen(0, "a", "gpu-00000", "Running"),
        seen(0, "b", "gpu-00001", "Running"),
        seen(100, "a", "gpu-00000", "Failed"),
    ]
    assert not gangs_in_part(story, {"job_a": 2}, ended_at=150)
    assert len(gangs_in_part(story, {"job_a": 2}, ended_at=170)) == 1


def test_a_watch_event_is_read_as_it_stands() -> None:
    event = {
        "type": "MODIFIED",
        "object": {
            "metadata": {
                "name": "jabc-1-main-0-1",
                "uid": "u",
                "labels": {"muster.dev/job": "job_a", "muster.dev/attempt": "1"},
            },
            "spec": {
                "nodeName": "gpu-00000",
                "containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}],
            },
            "status": {"phase": "Running"},
        },
    }
    found = sighting_of(event, 3.0)
    assert (found.job, found.node, found.gpus, found.holds_gpus) == ("job_a", "gpu-00000", 8, True)
