"""Jobs over REST, as a script meets them: every status, every pointer, nobody else's jobs."""

import json
import time
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from controlplane.common.models import IdempotencyKey
from queues.lifecycle import EndedBy
from queues.models import Attempt, Estimate, Job, Queue, Verdict
from queues.services.attempts import end_attempt
from tenants.models import Tenant, User
from tenants.throttling import buckets
from tests.factories import (
    H100,
    NOW,
    later,
    make_job,
    make_queue,
    place_job,
    run_job,
)
from tests.queues.payloads import BAD, FULL, GOOD, ROLES
from tests.world import World, make_world

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
JOBS = "/api/v1/jobs/"


@pytest.fixture
def world(db: None) -> World:
    """CONTRACT's people, with full rate limits."""
    buckets.clear()
    return make_world()


@pytest.fixture
def research(world: World) -> Tenant:
    """Their tenant; so the shop's fixtures build on it."""
    return world.tenants["research"]


@pytest.fixture
def ravi(world: World) -> User:
    """A submitter in research."""
    return world.users["ravi"]


@pytest.fixture
def api(world: World, shop: Tenant) -> APIClient:
    """ravi with a token of every scope."""
    return world.bearer("ravi")


def post(client: APIClient, address: str, body: Any, **headers: str) -> Any:
    """JSON in, response out."""
    return client.post(address, json.dumps(body), content_type="application/json", headers=headers)


def submit(client: APIClient, **changes: Any) -> dict[str, Any]:
    """A job that is accepted."""
    response = post(client, JOBS, GOOD | changes)
    assert response.status_code == 201, response.content
    answer: dict[str, Any] = response.json()
    return answer


# --- submit ---


def test_a_minimal_job_is_answered_in_full(api: APIClient) -> None:
    response = post(api, JOBS, GOOD)
    assert response.status_code == 201
    answer = response.json()
    assert response["Location"].endswith(f"/api/v1/jobs/{answer['id']}/")
    assert response["ETag"] == '"1"'
    assert answer["phase"] == "pending"
    assert answer["outcome"] is None
    assert answer["position"] == 2  # the shop's stored job is first
    assert answer["reason"]["code"] == "not_yet_considered"
    assert answer["reason"]["message"]
    assert (answer["replicas"], answer["min_replicas"], answer["gpus_per_replica"]) == (1, 1, 8)
    assert (answer["cpu_per_replica"], answer["memory_per_replica"]) == ("64", "512Gi")
    assert answer["topology"]["level"] == "leaf"
    assert answer["submitted_at"].endswith("Z")
    assert (answer["attempt"], answer["placement"], answer["exit_codes"]) == (0, [], [])
    assert api.get(response["Location"]).json() == answer


ANSWERED = [
    "id",
    "version",
    "user",
    "phase",
    "outcome",
    "attempt",
    "unknown_since",
    "position",
    "reason",
    "reasons",
    "estimated_start",
    "exit_code",
    "exit_codes",
    "placement",
    "submitted_at",
    "started_at",
    "finished_at",
]


def test_an_answer_has_every_key_of_the_contract_and_can_be_sent_again(api: APIClient) -> None:
    answer = post(api, JOBS, FULL).json()
    assert set(FULL) | set(ANSWERED) <= set(answer)
    again = {key: answer[key] for key in FULL} | {"external_id": "another"}
    assert post(api, JOBS, again).status_code == 201


def test_roles_are_answered_as_roles(api: APIClient) -> None:
    answer = post(api, JOBS, ROLES).json()
    assert [role["name"] for role in answer["roles"]] == ["trainer", "reader"]
    assert answer["decides"] == "trainer"
    assert "replicas" not in answer
    again = {key: answer[key] for key in ROLES}
    assert post(api, JOBS, again).status_code == 201


