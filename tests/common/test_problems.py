"""Problem documents: one shape for every refusal, and nothing of our insides."""

from typing import Any

import pytest
from django.db import OperationalError
from django.test import RequestFactory
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIClient, APIRequestFactory
from rest_framework.views import APIView

from controlplane.common import errors
from controlplane.common.answers import server_error
from controlplane.common.preconditions import check_version, etag, is_unchanged
from controlplane.common.problems import problem_response
from controlplane.common.timing import RequestIdFilter

MEMBERS = {"type", "title", "status", "detail", "code", "hint", "errors"}


def answer_of(exception, method="get", **extra):
    """What a view that raises answers."""

    class Raising(APIView):
        authentication_classes = ()
        permission_classes = ()
        throttle_classes = ()

        def get(self, request: Request) -> Response:
            raise exception

    request = getattr(APIRequestFactory(), method)("/api/v1/x/", **extra)
    request.request_id = "req-12345678"
    return Raising.as_view()(request)


@pytest.mark.parametrize(
    ("exception", "status", "code"),
    [
        (errors.InvalidError("x"), 422, "invalid"),
        (errors.ForbiddenError("x"), 403, "forbidden"),
        (errors.NotVisibleError("x"), 404, "not_found"),
        (errors.ConflictError("x"), 409, "conflict"),
        (errors.ConflictError("x", code="plan_changed"), 409, "plan_changed"),
        (errors.GoneError("x"), 410, "resync"),
        (errors.StaleError("x"), 412, "stale"),
        (errors.PreconditionRequiredError("x"), 428, "precondition_required"),
        (errors.UnavailableError("x"), 503, "unavailable"),
        (OperationalError("server closed the connection; host=10.0.0.7"), 503, "unavailable"),
    ],
)
def test_every_refusal_is_a_problem_document(exception, status, code):
    answer = answer_of(exception)
    assert (answer.status_code, answer.data["status"], answer.data["code"]) == (
        status,
        status,
        code,
    )
    assert set(answer.data) >= MEMBERS | {"request_id"}
    assert answer.data["type"].endswith(f"/api/v1/problems/#{code}")
    assert answer.content_type == "application/problem+json"
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert "10.0.0.7" not in str(answer.data)


def test_nested_serializer_errors_become_json_pointers():
    detail: Any = {
        "name": ["too long"],
        "roles": [{}, {"replicas": ["must be at least 1"], "non_field_errors": ["bad"]}],
        "env": {"A/B": ["no slash"]},
    }
    found = answer_of(ValidationError(detail)).data["errors"]
    assert [(e["pointer"], e["message"]) for e in found] == [
        ("/name", "too long"),
        ("/roles/1/replicas", "must be at least 1"),
        ("/roles/1", "bad"),
        ("/env/A~1B", "no slash"),
    ]


def test_wrong_method_is_405():
    answer = answer_of(ValueError(), method="delete")
    assert (answer.status_code, answer.data["code"]) == (405, "method_not_allowed")
    assert "GET" in answer["Allow"]


def test_defect_is_left_to_the_server_error_answer():
    assert problem_response(ValueError("secret path /etc/x"), {}) is None
    request = RequestFactory().get("/api/v1/tenants/")
    request.request_id = "req-12345678"  # type: ignore[attr-defined]  # the middleware sets it
    answer = server_error(request)
    assert answer.status_code == 500
    assert b"req-12345678" in answer.content
    assert b"internal_error" in answer.content


def test_crash_behind_a_real_address_shows_nothing_of_it(world, monkeypatch):
    def crash(*_args):
        raise ValueError("secret path /etc/x")

    monkeypatch.setattr("tenants.api.views.selectors.tenants_visible_to", crash)
    client = world.client("ravi")
    client.raise_request_exception = False
    answer = client.get("/api/v1/tenants/")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (500, "internal_error")
    assert problem["request_id"] == answer["X-Request-Id"]
    assert "secret" not in answer.content.decode()


def test_unknown_address_is_a_problem_under_the_api_and_a_page_elsewhere(db):
    client = APIClient()
    under = client.get("/api/v1/nothing/here/")
    assert (under.status_code, under.json()["code"]) == (404, "not_found")
    elsewhere = client.get("/nothing-here-at-all/")
    assert elsewhere.status_code == 404
    assert elsewhere["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("address", ["/api/v1/tenants/%00/", "/api/v1/audit/?actor=%00"])
def test_nul_in_an_address_is_400(world, address):
    answer = world.client("admin").get(address)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_post_without_the_last_slash_is_told_so_and_not_redirected(world):
    answer = world.client("admin").post("/api/v1/tenants", {"slug": "x"}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "/api/v1/tenants/" in answer.json()["hint"]
    assert world.client("admin").get("/api/v1/tenants").status_code == 301


def test_number_of_a_crashed_request_is_in_the_log(world, monkeypatch, caplog):
    def crash(*_args):
        raise ValueError("a defect")

    monkeypatch.setattr("tenants.api.views.selectors.tenants_visible_to", crash)
    client = world.client("ravi")
    client.raise_request_exception = False
    caplog.handler.addFilter(RequestIdFilter())
    number = client.get("/api/v1/tenants/").json()["request_id"]
    [line] = [record for record in caplog.records if record.exc_info]
    assert line.request_id == number


def test_problem_codes_are_listed_where_the_type_leads(db):
    answer = APIClient().get("/api/v1/problems/")
    assert {"status": 422, "code": "invalid", "title": "Invalid"} in answer.json()["results"]


@pytest.mark.parametrize(
    ("header", "status"),
    [(None, 428), ('"6"', 412), ("nonsense", 412), ('"-7"', 412), ('W/"7"', 412)],
)
def test_if_match_must_name_the_current_version(header, status):
    request = RequestFactory().get("/", headers={"If-Match": header} if header else {})
    with pytest.raises(errors.ApplicationError) as refused:
        check_version(request, 7)
    assert refused.value.status == status


@pytest.mark.parametrize("header", [etag(7), "*"])
def test_if_match_with_the_current_version_passes(header):
    check_version(RequestFactory().get("/", headers={"If-Match": header}), 7)


def test_if_none_match_knows_lists_and_weak_tags():
    for header in ('"7"', 'W/"7"', '"1", W/"7"', "*"):
        assert is_unchanged(RequestFactory().get("/", headers={"If-None-Match": header}), etag(7))
    for header in ('"8"', "", '"77"'):
        request = RequestFactory().get("/", headers={"If-None-Match": header})
        assert not is_unchanged(request, etag(7))
