"""Every page that changes by itself subscribes to topics that there are and that its reader may see."""

import re

import pytest

from controlplane.common.live import Heard, Viewer
from queues.live import TOPICS as OF_QUEUES
from scheduler.live import TOPICS as OF_SCHEDULER

TOPICS = {topic.name: topic for topic in (*OF_QUEUES, *OF_SCHEDULER)}
LIVE = {
    "/": "map:demo",
    "/jobs/": "jobs",
    "/plan/": "plan",
    "/plan/evictions/": "plan",
    "/map/demo/": "map:demo",
    "/map/demo/?zoom=spine-00": "health",
    "/clusters/demo/": "cluster:demo",
    "/calendar/": "windows",
    "/health/": "health",
    "/health/quarantine/": "health",
    "/alerts/": "alerts",
}
# A kind of event, its cluster, and a topic that it must nudge.
NUDGES = [
    ("node.changed", "demo", "cluster"),
    ("eviction.ordered", "demo", "plan"),
    ("job.phase", "demo", "plan"),
    ("node.health", "demo", "health"),
    ("window.created", "demo", "windows"),
    ("alert.opened", "", "alerts"),
]


@pytest.mark.parametrize(("path", "topic"), LIVE.items())
def test_page_subscribes_to_what_its_reader_may_see(scene, sign_in, path, topic):
    text = sign_in("ravi").get(path).content.decode()
    found = re.search(r'data-live-topics="([^"]*)"', text)
    assert found is not None
    names = found[1].split()
    assert topic in names
    assert "alerts" in names  # the number in the rail
    viewer = Viewer(key=1, actor=scene.actor("ravi"), language="en", zone="UTC")
    for name in names:
        head, _colon, argument = name.partition(":")
        assert TOPICS[head].scope_of(viewer, argument) is not None, name


@pytest.mark.parametrize(("kind", "cluster", "topic"), NUDGES)
def test_event_reaches_the_page(kind, cluster, topic):
    heard = Heard(seq=1, kind=kind, tenant="", job="", cluster=cluster, node="", user=None)
    assert list(TOPICS[topic].changes(heard))


def test_use_of_a_node_wakes_no_page_of_clusters():
    heard = Heard(
        seq=1, kind="node.usage", tenant="", job="", cluster="demo", node="gpu-1", user=None
    )
    for name in ("cluster", "health", "windows"):
        assert not list(TOPICS[name].changes(heard))
