"""What the real topics say: map and node rows, quotas, many rows at once; each in few queries."""

import pytest

from controlplane.common.live import EVERY, Heard, Viewer
from queues.lifecycle import Phase
from queues.live import MANY, MOST_ROWS
from queues.live import TOPICS as QUEUE_TOPICS
from scheduler.live import TOPICS as SCHEDULER_TOPICS
from scheduler.models import Node
from tests.factories import make_cluster, make_flavor, make_job, make_queue, place_job
from tests.world import NOW, PEOPLE

TOPICS = {topic.name: topic for topic in (*QUEUE_TOPICS, *SCHEDULER_TOPICS)}


def viewer(world, name):
    """Somebody's page."""
    return Viewer(world.users[name].pk, world.actor(name), "en", "UTC")


@pytest.fixture
def place(world):
    """A cluster with two nodes, a queue in each tenant."""
    cluster = make_cluster()
    flavor = make_flavor(cluster)
    for name in ("gpu-00000", "gpu-00001"):
        Node.objects.create(
            cluster=cluster, name=name, uid=name, flavor=flavor, gpus_capacity=8,
            gpus_allocatable=8, ready=True, observed_at=NOW,
        )  # fmt: skip
    queues = {slug: make_queue(t, flavors=[flavor]) for slug, t in world.tenants.items()}
    return cluster, queues


def test_everyone_sees_that_a_node_is_used_and_only_its_tenant_by_what(world, place):
    _cluster, queues = place
    job = make_job(queues["vision"], world.users["mei"], name="hush-hush")
    place_job(job)
    said = {}
    for name in PEOPLE:
        rendered = TOPICS["map"].render(
            viewer(world, name), "demo", frozenset({f"job:{job.pk}", "node:gpu-00001"})
        )
        assert [key for key, _css in rendered.svg] == ["n-gpu-00000", "n-gpu-00001"]
        said[name] = "".join(fragment.html for fragment in rendered.fragments)
    knowing = {name for name, html in said.items() if "hush-hush" in html}
    assert knowing == {"admin", "ines", "sam", "mei"}


def test_lists_say_nothing_when_only_hidden_jobs_have_changed(world, place):
    _cluster, queues = place
    job = make_job(queues["vision"], world.users["mei"])
    for name, topic in (("ravi", ""), ("ravi", "research"), ("olivia", "")):
        rendered = TOPICS["jobs"].render(viewer(world, name), topic, frozenset({job.pk}))
        assert (rendered.fragments, rendered.counts, rendered.nudge) == ([], {}, False)


def test_job_that_leaves_the_queue_moves_the_others_up(world, place):
    _cluster, queues = place
    jobs = [make_job(queues["research"], world.users["ravi"]) for _ in range(3)]
    jobs[0].phase = Phase.HELD
    jobs[0].save()
    rendered = TOPICS["jobs"].render(viewer(world, "ravi"), "", frozenset({jobs[0].pk}))
    places = {key: n for key, n in rendered.counts.items() if key.startswith("place-")}
    assert places == {f"place-{jobs[1].pk}": 1, f"place-{jobs[2].pk}": 2}
    assert (rendered.counts["waiting"], rendered.counts["active"]) == (3, 0)


@pytest.mark.parametrize("rows", [{MANY}, {f"job_{n}" for n in range(MOST_ROWS + 1)}])
def test_lists_load_themselves_again_when_too_much_has_changed(world, place, rows):
    rendered = TOPICS["jobs"].render(viewer(world, "ravi"), "", frozenset(rows))
    assert [fragment.target for fragment in rendered.fragments] == ["#jobs-changed"]


def test_event_about_a_class_of_jobs_reaches_lists_and_every_open_job():
    heard = Heard(1, "jobs.reason", "research", job="", cluster="demo", node="", user=None)
    assert set(TOPICS["jobs"].changes(heard)) == {("", MANY), ("research", MANY)}
    assert set(TOPICS["job"].changes(heard)) == {(EVERY, MANY)}


def test_rendering_costs_the_same_for_any_number_of_rows(
    world, place, django_assert_max_num_queries
):
    _cluster, queues = place
    jobs = [make_job(queues["research"], world.users["ravi"]) for _ in range(40)]
    for count in (1, 40):
        rows = frozenset(job.pk for job in jobs[:count])
        with django_assert_max_num_queries(14):
            rendered = TOPICS["jobs"].render(viewer(world, "ravi"), "", rows)
        assert len(rendered.fragments) == count


def test_topics_are_open_to_exactly_those_who_see_the_thing(world, place):
    _cluster, queues = place
    job = make_job(queues["research"], world.users["ravi"])
    members = {"admin", "ines", "sam", "olivia", "ravi", "vera"}
    expected = {
        ("jobs", ""): set(PEOPLE),
        ("jobs", "research"): members,
        ("jobs", "unknown"): set(),
        ("job", job.pk): members,
        ("job", "unknown"): set(),
        ("quotas", "research"): members,
        ("map", "demo"): set(PEOPLE),
        ("map", "unknown"): set(),
    }
    for (topic, argument), people in expected.items():
        seeing = {
            name
            for name in PEOPLE
            if TOPICS[topic].scope_of(viewer(world, name), argument) is not None
        }
        assert seeing == people, (topic, argument)


def test_people_of_like_roles_share_a_rendering_and_others_do_not(world, place):
    scopes = {name: TOPICS["jobs"].scope_of(viewer(world, name), "") for name in PEOPLE}
    assert scopes["ravi"] != scopes["vera"] != scopes["mei"] != scopes["ravi"]
    world.users["nobody"].memberships.create(
        tenant=world.tenants["research"], role="submitter", created_at=NOW
    )
    assert TOPICS["jobs"].scope_of(viewer(world, "nobody"), "") == scopes["ravi"]
