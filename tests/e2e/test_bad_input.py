"""Forty and more malformed submissions over HTTP: each names what is wrong, none leaves a row."""

import json

import pytest

from tests.e2e.api import Api, job
from tests.e2e.malformed import MALFORMED, Malformed
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.processes]


@pytest.fixture
def nothing_is_stored(ravi: Api) -> object:
    """The number of ravi's jobs, before and after."""
    before = [j["id"] for j in ravi.get("jobs/", limit=200)["results"]]
    yield
    assert [j["id"] for j in ravi.get("jobs/", limit=200)["results"]] == before


@pytest.mark.usefixtures("nothing_is_stored")
@pytest.mark.parametrize("bad", MALFORMED, ids=lambda bad: bad.title)
def test_a_malformed_job_is_refused_by_the_name_of_its_field(ravi: Api, bad: Malformed) -> None:
    answer = ravi.call("POST", "jobs/", json=bad.body)
    assert answer.status_code == bad.status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem = answer.json()
    assert {"type", "title", "status", "detail", "code", "errors"} <= problem.keys()
    pointers = [error["pointer"] for error in problem["errors"]]
    assert any(pointer.startswith(bad.pointer) for pointer in pointers), problem
    assert all(error["message"] and error["code"] for error in problem["errors"])


@pytest.mark.usefixtures("nothing_is_stored")
def test_broken_json_is_refused_with_the_position(ravi: Api) -> None:
    headers = {"Content-Type": "application/json"}
    answer = ravi.call("POST", "jobs/", content=b'{"name": "a",\n "queue": }', headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "malformed_json")
    assert "line 2" in problem["detail"], problem


@pytest.mark.usefixtures("nothing_is_stored")
def test_a_body_of_ten_megabytes_is_refused_with_the_limit(ravi: Api) -> None:
    body = json.dumps(job(env={"A": "x" * 10_000_000})).encode()
    headers = {"Content-Type": "application/json"}
    answer = ravi.call("POST", "jobs/", content=body, headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (413, 413)
    assert "8" in problem["detail"], problem


@pytest.mark.usefixtures("nothing_is_stored")
def test_a_circle_of_dependencies_is_refused_on_each_member(ravi: Api) -> None:
    ring = [
        job(external_id="a", depends_on=[{"external_id": "b", "on": "succeeded"}]),
        job(external_id="b", depends_on=[{"external_id": "c", "on": "succeeded"}]),
        job(external_id="c", depends_on=[{"external_id": "a", "on": "succeeded"}]),
    ]
    answer = ravi.call("POST", "jobs/batch/", json={"jobs": ring})
    results = answer.json()["results"]
    assert [r["status"] for r in results] == [422, 422, 422], results
    for result in results:
        assert any("depends_on" in e["pointer"] for e in result["problem"]["errors"]), result


@pytest.mark.usefixtures("nothing_is_stored")
def test_a_wrong_content_type_is_refused(ravi: Api) -> None:
    answer = ravi.call("POST", "jobs/", content=b"name=a", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415, answer.text


def test_a_wrong_token_is_refused(demo: Stack) -> None:
    answer = Api(demo.url, "nonsense").call("POST", "jobs/", json=job())
    assert answer.status_code == 401, answer.text
