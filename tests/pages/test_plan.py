"""Plan, evictions and the calendar: what is ahead, who leaves for whom, windows made, previewed, changed, cancelled."""

from datetime import timedelta

import pytest
from django.utils import timezone

from queues.models import Attempt
from scheduler.models import Booking, Drain, Hold, MaintenanceWindow, Node
from scheduler.selectors.gangs import level_gangs
from scheduler.selectors.node_facts import node_facts
from scheduler.selectors.outlook import Bar
from scheduler.services.evictions import order_eviction
from scheduler.views.plan import fitting_hours

# Windows lie at most two years ahead: in March of next year, before summer time begins.
YEAR = timezone.now().year + 1
WINDOW = {
    "title": "Firmware",
    "cluster": "demo",
    "kind": "maintenance",
    "domains": "leaf/leaf-00",
    "starts_at": f"{YEAR}-03-05T20:00",
    "lasts": "2h",
    "time_zone": "Europe/Berlin",
    "repeat": "FREQ=WEEKLY",
    "running_jobs": "checkpoint",
    "crossing": "checkpointable",
    "notice_minutes": "60",
}


@pytest.fixture
def planned(scene):
    """A booking and a hold of research, a booking of vision."""
    for name in ("pretrain-70b-ctx32k", "vision-secret-plan"):
        Booking.objects.create(
            job=scene.jobs[name],
            cluster=scene.cluster,
            flavor=scene.flavors["h100"],
            starts_at=scene.now + timedelta(hours=3),
            until=scene.now + timedelta(hours=9),
            nodes=[[f"gpu-{n:05d}", 8] for n in range(16)],
            made_at=scene.now,
        )
    Hold.objects.create(
        job=scene.jobs["sft-math-v4"],
        cluster=scene.cluster,
        flavor=scene.flavors["h100"],
        nodes=[["gpu-00001", 8, 0, 0, 1]],
        expires_at=scene.now + timedelta(minutes=9),
    )
    return scene


def evict(scene, victim, preemptor):
    attempt = Attempt.objects.get(job=scene.jobs[victim], ended_at__isnull=True)
    return order_eviction(
        attempt,
        rule="reclaim",
        message="research takes back what it lent",
        ordered_by="scheduler",
        now=scene.now,
        preemptor=scene.jobs[preemptor],
        numbers={"victim_borrowed_gpus": 64, "preemptor_nominal_gpus": 256},
        refused=[[scene.jobs["eval-suite"].pk, "not_needed"]],
    )


def test_plan_shows_bookings_holds_and_ends_of_ones_own(planned, sign_in):
    text = sign_in("ravi").get("/plan/").content.decode()
    for name in ("pretrain-70b-ctx32k", "sft-math-v4", "pretrain-7b"):
        assert name in text
    assert "vision-secret-plan" not in text
    assert "segment-anything" not in text
    assert "1 booking of other tenants" in text
    everything = sign_in("ines").get("/plan/?hours=168").content.decode()
    assert "vision-secret-plan" in everything
    assert 'style="' not in everything


def test_plan_asks_few_questions(planned, sign_in, django_assert_max_num_queries):
    client = sign_in("ravi")
    client.get("/plan/")
    with django_assert_max_num_queries(32):
        client.get("/plan/")


def test_largest_gang_is_of_whole_free_nodes_in_one_domain(scene):
    gangs = {
        (g.flavor, g.level): g for g in level_gangs(node_facts(scene.cluster), ["spine", "leaf"])
    }
    leaf, spine, whole = (gangs["h100", level] for level in ("leaf", "spine", ""))
    assert (leaf.domain, leaf.nodes, leaf.gpus) == ("leaf-03", 13, 104)
    assert leaf.nodes <= spine.nodes <= whole.nodes == whole.free_nodes
    assert whole.scattered == 0
    assert 0 < leaf.scattered < 1


