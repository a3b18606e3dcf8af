"""Every refusal that a real server was seen to give becomes the right exception."""

import json

import pytest

from scheduler.kube import errors
from tests.kube.replay import EXCHANGES


def raised_for(name: str) -> errors.KubeError:
    response = EXCHANGES[name]["response"]
    body = response["body"]
    text = body if isinstance(body, str) else json.dumps(body)
    return errors.error_from_response(response["status"], text.encode())


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("no credentials", errors.Forbidden, "system:anonymous"),
        ("bad token", errors.Unauthorized, "Unauthorized"),
        ("no role", errors.Forbidden, 'User "sched" cannot list'),
        ("create node again", errors.AlreadyExists, "already exists"),
        ("fractional GPU", errors.Invalid, "must be an integer"),
        ("over the limit range", errors.Forbidden, "maximum nvidia.com/gpu usage"),
        ("privileged pod under baseline", errors.Forbidden, "violates PodSecurity"),
        ("pod over the quota", errors.QuotaExceeded, "exceeded quota: gpu"),
        ("malformed JSON", errors.BadRequest, "json parse error"),
        ("wrong media type", errors.BadRequest, "unknown format"),
        ("namespace missing", errors.NotFound, 'namespaces "nope" not found'),
        ("bind again", errors.Conflict, "already assigned to node"),
        ("bind gated pod", errors.Conflict, "non-empty .spec.schedulingGates"),
        ("replace with a stale resourceVersion", errors.Conflict, "has been modified"),
        ("changing an immutable pod field", errors.Invalid, "may not change fields"),
        ("evict against the budget", errors.TooManyRequests, "disruption budget"),
        ("create in a terminating namespace", errors.NamespaceTerminating, "being terminated"),
        ("unknown path", errors.NotFound, "404 page not found"),
        ("method not allowed", errors.BadRequest, "does not allow this method"),
    ],
)
def test_recorded_refusal_becomes_its_exception(
    name: str, kind: type[errors.KubeError], words: str
) -> None:
    error = raised_for(name)
    assert type(error) is kind
    assert words in error.message
    assert error.code == EXCHANGES[name]["response"]["status"]


def test_every_recorded_failure_keeps_code_and_message() -> None:
    for name, exchange in EXCHANGES.items():
        if exchange["response"]["status"] >= 400:
            error = raised_for(name)
            assert error.code == exchange["response"]["status"]
            assert error.message, name


def test_budget_is_told_from_load() -> None:
    budget = raised_for("evict against the budget")
    load = errors.error_from_response(429, b'{"message": "too many requests"}')
    assert isinstance(budget, errors.TooManyRequests)
    assert budget.is_budget
    assert isinstance(load, errors.TooManyRequests)
    assert not load.is_budget


def test_expired_watch_event_becomes_expired() -> None:
    event = EXCHANGES["watch from a version that is no longer kept"]["response"]["lines"][0]
    error = errors.error_from_status(event["object"]["code"], event["object"])
    assert type(error) is errors.Expired


def test_body_that_is_no_object_is_kept_as_text() -> None:
    error = errors.error_from_response(503, b"\xff upstream gone")
    assert type(error) is errors.Unavailable
    assert "upstream gone" in error.message


def test_retry_after_is_read_from_the_details_too() -> None:
    body = {"message": "slow down", "details": {"retryAfterSeconds": 3}}
    assert errors.error_from_response(429, json.dumps(body).encode()).retry_after_seconds == 3.0