@pytest.mark.slow
def test_every_malformed_job_is_a_problem_that_names_its_field_and_leaves_no_row(
    api: APIClient,
) -> None:
    before = Job.objects.count()
    wrong = []
    for payload, pointer, code in BAD:
        response = post(api, JOBS, payload)
        document = response.json()
        named = [(e["pointer"], e["code"]) for e in document.get("errors", [])]
        # Some characters are refused before the contract is asked.
        fine = (pointer, code) in named or ("invalid_character" in str(named))
        kind = response["Content-Type"] == "application/problem+json"
        if response.status_code != 422 or not fine or not kind or not document["detail"]:
            wrong.append((payload, response.status_code, document))
    assert wrong == []
    assert Job.objects.count() == before


@pytest.mark.parametrize(
    ("body", "status", "code", "detail"),
    [
        ('{"name": "x",', 400, "malformed_json", "line 1"),
        ('{"name": NaN}', 400, "malformed_json", "NaN"),
        ("", 422, "invalid", ""),
        ("[]", 422, "invalid", "object"),
        ('"job"', 422, "invalid", "object"),
        ('{"name": "a", "name": "b"}', 400, "malformed_json", "twice"),
    ],
)
def test_a_body_that_is_no_job_says_what_is_wrong_with_it(
    api: APIClient, body: str, status: int, code: str, detail: str
) -> None:
    before = Job.objects.count()
    response = api.post(JOBS, body, content_type="application/json")
    document = response.json()
    assert (response.status_code, document["code"]) == (status, code)
    assert detail in document["detail"]
    if code == "malformed_json":
        assert "position" in document or "twice" in document["detail"]
    assert Job.objects.count() == before


def test_a_body_of_10_mb_names_the_limit(api: APIClient) -> None:
    response = post(api, JOBS, GOOD | {"args": ["x" * 10_000_000]})
    assert response.status_code == 413
    assert response.json()["limit_bytes"] == 8 * 1024 * 1024


def test_the_wrong_media_type_is_415(api: APIClient) -> None:
    response = api.post(JOBS, "name=x", content_type="application/x-www-form-urlencoded")
    assert response.status_code == 415


def test_sharing_is_refused_by_its_own_code(api: APIClient) -> None:
    response = post(api, JOBS, GOOD | {"sharing": "time-slicing"})
    assert (response.status_code, response.json()["code"]) == (422, "sharing_not_enabled")


def test_an_external_id_in_use_is_409_and_names_the_job(api: APIClient) -> None:
    first = submit(api, external_id="ci-1")
    response = post(api, JOBS, GOOD | {"external_id": "ci-1"})
    assert (response.status_code, response.json()["job"]) == (409, first["id"])


def test_an_idempotency_key_submits_once(api: APIClient) -> None:
    sent = GOOD | {"name": "once"}
    first = post(api, JOBS, sent, **{"Idempotency-Key": "k"})
    second = post(api, JOBS, sent, **{"Idempotency-Key": "k"})
    assert first.json() == second.json()
    assert second["Idempotency-Replayed"] == "true"
    assert Job.objects.filter(name="once").count() == 1
    assert IdempotencyKey.objects.count() == 1
    other = post(api, JOBS, sent | {"name": "two"}, **{"Idempotency-Key": "k"})
    assert other.status_code == 422


def test_a_refused_submission_keeps_no_idempotency_key(api: APIClient) -> None:
    assert post(api, JOBS, {}, **{"Idempotency-Key": "k"}).status_code == 422
    assert post(api, JOBS, GOOD, **{"Idempotency-Key": "k"}).status_code == 201


def test_on_infeasible_must_be_known(api: APIClient) -> None:
    response = post(api, f"{JOBS}?on_infeasible=explode", GOOD)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "?on_infeasible"


@pytest.mark.parametrize(
    ("who", "scopes", "status"),
    [
        ("ravi", ("jobs:write",), 201),
        ("ravi", ("jobs:read",), 403),
        ("olivia", ("jobs:write",), 201),
        ("vera", ("jobs:write",), 403),
        ("ines", ("jobs:write",), 403),
        ("sam", ("jobs:write",), 403),
        ("mei", ("jobs:write",), 422),
        ("nobody", ("jobs:write",), 422),
    ],
)
def test_who_may_submit_to_research(
    world: World, shop: Tenant, who: str, scopes: tuple[str, ...], status: int
) -> None:
    assert post(world.bearer(who, scopes), JOBS, GOOD).status_code == status


