"""Maintenance windows and drains over REST: who may, what is refused by name, what others may see."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.common.models import Event
from scheduler.models import Drain, MaintenanceWindow, Node, Occurrence
from scheduler.services.evictions import carry_out_evictions
from scheduler.services.occurrences import tick_windows
from tenants.models import AuditEntry, User
from tests.scheduler import rows
from tests.scheduler.people import add_people, client
from tests.scheduler.rows import World
from tests.windows.builders import leaf, run_gang
from tests.windows.test_ics import unfolded

pytestmark = pytest.mark.django_db
WINDOWS = "/api/v1/maintenance-windows/"


@pytest.fixture
def world() -> World:
    made = rows.make_world(8, nodes_per_leaf=4)
    add_people(made)
    return made


def in_hours(hours: float) -> str:
    at = (timezone.now() + timedelta(hours=hours)).replace(microsecond=0)
    return at.isoformat()


def body(**changes: Any) -> dict[str, Any]:
    return {
        "title": "New driver",
        "cluster": "demo",
        "starts_at": in_hours(24),
        "ends_at": in_hours(26),
        "nodes": leaf(),
    } | changes


def create(**changes: Any) -> Any:
    return client("ines").post(WINDOWS, body(**changes), format="json")


def test_operators_make_windows_and_everyone_sees_them(world: World) -> None:
    for name in ("ravi", "olivia", "sam"):
        assert client(name).post(WINDOWS, body(), format="json").status_code == 403
    made = create(running_jobs="finish", notice_minutes=30)
    assert made.status_code == 201, made.json()
    answer = made.json()
    assert made["ETag"] == '"1"'
    assert made["Location"].endswith(f"{WINDOWS}{answer['id']}/")
    assert (answer["kind"], answer["crossing"], answer["time_zone"]) == (
        *("maintenance", "checkpointable"),
        "UTC",
    )
    assert (answer["node_count"], answer["by"]) == (4, "ines")
    assert [each["state"] for each in answer["occurrences"]] == ["planned"]
    for name in ("ravi", "mei", "sam"):
        (seen,) = client(name).get(WINDOWS).json()["results"]
        assert seen == answer
    assert Event.objects.get(kind="window.created").cluster == "demo"
    entry: Any = AuditEntry.objects.get(action="window.created")
    assert entry.after["title"] == "New driver"


def test_windows_on_the_same_nodes_say_that_they_overlap(world: World) -> None:
    rule = {"rrule": "FREQ=DAILY", "starts_at": in_hours(2), "ends_at": in_hours(3)}
    names: dict[str, Any] = {
        "names": ["gpu-00005", "gpu-00001"],
        "domains": [],
        "labels": {},
        "flavor": None,
    }
    first = create(**rule, title="Every day", nodes=names).json()
    assert first["overlaps"] == []
    times = {"starts_at": in_hours(26.5), "ends_at": in_hours(40)}
    told = {
        "window": first["id"], "title": "Every day", "kind": "maintenance", "nodes": 1,
        "starts_at": _utc(times["starts_at"]), "ends_at": first["occurrences"][1]["ends_at"],
    }  # fmt: skip
    seen = client("ines").post(f"{WINDOWS}?preview=1", body(**times), format="json").json()
    assert seen["overlaps"] == [told]
    second = create(**times).json()
    assert second["overlaps"] == [told]
    both = client("ravi").get(WINDOWS).json()["results"]
    assert [[each["window"] for each in row["overlaps"]] for row in both] == [
        [second["id"]],
        [first["id"]],
    ]
    # Neither other nodes nor another time count, nor what was cancelled.
    assert create(**times, nodes=leaf("leaf-00")).json()["overlaps"][0]["window"] == first["id"]
    assert create(starts_at=in_hours(41), ends_at=in_hours(49)).json()["overlaps"] == []
    client("ines").delete(f"{WINDOWS}{first['id']}/", HTTP_IF_MATCH="*")
    assert client("ines").get(f"{WINDOWS}{second['id']}/").json()["overlaps"] == []


def _utc(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"title": None}, "/title", "required"),
        ({"cluster": "other"}, "/cluster", "unknown_cluster"),
        ({"starts_at": "tomorrow"}, "/starts_at", "not_a_time"),
        ({"starts_at": "2027-01-01T00:00:00"}, "/starts_at", "not_a_time"),
        ({"ends_at": in_hours(23)}, "/ends_at", "too_early"),
        ({"starts_at": in_hours(-5), "ends_at": in_hours(-3)}, "/ends_at", "in_the_past"),
        ({"ends_at": in_hours(24 * 400)}, "/ends_at", "too_late"),
        ({"time_zone": "Mars/Olympus"}, "/time_zone", "unknown_zone"),
        ({"rrule": "FREQ=HOURLY"}, "/rrule", "rrule_frequency"),
        ({"rrule": "every tuesday"}, "/rrule", "rrule_malformed"),
        ({"nodes": {}}, "/nodes", "required"),
        ({"nodes": {"labels": {"rack": "9"}}}, "/nodes", "no_nodes"),
        ({"nodes": {"names": ["gpu-99999"]}}, "/nodes/names/0", "unknown_node"),
        ({"nodes": {"flavor": "h200"}}, "/nodes/flavor", "unknown_flavor"),
        (
            {"nodes": {"domains": [{"level": "leaf", "name": "leaf-09"}]}},
            "/nodes/domains/0/name",
            "unknown_domain",
        ),
        ({"nodes": {"leaf": "leaf-01"}}, "/nodes/leaf", "unknown_field"),
        ({"running_jobs": "kill"}, "/running_jobs", "unknown_choice"),
        ({"latest_at": in_hours(30)}, "/latest_at", "out_of_range"),
        ({"notice_minutes": -1}, "/notice_minutes", "too_small"),
        ({"admits": {"tenants": ["research"]}}, "/admits", "not_reserved"),
        (
            {"kind": "reserved", "admits": {"tenants": ["nobody"]}},
            "/admits/tenants/0",
            "unknown",
        ),
        ({"colour": "red"}, "/colour", "unknown_field"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(
    world: World, changes: dict[str, Any], pointer: str, code: str
) -> None:
    answer = create(**changes)
    assert answer.status_code == 422, answer.json()
    errors = [(error["pointer"], error["code"]) for error in answer.json()["errors"]]
    assert (pointer, code) in errors
    assert not MaintenanceWindow.objects.exists()
    assert not Event.objects.filter(kind="window.created").exists()


def test_fractions_of_seconds_are_cut_off(world: World) -> None:
    start = timezone.now() + timedelta(hours=5)
    sent = {"starts_at": start.isoformat(), "ends_at": (start + timedelta(hours=1)).isoformat()}
    made = create(rrule="FREQ=WEEKLY", **sent)
    assert made.status_code == 201, made.json()
    assert MaintenanceWindow.objects.get().starts_at == start.replace(microsecond=0)


def test_changes_need_the_version_that_was_read(world: World) -> None:
    address = f"{WINDOWS}{create().json()['id']}/"
    ines = client("ines")
    change = {"title": "Newer driver", "rrule": "FREQ=WEEKLY"}
    assert ines.patch(address, change, format="json").status_code == 428
    assert ines.patch(address, change, format="json", HTTP_IF_MATCH='"7"').status_code == 412
    done = ines.patch(address, change, format="json", HTTP_IF_MATCH='"1"')
    assert done.status_code == 200, done.json()
    assert (done.json()["title"], done["ETag"]) == ("Newer driver", '"2"')
    assert len(done.json()["occurrences"]) == 5
    assert Occurrence.objects.count() == 5
    cleared = ines.patch(address, {"rrule": None}, format="json", HTTP_IF_MATCH='"2"')
    assert cleared.json()["rrule"] is None
    assert Occurrence.objects.count() == 1
    assert client("ravi").patch(address, {}, format="json", HTTP_IF_MATCH="*").status_code == 403
    assert ines.delete(address).status_code == 428
    gone = ines.delete(address, HTTP_IF_MATCH='"3"')
    assert (gone.status_code, gone.json()["cancelled_by"]) == (200, "ines")
    assert client("ravi").get(WINDOWS).json()["results"] == []
    (kept,) = client("ravi").get(f"{WINDOWS}?all=1").json()["results"]
    assert kept["occurrences"][0]["state"] == "cancelled"
    assert ines.delete(address, HTTP_IF_MATCH="*").status_code == 409


def test_whom_a_reservation_admits_is_hidden_from_strangers(world: World) -> None:
    job = rows.add_job(world, "vision")
    admits = {"tenants": ["vision"], "queues": ["vision.train", "research.train"], "jobs": [job.pk]}
    made = create(kind="reserved", admits=admits)
    assert made.status_code == 201, made.json()
    assert made.json()["admits"] == {**admits, "hidden": 0}
    (seen,) = client("ravi").get(WINDOWS).json()["results"]
    assert seen["admits"] == {
        "tenants": [],
        "queues": ["research.train"],
        "jobs": [],
        "hidden": 3,
    }
    assert "vision" not in repr(seen)
    assert job.pk not in repr(seen)


def test_a_preview_says_who_leaves_and_its_plan_is_held_to(world: World) -> None:
    now = timezone.now()
    asked: dict[str, Any] = {"checkpoint_interval_seconds": 600, "checkpoint_grace_seconds": 60}
    run_gang(world, [4, 5], now=now - timedelta(minutes=3), **asked)
    run_gang(world, [6], tenant="vision", now=now - timedelta(minutes=3))
    run_gang(world, [0], now=now - timedelta(minutes=3))
    ines = client("ines")
    preview = ines.post(f"{WINDOWS}?preview=1", body(), format="json")
    assert preview.status_code == 200, preview.json()
    told = preview.json()
    assert [(job["tenant"], job["way"]) for job in told["jobs"]] == [
        ("research", "checkpoint"),
        ("vision", "evicted"),
    ]
    assert told["lost_gpu_seconds"] == pytest.approx(8 * (24 * 3600 + 180 - 60), abs=200)
    assert not MaintenanceWindow.objects.exists()
    run_gang(world, [7], now=now)
    stale = ines.post(f"{WINDOWS}?plan_id={told['plan_id']}", body(), format="json")
    assert (stale.status_code, stale.json()["code"]) == (409, "plan_changed")
    assert not MaintenanceWindow.objects.exists()
    fresh = ines.post(f"{WINDOWS}?preview=1", body(), format="json").json()["plan_id"]
    assert fresh == stale.json()["plan_id"]
    done = ines.post(f"{WINDOWS}?plan_id={fresh}", body(), format="json")
    assert done.status_code == 201


def test_a_window_that_is_open_can_be_finished_early(world: World) -> None:
    made = create(starts_at=in_hours(-0.1), ends_at=in_hours(3))
    address = f"{WINDOWS}{made.json()['id']}/finish/"
    assert client("ines").post(address).status_code == 409
    tick_windows(world.cluster, timezone.now())
    assert Occurrence.objects.get().state == "open"
    assert client("ravi").post(address).status_code == 403
    assert client("ines").post(address).status_code == 200
    tick_windows(world.cluster, timezone.now())
    assert Occurrence.objects.get().state == "over"
    assert not Node.objects.filter(cordon_wanted=True).exists()


def test_the_feed_is_opened_by_its_own_key_only(world: World) -> None:
    create(title="Firmware; leaf-01", rrule="FREQ=WEEKLY;COUNT=3")
    User.objects.get(username="ravi").save()
    address = client("ravi").get("/api/v1/me/calendar/").json()["url"]
    path = address.removeprefix("http://testserver")
    stranger = client("ravi")
    stranger.logout()
    feed = stranger.get(path, HTTP_ACCEPT="text/calendar")
    assert feed.status_code == 200
    assert feed["Content-Type"].startswith("text/calendar")
    lines = unfolded(feed.content.decode())
    assert lines.count("BEGIN:VEVENT") == 3
    assert "SUMMARY:Firmware\\; leaf-01" in lines
    starts = sorted(line for line in lines if line.startswith("DTSTART:"))
    first = datetime.strptime(starts[0], "DTSTART:%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert first == MaintenanceWindow.objects.get().starts_at
    assert stranger.get(path[:-1] + "x").status_code == 401
    assert stranger.get("/api/v1/calendar.ics").status_code == 401
    key = path.partition("key=")[2]
    assert stranger.get(f"/api/v1/nodes/?key={key}").status_code == 401
    ravi = User.objects.get(username="ravi")
    ravi.set_password("another")
    ravi.save()
    assert stranger.get(path).status_code == 401


def test_the_feed_names_nobody_whom_a_reservation_admits(world: World) -> None:
    create(kind="reserved", admits={"tenants": ["vision"]})
    text = client("ravi").get("/api/v1/calendar.ics").content.decode()
    assert "reserved" in text
    assert "vision" not in text


def drain(node: str = "gpu-00004", who: str = "ines", query: str = "", **sent: Any) -> Any:
    address = f"/api/v1/clusters/demo/nodes/{node}/drain/{query}"
    return client(who).post(address, {"reason": "fan"} | sent, format="json")


def test_a_drain_lets_gangs_leave_after_their_checkpoint_and_says_when(world: World) -> None:
    now = timezone.now()
    asked: dict[str, Any] = {"checkpoint_interval_seconds": 600, "checkpoint_grace_seconds": 60}
    attempt = run_gang(world, [4, 5], now=now - timedelta(seconds=300), **asked)
    assert drain(who="ravi").status_code == 403
    assert drain(reason=" ").json()["errors"][0]["pointer"] == "/reason"
    preview = drain(query="?preview=1").json()
    assert [job["nodes"] for job in preview["jobs"]] == [["gpu-00004"]]
    assert not Drain.objects.exists()
    done = drain(plan_id=preview["plan_id"])
    assert done.status_code == 200, done.json()
    assert (done.json()["state"], done.json()["drain"]["by"]) == ("draining", "ines")
    tick_windows(world.cluster, now)
    carry_out_evictions(world.cluster, now)
    attempt.refresh_from_db()
    assert attempt.stop_cause == ""
    written = now + timedelta(seconds=360)
    expected: Any = Drain.objects.get().expected_empty_at
    assert abs(expected - (written + timedelta(seconds=30))) < timedelta(seconds=5)
    carry_out_evictions(world.cluster, written + timedelta(seconds=5))
    attempt.refresh_from_db()
    assert attempt.stop_cause == "maintenance"
    attempt.placements.update(released_at=written)
    tick_windows(world.cluster, written + timedelta(seconds=40))
    answer = client("ravi").get("/api/v1/clusters/demo/nodes/gpu-00004/").json()
    assert answer["state"] == "cordoned"
    assert answer["drain"]["empty_at"] is not None


def test_an_uncordon_ends_a_drain_and_lets_jobs_stay(world: World) -> None:
    now = timezone.now()
    attempt = run_gang(world, [4], now=now, checkpoint_interval_seconds=600)
    drain()
    tick_windows(world.cluster, now)
    back = client("ines").post(
        "/api/v1/clusters/demo/nodes/gpu-00004/uncordon/", {"reason": "no"}, format="json"
    )
    assert (back.json()["drain"], back.json()["cordons"]) == (None, [])
    tick_windows(world.cluster, now + timedelta(hours=1))
    carry_out_evictions(world.cluster, now + timedelta(hours=1))
    attempt.refresh_from_db()
    assert attempt.stop_cause == ""


def test_many_nodes_drain_together_and_a_gang_counts_once(world: World) -> None:
    now = timezone.now()
    run_gang(world, [4, 5, 6, 7], now=now - timedelta(seconds=100))
    address = "/api/v1/clusters/demo/drain/"
    sent = {"reason": "rack", "nodes": leaf(), "running_jobs": "evict"}
    ines = client("ines")
    preview = ines.post(f"{address}?preview=1", sent, format="json").json()
    assert len(preview["jobs"]) == 1
    assert preview["lost_gpu_seconds"] == pytest.approx(3200, abs=100)
    done = ines.post(address, sent | {"plan_id": preview["plan_id"]}, format="json")
    assert [node["state"] for node in done.json()["nodes"]] == ["draining"] * 4
    assert Drain.objects.count() == 4
    again = ines.post(address, sent | {"reason": "still"}, format="json")
    assert again.status_code == 200
    assert Drain.objects.count() == 4
    tick_windows(world.cluster, now)
    carry_out_evictions(world.cluster, now)
    assert Event.objects.filter(kind="eviction.signalled").count() == 1
