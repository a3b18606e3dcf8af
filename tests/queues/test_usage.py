"""GPU hours over REST: cut to the stretch, by day over midnight, by any group, only what the caller may see."""

from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from queues.models import Attempt, Placement, Queue
from queues.selectors.usage import usage_visible_to
from tests.factories import (
    NOW,
    actor_of,
    later,
    make_cluster,
    make_flavor,
    make_job,
    make_queue,
    run_job,
)
from tests.world import World, make_world

pytestmark = pytest.mark.django_db
HOUR = 3600


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    return make_world()


@pytest.fixture
def train(world: World) -> Queue:
    return make_queue(
        world.tenants["research"], "train", flavors=[make_flavor(make_cluster())], nominal=256
    )


def ran(queue: Queue, user: Any, begin: float, end: float | None, replicas: int = 1) -> Attempt:
    """An attempt of 8 GPUs a replica, from and until so many hours after NOW; None: it still runs."""
    attempt = run_job(make_job(queue, user, replicas=replicas), later(begin * HOUR))
    if end is not None:
        Placement.objects.filter(attempt=attempt).update(released_at=later(end * HOUR))
    return attempt


def get(who: APIClient, **query: Any) -> Any:
    return who.get("/api/v1/usage/", query)


def used(answer: Any) -> list[tuple[Any, ...]]:
    assert answer.status_code == 200, answer.json()
    return [tuple(row.values()) for row in answer.json()["results"]]


def test_use_is_cut_to_the_stretch_and_what_runs_counts_until_now(
    world: World, train: Queue, django_assert_num_queries: Any
) -> None:
    ran(train, world.users["ravi"], -10, -4, replicas=2)  # 16 GPUs, 4 of its 6 hours are in it
    ran(train, world.users["ravi"], -2, None)  # 8 GPUs
    ran(train, world.users["ravi"], -30, -9)  # before it
    ran(train, world.users["ravi"], 1, 2)  # after it
    partly = ran(train, world.users["olivia"], -3, -1, replicas=2)
    one = Placement.objects.filter(attempt=partly, rank=1)
    one.update(released_at=later(-2 * HOUR))
    actor = actor_of(world.users["ravi"])
    actor.roles  # noqa: B018  asked for once, by whoever asks who it is
    with django_assert_num_queries(1):
        found = usage_visible_to(actor, later(-8 * HOUR), later(5 * HOUR), ["user"], NOW)
    assert [(each.key, each.gpu_seconds / HOUR, len(each.jobs)) for each in found] == [
        (("olivia",), 8 * 2 + 8 * 1, 1),
        (("ravi",), 16 * 4 + 8 * 2, 2),
    ]


def test_use_by_day_is_parted_at_midnight(world: World, train: Queue) -> None:
    ran(train, world.users["ravi"], -37, -8)  # from 23:00 two days ago until 04:00 today
    answer = get(world.bearer("ravi"), **{"from": "2026-11-01", "to": "2026-11-29T12:00:00Z",
                 "group_by": "day,tenant"})  # fmt: skip
    assert used(answer) == [
        ("2026-11-27", "research", 8.0, 1),
        ("2026-11-28", "research", 192.0, 1),
        ("2026-11-29", "research", 32.0, 1),
    ]
    told = answer.json()
    assert (told["from"], told["to"]) == ("2026-11-01T00:00:00Z", "2026-11-29T12:00:00Z")


def test_nobody_sees_the_use_of_other_tenants(world: World, train: Queue) -> None:
    other = make_queue(
        world.tenants["vision"], "train", flavors=[make_flavor(make_cluster())], nominal=256
    )
    ran(train, world.users["ravi"], -3, -1)
    ran(other, world.users["mei"], -3, -2)
    query = {"from": "2026-11-29", "to": "2026-11-30", "group_by": "queue,flavor"}
    ours, theirs = ("research.train", "h100", 16.0, 1), ("vision.train", "h100", 8.0, 1)
    seen = {name: used(get(world.bearer(name), **query)) for name in ("vera", "mei", "sam", "ines")}
    assert seen == {"vera": [ours], "mei": [theirs], "sam": [ours, theirs], "ines": [ours, theirs]}
    assert used(get(world.bearer("nobody"), **query)) == []
    assert get(world.bearer("ravi", scopes=("nodes:read",)), **query).status_code == 403


def test_groups_come_in_pages_that_fit_each_other(world: World, train: Queue) -> None:
    ran(train, world.users["ravi"], -24 * 9.5, -1)
    ravi = world.bearer("ravi")
    query = {"from": "2026-11-01", "group_by": "user,day", "limit": 4}
    whole = used(get(ravi, **query | {"limit": 200, "to": "2026-11-29T12:00:00Z"}))
    page = get(ravi, **query | {"to": "2026-11-29T12:00:00Z"})
    rows = used(page)
    while following := page.json()["next"]:
        page = ravi.get(following)
        assert page.json()["to"] == "2026-11-29T12:00:00Z"
        rows += used(page)
    assert rows == whole
    assert len(rows) == 10


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"from": "yesterday"}, "?from"),
        ({"from": "2026-11-29T12:00:00"}, "?from"),
        ({"from": "2026-02-30"}, "?from"),
        ({"to": "0001-01-01T00:00:00+14:00"}, "?to"),
        ({"from": "2026-11-20", "to": "2026-11-20"}, "?from"),
        ({"from": "2999-01-01"}, "?from"),
        ({"from": "2020-01-01", "to": "2026-11-29"}, "?from"),
        ({"group_by": "colour"}, "?group_by"),
        ({"group_by": "user,user"}, "?group_by"),
        ({"cursor": "nonsense"}, "?cursor"),
        ({"cursor": "WzFd"}, "?cursor"),
        ({"limit": "0"}, "?limit"),
    ],
)
def test_what_is_wrong_with_the_question_is_named(
    world: World, query: dict[str, str], pointer: str
) -> None:
    answer = get(world.bearer("ravi"), **query)
    assert answer.status_code == 422, answer.json()
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_thirty_days_by_tenant_unless_said(world: World) -> None:
    told = get(world.bearer("ravi")).json()
    assert (told["group_by"], told["results"], told["next"]) == (["tenant"], [], None)
    assert timedelta(days=30) == _moment(told["to"]) - _moment(told["from"])


def _moment(text: str) -> Any:
    return type(NOW).fromisoformat(text.replace("Z", "+00:00"))