def test_nobody_submits_without_signing_in(shop: Tenant) -> None:
    response = post(APIClient(), JOBS, GOOD)
    assert response.status_code == 401


# --- batch ---


def test_a_batch_answers_each_job_in_order(api: APIClient) -> None:
    sent = [GOOD, GOOD | {"replicas": 0}, GOOD | {"external_id": "stored"}, GOOD]
    response = post(api, f"{JOBS}batch/", {"jobs": sent})
    assert response.status_code == 200
    results = response.json()["results"]
    assert [result["status"] for result in results] == [201, 422, 409, 201]
    assert results[1]["problem"]["errors"][0]["pointer"] == "/replicas"
    assert results[0]["job"]["id"] < results[3]["job"]["id"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/jobs"),
        ({"jobs": {}}, "/jobs"),
        ({"jobs": [], "more": 1}, "/more"),
        ({"jobs": [{}] * 501}, "/jobs"),
    ],
)
def test_a_batch_that_is_none_is_refused_whole(api: APIClient, body: Any, pointer: str) -> None:
    response = post(api, f"{JOBS}batch/", body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == pointer


def test_an_empty_batch_is_fine(api: APIClient) -> None:
    assert post(api, f"{JOBS}batch/", {"jobs": []}).json() == {"results": []}


def test_a_circle_in_a_batch_is_422_on_each_member(api: APIClient) -> None:
    jobs = [
        GOOD | {"external_id": "a", "depends_on": [{"external_id": "b"}]},
        GOOD | {"external_id": "b", "depends_on": [{"external_id": "a"}]},
    ]
    before = Job.objects.count()
    results = post(api, f"{JOBS}batch/", {"jobs": jobs}).json()["results"]
    assert [result["status"] for result in results] == [422, 422]
    assert all(result["problem"]["errors"][0]["code"] == "dependency_circle" for result in results)
    assert Job.objects.count() == before


@pytest.mark.slow
def test_two_thousand_jobs_go_in_without_limit_at_three_milliseconds_each(api: APIClient) -> None:
    """The contract wants 10,000 within a minute. Our own CPU time: the machine may be busy otherwise."""
    began = time.process_time()
    for number in range(4):
        jobs = [GOOD | {"external_id": f"{number}-{index}"} for index in range(500)]
        response = post(api, f"{JOBS}batch/", {"jobs": jobs})
        assert response.status_code == 200, response.content[:500]
        assert {result["status"] for result in response.json()["results"]} == {201}
    assert time.process_time() - began < 2000 * 0.003
    assert Job.objects.filter(external_id__isnull=False).count() == 2001


# --- read ---


def test_lists_and_details_hide_other_tenants_jobs(world: World, api: APIClient) -> None:
    mine = submit(api)["id"]
    mei = world.bearer("mei")
    assert mei.get(JOBS).json()["results"] == []
    hidden, unknown = mei.get(f"{JOBS}{mine}/"), mei.get(f"{JOBS}job_unknown/")
    assert hidden.status_code == unknown.status_code == 404
    assert hidden.json()["detail"].replace(mine, "") == unknown.json()["detail"].replace(
        "job_unknown", ""
    )
    for part in ("attempts", "events"):
        assert mei.get(f"{JOBS}{mine}/{part}/").status_code == 404
    for act in ("cancel", "hold", "release", "requeue"):
        assert post(mei, f"{JOBS}{mine}/{act}/", {}).status_code == 404
    for who in ("ines", "sam", "admin", "vera", "olivia"):
        assert world.bearer(who).get(f"{JOBS}{mine}/").status_code == 200


def test_a_token_of_one_tenant_sees_no_other(world: World, shop: Tenant) -> None:
    admin = world.bearer("admin", tenant=world.tenants["vision"])
    assert admin.get(JOBS).json()["results"] == []


def test_lists_are_filtered(world: World, api: APIClient, train: Queue, ravi: User) -> None:
    held = submit(api, name="held-one")["id"]
    post(api, f"{JOBS}{held}/hold/", {})
    by_olivia = submit(world.bearer("olivia"), name="hers", queue="short")["id"]
    Job.objects.filter(external_id="stored").update(reason_code="waiting_for_quota")
    stored = Job.objects.get(external_id="stored").pk

    def ids(query: str) -> set[str]:
        return {job["id"] for job in api.get(f"{JOBS}?{query}").json()["results"]}

    assert ids("") == {held, by_olivia, stored}
    assert ids("phase=held") == {held}
    assert ids("phase=held&phase=pending") == {held, by_olivia, stored}
    assert ids("user=olivia") == {by_olivia}
    assert ids("queue=short") == {by_olivia}
    assert ids("tenant=research") == {held, by_olivia, stored}
    assert ids("tenant=vision") == set()
    assert ids("reason=waiting_for_quota") == {stored}
    assert ids("search=ELD-o") == {held}
    assert ids(f"search={held[-8:]}") == {held}
    assert ids("external_id=stored") == {stored}
    wrong = api.get(f"{JOBS}?phase=nonsense")
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["pointer"] == "/phase"


def test_lists_come_in_pages(api: APIClient) -> None:
    post(api, f"{JOBS}batch/", {"jobs": [GOOD] * 9})
    seen, address = [], f"{JOBS}?limit=4"
    while address:
        page = api.get(address).json()
        seen += [job["id"] for job in page["results"]]
        address = page["next"]
    assert len(seen) == len(set(seen)) == 10
    assert seen == sorted(seen, reverse=True)


def test_a_page_of_jobs_costs_the_same_whatever_its_length(
    api: APIClient, train: Queue, ravi: User
) -> None:
    def queries(limit: int) -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert len(api.get(f"{JOBS}?limit={limit}").json()["results"]) == limit
        return len(captured)

    first = make_job(train, ravi)
    for number in range(30):
        job = make_job(train, ravi, name=f"job-{number}")
        if number % 3 == 0:
            run_job(job, first_node=number)
        elif number % 3 == 1:
            Job.objects.filter(pk=job.pk).update(
                class_key=f"class-{number}", reason_code="waiting_for_booking"
            )
            Verdict.objects.create(
                cluster=train.cluster,
                class_key=f"class-{number}",
                reasons=[{"code": "waiting_for_booking", "numbers": {"booked_job": first.pk}}],
                first_job=job.pk,
                since=NOW,
            )
            Estimate.objects.create(job=job, p50=later(60), made_at=NOW)
    queries(3)
    assert queries(3) == queries(30) <= 14


# --- reasons ---


def say(job: Job, code: str, numbers: dict[str, Any]) -> None:
    """Let the planner have said this of the job's class."""
    Job.objects.filter(pk=job.pk).update(class_key="class", reason_code=code)
    Verdict.objects.update_or_create(
        cluster=job.queue.cluster,
        class_key="class",
        defaults={
            "reasons": [
                {"code": code, "numbers": numbers},
                {"code": "unhealthy_nodes", "numbers": {}},
            ],
            "first_job": job.pk,
            "since": NOW,
        },
    )


def test_a_waiting_job_says_why_with_numbers(api: APIClient, train: Queue, ravi: User) -> None:
    job = make_job(train, ravi)
    numbers = {"needed_nodes": 8, "level": "leaf", "best_domain": "leaf-03", "free_there": 6}
    say(job, "waiting_for_topology", numbers)
    Estimate.objects.create(job=job, p50=later(600), made_at=NOW)
    answer = api.get(f"{JOBS}{job.pk}/").json()
    assert answer["reason"]["numbers"] == numbers
    assert "8 nodes in one leaf" in answer["reason"]["message"]
    assert "leaf-03" in answer["reason"]["message"]
    assert [reason["code"] for reason in answer["reasons"]] == [
        "waiting_for_topology",
        "unhealthy_nodes",
    ]
    assert answer["estimated_start"] == {"p50": "2026-11-29T12:10:00Z", "p90": None}


def test_a_reason_names_no_job_of_another_tenant(
    world: World, api: APIClient, train: Queue, ravi: User
) -> None:
    theirs = make_job(Tenant.objects.get(slug="vision").queues.get(), world.users["mei"])
    job = make_job(train, ravi)
    numbers = {
        "booked_job": theirs.pk,
        "booked_at": NOW.timestamp(),
        "longest_seconds": 600,
        "needed_gpus": 8,
    }
    say(job, "waiting_for_booking", numbers)
    mine = api.get(f"{JOBS}{job.pk}/")
    assert theirs.pk not in mine.content.decode()
    assert mine.json()["reason"]["numbers"]["booked_at"] == "2026-11-29T12:00:00Z"
    assert theirs.pk in world.bearer("ines").get(f"{JOBS}{job.pk}/").content.decode()


def test_own_reasons_have_the_jobs_own_numbers(api: APIClient, train: Queue, ravi: User) -> None:
    first = make_job(train, ravi)
    job = submit(api, depends_on=[{"job": first.pk}])["id"]
    Job.objects.filter(pk=job).update(reason_code="waiting_for_dependency")
    reason = api.get(f"{JOBS}{job}/").json()["reason"]
    assert reason["numbers"] == {"open_dependencies": 1, "first_dependency": first.pk}
    assert first.pk in reason["message"]
    Job.objects.filter(pk=job).update(reason_code="backoff", backoff_until=later(30))
    reason = api.get(f"{JOBS}{job}/").json()["reason"]
    assert reason["numbers"] == {"backoff_until": "2026-11-29T12:00:30Z"}


# --- placements and ends ---


def test_a_running_job_says_where_and_a_finished_one_how(
    api: APIClient, train: Queue, ravi: User
) -> None:
    job = make_job(train, ravi, replicas=2)
    attempt = run_job(job, later(5))
    answer = api.get(f"{JOBS}{job.pk}/").json()
    assert (answer["phase"], answer["attempt"], answer["reason"]) == ("running", 1, None)
    assert answer["started_at"] == "2026-11-29T12:00:05Z"
    assert [place["rank"] for place in answer["placement"]] == [0, 1]
    assert answer["placement"][1]["node"] == "gpu-00001"
    assert answer["placement"][1]["domains"] == {"leaf": "leaf-00", "spine": "spine-00"}
    attempt.placements.filter(rank=1).update(exit_code=3, ended_at=later(9))
    end_attempt(attempt, ended_by=EndedBy.FAILED, message="rank 1", exit_code=3, now=later(9))
    answer = api.get(f"{JOBS}{job.pk}/").json()
    assert (answer["outcome"], answer["exit_code"], answer["message"]) == ("failed", 3, "rank 1")
    assert answer["exit_codes"] == [None, 3]
    attempts = api.get(f"{JOBS}{job.pk}/attempts/").json()["results"]
    assert [(a["number"], a["ended_by"]) for a in attempts] == [(1, "failed")]
    assert attempts[0]["lost_gpu_seconds"] == 4 * 16


def test_events_tell_the_jobs_story_in_order(api: APIClient, train: Queue, ravi: User) -> None:
    job_id = submit(api)["id"]
    place_job(Job.objects.get(pk=job_id))
    events = api.get(f"{JOBS}{job_id}/events/").json()["results"]
    assert [event["kind"] for event in events] == ["job.submitted", "job.phase", "attempt.placed"]
    assert {event["job"] for event in events} == {job_id}


# --- acts ---


def test_acts_answer_the_job_after_them(api: APIClient) -> None:
    job_id = submit(api)["id"]
    for act, phase in (("hold", "held"), ("release", "pending"), ("cancel", "finished")):
        response = post(api, f"{JOBS}{job_id}/{act}/", {"reason": "because"})
        assert (response.status_code, response.json()["phase"]) == (200, phase)
        assert response["ETag"] == f'"{response.json()["version"]}"'
    assert response.json()["message"] == "because"
    late = post(api, f"{JOBS}{job_id}/hold/", {})
    assert (late.status_code, late.json()["code"]) == (409, "wrong_phase")


@pytest.mark.parametrize("body", [{"reason": 7}, {"why": "x"}, {"reason": "x" * 501}, []])
def test_a_wrong_reason_is_refused(api: APIClient, body: Any) -> None:
    job_id = submit(api)["id"]
    response = post(api, f"{JOBS}{job_id}/cancel/", body)
    assert response.status_code == (200 if body == [] else 422)


def test_an_act_needs_no_body(api: APIClient) -> None:
    job_id = submit(api)["id"]
    assert api.post(f"{JOBS}{job_id}/cancel/").status_code == 200


def test_a_running_job_is_requeued(api: APIClient, train: Queue, ravi: User) -> None:
    job = make_job(train, ravi)
    run_job(job)
    assert post(api, f"{JOBS}{job.pk}/requeue/", {}).json()["phase"] == "stopping"
    assert Attempt.objects.get(job=job).stop_cause == "requeued"


def test_a_change_needs_the_version_it_changes(api: APIClient) -> None:
    job = submit(api)
    address = f"{JOBS}{job['id']}/"

    def patch(body: Any, **headers: str) -> Any:
        return api.patch(
            address, json.dumps(body), content_type="application/json", headers=headers
        )

    assert patch({"priority": 1}).status_code == 428
    done = patch({"priority": 1}, **{"If-Match": '"1"'})
    assert (done.status_code, done.json()["priority"], done["ETag"]) == (200, 1, '"2"')
    assert patch({"priority": 2}, **{"If-Match": '"1"'}).status_code == 412
    assert patch({"priority": 2}, **{"If-Match": "*"}).status_code == 200
    wrong = patch({"priority": 9999}, **{"If-Match": "*"})
    assert wrong.json()["errors"][0]["pointer"] == "/priority"
    assert patch([], **{"If-Match": "*"}).status_code == 422


def test_long_polls_answer_at_once_when_there_is_nothing_to_wait_for(api: APIClient) -> None:
    job_id = submit(api)["id"]
    post(api, f"{JOBS}{job_id}/cancel/", {})
    for until in ("running", "finished"):
        response = api.get(f"{JOBS}{job_id}/?wait=60&until={until}")
        assert response.json()["phase"] == "finished"
        assert not hasattr(response, "waits_for")


def test_a_long_poll_waits_for_events_of_its_own_job(
    api: APIClient, train: Queue, ravi: User
) -> None:
    job = make_job(train, ravi)
    response: Any = api.get(f"{JOBS}{job.pk}/?wait=5&until=running")
    assert response.waits_for.predicate(type("Heard", (), {"job": job.pk})())
    assert not response.waits_for.predicate(type("Heard", (), {"job": "other"})())
    run_job(job)
    assert not hasattr(api.get(f"{JOBS}{job.pk}/?wait=5&until=running"), "waits_for")
    assert hasattr(api.get(f"{JOBS}{job.pk}/?wait=5&until=finished"), "waits_for")
    assert not hasattr(api.get(f"{JOBS}{job.pk}/"), "waits_for")


@pytest.mark.parametrize("query", ["wait=x", "wait=-1", "until=never&wait=1"])
def test_a_wrong_long_poll_is_refused(api: APIClient, query: str) -> None:
    job_id = submit(api)["id"]
    assert api.get(f"{JOBS}{job_id}/?{query}").status_code == 422


def test_models_in_answers_are_those_asked_for(api: APIClient, research: Tenant) -> None:
    make_queue(research, "other")
    answer = submit(api, queue="other", gpu_model=[H100])
    assert (answer["queue"], answer["gpu_model"]) == ("other", [H100])