def test_eviction_is_told_to_both_sides_each_in_its_own_words(scene, sign_in):
    evict(scene, "segment-anything", "pretrain-70b-ctx32k")
    victim, winner = scene.jobs["segment-anything"], scene.jobs["pretrain-70b-ctx32k"]
    own = sign_in("mei").get(f"/jobs/{victim.pk}/evictions/").content.decode()
    assert "lent quota reclaimed" in own
    assert "a job of another tenant" in own
    assert "pretrain-70b" not in own
    assert "preemptor nominal" not in own
    made = sign_in("ravi").get(f"/jobs/{winner.pk}/evictions/").content.decode()
    assert "made room for it" in made
    assert "segment-anything" not in made
    assert "eval-suite" not in made  # spared jobs are named by their id
    listed = sign_in("ines").get("/plan/evictions/?rule=reclaim").content.decode()
    assert "segment-anything" in listed
    assert "pretrain-70b-ctx32k" in listed
    assert sign_in("ravi").get(f"/jobs/{victim.pk}/evictions/").status_code == 404


@pytest.mark.parametrize("name", ["ravi", "vera", "ines", "sam", "admin"])
def test_everyone_sees_the_calendar_and_only_operators_plan(scene, sign_in, name):
    client = sign_in(name)
    assert client.get("/calendar/").status_code == 200
    expected = 200 if name in ("ines", "admin") else 403
    assert client.get("/calendar/new/").status_code == expected
    made = client.post("/calendar/new/", WINDOW)
    assert made.status_code == (302 if expected == 200 else 403)
    assert MaintenanceWindow.objects.count() == (1 if expected == 200 else 0)


def test_window_keeps_the_wall_clock_of_its_zone(scene, sign_in):
    client = sign_in("ines")
    client.post("/calendar/new/", WINDOW)
    row = MaintenanceWindow.objects.get()
    assert row.starts_at.isoformat() == f"{YEAR}-03-05T19:00:00+00:00"
    assert (row.ends_at - row.starts_at) == timedelta(hours=2)
    assert row.rrule.startswith("FREQ=WEEKLY")
    month = client.get(f"/calendar/?month={YEAR}-04").content.decode()
    assert month.count(f'href="/calendar/{row.pk}/"') >= 4
    # After the change to summer time it is an hour earlier in UTC.
    assert "18:00" in month


def test_form_comes_back_with_each_error_at_its_field(scene, sign_in):
    sent = WINDOW | {"domains": "leaf/leaf-77", "lasts": "0m", "time_zone": "Mars/Olympus"}
    answer = sign_in("ines").post("/calendar/new/", sent)
    assert "time_zone" in answer.context["form"].errors
    answer = sign_in("ines").post("/calendar/new/", WINDOW | {"domains": "leaf/leaf-77"})
    assert "domains" in answer.context["form"].errors
    answer = sign_in("ines").post("/calendar/new/", WINDOW | {"lasts": "0m"})
    assert "lasts" in answer.context["form"].errors
    answer = sign_in("ines").post("/calendar/new/", WINDOW | {"repeat": "other", "rule": "FREQ=X"})
    assert "rule" in answer.context["form"].errors
    assert not MaintenanceWindow.objects.exists()


def test_preview_names_the_jobs_that_would_leave_and_stores_nothing(scene, sign_in):
    text = sign_in("ines").post("/calendar/preview/", WINDOW).content.decode()
    assert "pretrain-7b" in text
    assert "GPU h" in text
    assert not MaintenanceWindow.objects.exists()
    assert sign_in("ravi").post("/calendar/preview/", WINDOW).status_code == 403


def test_preview_and_page_name_the_windows_that_overlap(scene, sign_in):
    client = sign_in("ines")
    client.post("/calendar/new/", WINDOW | {"title": "The first one"})
    text = client.post("/calendar/preview/", WINDOW).content.decode()
    assert "Overlaps with other windows" in text
    assert "The first one" in text
    client.post("/calendar/new/", WINDOW | {"title": "The second one"})
    last = MaintenanceWindow.objects.latest("pk")
    assert "The first one" in client.get(f"/calendar/{last.pk}/").content.decode()


