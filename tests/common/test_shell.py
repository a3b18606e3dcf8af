"""What every answer carries, what machines ask about the process, and the documents about the API."""

import re
from io import StringIO

import pytest
import yaml
from django.core.management import call_command
from django.db import DatabaseError
from django.test import Client
from rest_framework.test import APIClient

from tests.world import PEOPLE


def test_answers_carry_request_id_and_timing(world):
    answer = world.client("ravi").get("/api/v1/tenants/", HTTP_X_REQUEST_ID="ci-run-4711")
    assert answer["X-Request-Id"] == "ci-run-4711"
    timing = re.fullmatch(
        r'total;dur=([\d.]+), db;dur=([\d.]+);desc="(\d+) queries"', answer["Server-Timing"]
    )
    assert timing is not None
    assert int(timing[3]) >= 2
    assert 0 < float(timing[2]) <= float(timing[1])


@pytest.mark.parametrize("sent", ["x", "a b c d e f g h", "<script>alert(1)</script>", "x" * 65])
def test_odd_request_ids_are_replaced(db, sent):
    answer = Client().get("/healthz", HTTP_X_REQUEST_ID=sent)
    assert re.fullmatch(r"[0-9a-f]{16}", answer["X-Request-Id"])


def test_health_needs_no_login_and_no_database():
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_readiness_names_the_check_that_fails(db, monkeypatch):
    ready = Client().get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ok")

    def gone():
        raise DatabaseError("no")

    monkeypatch.setattr("controlplane.common.health.latest_seq", gone)
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"database": "ok", "event_log": "unreachable"}


def test_metrics_have_bounded_labels_and_no_names_of_tenants_or_people(world):
    client = world.client("olivia")
    for path in ("tenants/research/members/", "tenants/vision/members/", "tenants/x1/", "nothing/"):
        client.get(f"/api/v1/{path}")
    client.generic("BREW", "/api/v1/tenants/")
    text = Client().get("/metrics").content.decode()
    assert 'route="api/v1/tenants/<str:tenant>/members/",status="200"' in text
    assert 'method="other"' in text
    assert "BREW" not in text
    for name in (*PEOPLE, "research", "vision", "x1"):
        assert not re.search(rf'"[^"]*\b{name}\b', text), name


def test_static_files_come_whole_with_their_type_and_are_not_sent_again(db):
    answer = Client().get("/static/css/base.css")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/css")
    assert not answer.streaming
    assert int(answer["Content-Length"]) == len(answer.content) > 100
    again = Client().get("/static/css/base.css", headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_openapi_document_names_every_address_without_login(db):
    answer = APIClient().get("/api/v1/schema/")
    document = yaml.safe_load(answer.content)
    assert answer.status_code == 200
    assert "/api/v1/tenants/{tenant}/members/" in document["paths"]
    assert "/api/v1/events/" in document["paths"]
    keyed = document["paths"]["/api/v1/tenants/{tenant}/members/"]["post"]["parameters"]
    assert "Idempotency-Key" in {p["name"] for p in keyed}


def test_openapi_document_is_valid_and_complete(db):
    """Every view says what it takes and answers: drf-spectacular has nothing to warn of."""
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=StringIO())


def test_every_operation_documents_how_it_refuses(db):
    document = yaml.safe_load(APIClient().get("/api/v1/schema/").content)
    operations = [
        op for path in document["paths"].values() for op in path.values() if "responses" in op
    ]
    assert len(operations) > 30
    for operation in operations:
        content = operation["responses"]["default"]["content"]
        assert set(content) == {"application/problem+json"}, operation["operationId"]


def test_docs_page_may_use_inline_styles_and_no_other_page_may(db):
    docs = Client().get("/api/v1/docs/")
    assert docs.status_code == 200
    assert "'unsafe-inline'" in csp(docs, "style-src")
    assert "'unsafe-inline'" not in csp(docs, "script-src")
    assert not re.search(rb"<script(?![^>]*src=)", docs.content), "inline scripts would be blocked"
    for path in ("/healthz", "/accounts/login/", "/api/v1/problems/"):
        assert "unsafe" not in Client().get(path)["Content-Security-Policy"]


def csp(answer, directive):
    """One directive of the policy."""
    found = re.search(rf"{directive} ([^;]*)", answer["Content-Security-Policy"])
    assert found
    return found[1]
