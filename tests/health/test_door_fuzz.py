"""Whatever JSON is sent to the doors of health, windows, alerts and webhooks: read, or refused with a pointer."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.models import Alert
from scheduler.services.alerts import AlertFacts, raise_alert
from tests.health.scene import Scene, make_scene
from tests.world import World

pytestmark = pytest.mark.django_db

ODD: list[Any] = [
    *(None, True, -1, 2**63, 1e308, "", "\x00", "\ud800", "9" * 3000),
    *("9999-12-31T23:59:59-23:59", [None], {"a": {"b": []}}),
]
WINDOW = {
    "title": "t", "cluster": "demo", "nodes": {"names": ["gpu-00001"]}, "starts_at": "2036-11-29T12:00:00Z",
    "ends_at": "2036-11-29T14:00:00Z", "recurrence": "FREQ=WEEKLY", "timezone": "Europe/Berlin",
    "running_jobs": "finish", "crossing": "avoid", "notice_minutes": 5, "latest_minutes": 10,
}  # fmt: skip
PROPOSE = {
    "cluster": "demo", "nodes": {"leaf": "leaf-00"}, "count": 1, "duration_minutes": 60, "within_days": 2,
    "not_before": "2036-11-29T12:00:00Z", "running_jobs": "finish",
}  # fmt: skip
POLICY = {
    "budget_percent": 5, "budget_nodes": 2, "budget_window_seconds": 60, "burn_in_image": "i", "burn_in_command": ["a"],
    "burn_in_preset": None, "burn_in_limit_seconds": 60, "exporter_url": "", "prometheus_url": "", "scrape_seconds": 15,
}  # fmt: skip
DOORS: list[tuple[str, str, dict[str, Any]]] = [
    ("post", "gpus/GPU-gpu-00000-3/override/", {"state": "healthy", "reason": "r", "until": None}),
    ("post", "clusters/demo/nodes/gpu-00000/reports/",
     {"kind": "xid", "code": 31, "gpu": 1, "uuid": "", "job": None, "message": "m", "evidence": "e"}),
    ("post", "clusters/demo/nodes/gpu-00000/return/", {"reason": "r"}),
    ("post", "clusters/demo/nodes/gpu-00000/burn-in/", {"reason": "r"}),
    ("patch", "clusters/demo/health-policy/", POLICY),
    ("patch", "health-rules/temperature/", {"mode": "act", "parameters": {"above_c": 85, "seconds": 120}}),
    ("post", "health-rules/temperature/dry-run/?cluster=demo", {"mode": "act", "parameters": {"above_c": 85}}),
    ("post", "windows/", WINDOW),
    ("post", "windows/propose/", PROPOSE),
    ("post", "alerts/{alert}/acknowledge/", {"note": "n"}),
    ("post", "alerts/{alert}/silence/", {"until": "2036-11-29T12:00:00Z", "reason": "r"}),
    ("post", "alerts/{alert}/resolve/", {}),
    ("post", "webhooks/", {"url": "https://example.org/h", "kinds": ["gpu_fault"], "tenant": None, "name": "n"}),
]  # fmt: skip
LISTS = (
    *("gpus/", "clusters/demo/quarantine/", "clusters/demo/joining/", "health-rules/", "alerts/"),
    *("clusters/demo/nodes/gpu-00000/timeline/", "windows/", "webhooks/", "evictions/"),
)
QUERIES = (
    "state",
    "cluster",
    "node",
    "tenant",
    "severity",
    "kind",
    "job",
    "limit",
    "cursor",
    "from",
    "to",
    "open",
)


@pytest.fixture
def scene(people: World) -> Scene:
    return make_scene(2, burn_in_image="x")


def odd_bodies(body: dict[str, Any]) -> Iterator[Any]:
    """Each value, and each inner value, exchanged for each odd one; a field nobody knows; odd bodies as a whole."""
    for key, value in body.items():
        for odd in ODD:
            yield body | {key: odd}
            if isinstance(value, dict):
                yield body | {key: dict.fromkeys(value, odd)}
    yield body | {"\x00": 1}
    yield from (None, [], "text", 7)


@pytest.mark.parametrize(("method", "path", "body"), DOORS, ids=[door[1] for door in DOORS])
def test_odd_bodies_are_read_or_refused_with_pointers(
    people: World, scene: Scene, method: str, path: str, body: dict[str, Any]
) -> None:
    raise_alert(AlertFacts("node_suspect", cluster=scene.cluster, node="gpu-00001"), scene.now)
    client = people.client("admin")
    client.raise_request_exception = False
    url = "/api/v1/" + path.format(alert=Alert.objects.get().pk)
    wrong = []
    for sent in odd_bodies(body):
        raw = json.dumps(sent)  # escapes what is no character
        answer = getattr(client, method)(
            url, raw, content_type="application/json", headers={"If-Match": "*"}
        )
        crashed = answer.status_code >= 500 and answer.status_code != 503
        if crashed or (answer.status_code == 422 and not points(answer.json())):
            wrong.append((raw[:200], answer.status_code, answer.content[:200]))
    assert not wrong


def points(problem: dict[str, Any]) -> bool:
    """Each error names its place: a JSON pointer, empty for the body as a whole."""
    pointers = [error["pointer"] for error in problem["errors"]]
    return bool(pointers) and all(not each or each.startswith("/") for each in pointers)


@pytest.mark.parametrize("path", LISTS)
def test_odd_queries_are_read_or_refused(people: World, scene: Scene, path: str) -> None:
    client = people.client("admin")
    client.raise_request_exception = False
    wrong = []
    for name in QUERIES:
        for odd in ("\x00", "9" * 3000, "9999-12-31T23:59:59-23:59", "bm9uc2Vuc2U="):
            answer = client.get(f"/api/v1/{path}", {name: odd})
            if answer.status_code >= 500:
                wrong.append((name, odd[:20], answer.status_code))
    assert not wrong