def test_window_is_changed_and_cancelled_with_a_reason(scene, sign_in):
    client = sign_in("ines")
    client.post("/calendar/new/", WINDOW)
    row = MaintenanceWindow.objects.get()
    form = client.get(f"/calendar/{row.pk}/edit/").context["form"]
    assert form.initial["starts_at"] == f"{YEAR}-03-05T20:00"
    assert form.initial["lasts"] == "2h"
    sent = WINDOW | {"title": "Firmware 2", "version": "1"}
    assert client.post(f"/calendar/{row.pk}/edit/", sent).status_code == 302
    stale = client.post(f"/calendar/{row.pk}/edit/", sent | {"title": "Firmware 3"})
    assert "changed after you read it" in stale.content.decode()
    text = client.get(f"/calendar/{row.pk}/").content.decode()
    assert "Firmware 2" in text
    client.post(f"/calendar/{row.pk}/act/", {"do": "cancel", "reason": "no parts", "version": "2"})
    row.refresh_from_db()
    assert row.cancelled_by == "ines"
    assert "cancelled by ines" in client.get(f"/calendar/{row.pk}/").content.decode()


def test_drain_is_planned_previewed_and_done(scene, sign_in):
    sent = {"names": "gpu-00000", "running_jobs": "checkpoint", "reason": "fan", "within": "4h"}
    client = sign_in("ines")
    text = client.post("/clusters/demo/drain/preview/", sent).content.decode()
    assert "pretrain-7b" in text
    assert not Drain.objects.exists()
    assert client.post("/clusters/demo/drain/", sent).status_code == 302
    drain = Drain.objects.get()
    assert (drain.node.name, drain.reason) == ("gpu-00000", "fan")
    assert drain.latest_at is not None
    assert drain.latest_at > timezone.now() + timedelta(hours=3)
    assert Node.objects.get(name="gpu-00000").cordon_wanted
    assert "gpu-00000" in client.get("/clusters/demo/drain/").content.decode()
    assert sign_in("olivia").post("/clusters/demo/drain/", sent).status_code == 403


def test_drain_without_a_reason_says_so_at_the_field(scene, sign_in):
    answer = sign_in("ines").post("/clusters/demo/drain/", {"names": "gpu-00000"})
    assert {"reason", "running_jobs"} <= set(answer.context["form"].errors)
    wrong = {"names": "gpu-99999", "running_jobs": "evict", "reason": "x"}
    answer = sign_in("ines").post("/clusters/demo/drain/", wrong)
    assert "names" in answer.context["form"].errors


@pytest.mark.parametrize(
    ("ends_minutes", "hours"),
    [([], 6), ([3, 9, 40], 1), ([3, 9, 40, 2000], 1), ([3, 90, 100, 110], 6), ([2000, 3000], 6)],
)
def test_the_axis_is_as_short_as_most_of_what_is_ahead_allows(ends_minutes, hours):
    now = timezone.now()
    bars = [
        Bar("running", "j", "j", "demo", 1, 8, now, now + timedelta(minutes=minutes))
        for minutes in ends_minutes
    ]
    endless = Bar("running", "j", "j", "demo", 1, 8, now, None)
    assert fitting_hours([*bars, endless], now, (1, 6)) == hours


def test_eviction_tells_the_numbers_of_both_sides_as_far_as_the_reader_sees_them(scene, sign_in):
    attempt = Attempt.objects.get(job=scene.jobs["segment-anything"], ended_at__isnull=True)
    order_eviction(
        attempt,
        rule="fair_share",
        message="research has had less than its share",
        ordered_by="window 1@20261129T205000Z",
        now=scene.now,
        preemptor=scene.jobs["pretrain-70b-ctx32k"],
        numbers={
            "flavor": "h100",
            "victim_priority": 500,
            "preemptor_priority": 900,
            "ran_seconds": 5_400,
        },
    )
    path = f"/jobs/{attempt.job_id}/evictions/"
    text = sign_in("ines").get(path).content.decode()
    assert "<dt>Priority</dt><dd>500 against 900</dd>" in text
    assert "<dt>Had run</dt><dd>1 h 30</dd>" in text
    assert "by window 1<" in text
    own = sign_in("mei").get(path).content.decode()
    assert "<dt>Priority</dt><dd>500 against –</dd>" in own
