"""Idempotency-Key: sent twice, acted once, also when fifty threads send it at the same moment."""

import threading
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from django.utils.crypto import get_random_string
from rest_framework.test import APIClient

from controlplane.common.idempotency import idempotent
from controlplane.common.models import IdempotencyKey
from tenants.models import ApiToken, AuditEntry, Membership
from tenants.throttling import buckets
from tests.tenants.test_tokens import api_views
from tests.world import make_world

MEMBERS = "/api/v1/tenants/research/members/"
TOKENS = "/api/v1/tenants/research/tokens/"
SENT = {"user": "nobody", "role": "viewer"}


def post(client, body=SENT, key="key-1", path=MEMBERS):
    """A POST with a key."""
    return client.post(path, body, format="json", HTTP_IDEMPOTENCY_KEY=key)


def test_same_request_is_answered_alike_and_acts_once(world):
    client = world.client("olivia")
    first, second = post(client), post(client)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert "Idempotency-Replayed" not in first
    assert second["Idempotency-Replayed"] == "true"
    assert AuditEntry.objects.count() == 1


def test_body_is_compared_by_meaning_not_by_bytes(world):
    client = world.client("olivia")
    post(client)
    again = client.post(
        MEMBERS,
        b'{ "role": "viewer",\n "user": "nobody" }',
        content_type="application/json",
        HTTP_IDEMPOTENCY_KEY="key-1",
    )
    assert (again.status_code, again["Idempotency-Replayed"]) == (201, "true")


def test_same_key_with_another_body_or_address_is_422(world):
    client = world.client("olivia")
    post(client)
    for answer in (
        post(client, {**SENT, "role": "submitter"}),
        post(client, {"name": "x", "value": "y"}, path="/api/v1/tenants/research/secrets/"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


def test_refusal_is_not_kept_so_that_the_key_may_be_used_again(world):
    client = world.client("olivia")
    assert post(client, {"user": "nobody"}).status_code == 422
    assert not IdempotencyKey.objects.exists()
    assert post(client).status_code == 201


def test_two_people_may_choose_the_same_key(world):
    assert post(world.client("olivia")).status_code == 201
    other = post(world.client("admin"), {"user": "nobody", "role": "submitter"})
    assert (other.status_code, other.json()["code"]) == (409, "already_member")


def test_key_is_forgotten_after_a_day(world):
    client = world.client("olivia")
    post(client)
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(hours=25))
    answer = post(client)
    assert (answer.status_code, answer.json()["code"]) == (409, "already_member")


@pytest.mark.parametrize("key", ["", "x" * 256, "naïve"])
def test_bad_key_is_refused(world, key):
    answer = post(world.client("olivia"), key=key)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_idempotency_key")
    assert not Membership.objects.filter(user=world.users["nobody"]).exists()


def test_token_text_is_not_kept_with_the_answer(world):
    client = world.client("olivia")
    sent = {"name": "ci", "scopes": ["jobs:read"]}
    first, second = post(client, sent, path=TOKENS), post(client, sent, path=TOKENS)
    assert second["Idempotency-Replayed"] == "true"
    assert second.json() == {**first.json(), "token": None}
    assert first.json()["token"] not in str(list(IdempotencyKey.objects.values()))
    assert ApiToken.objects.count() == 1


def test_failure_after_the_act_takes_the_act_and_the_key_back(world, monkeypatch):
    def crash(*_args, **_kwargs):
        raise RuntimeError("after the act")

    monkeypatch.setattr("controlplane.common.idempotency.Claim._keep", crash)
    with pytest.raises(RuntimeError):
        post(world.client("olivia"))
    assert not Membership.objects.filter(user=world.users["nobody"]).exists()
    assert not AuditEntry.objects.exists()


def test_every_post_that_acts_honours_the_key(world):
    """All but those that only compute, which have a rate limit of their own."""
    posting = [view for _pattern, view in api_views() if hasattr(view, "post")]
    missing = [
        view.__name__
        for view in posting
        if not getattr(view.post, "honours_idempotency_key", False)
        and getattr(view, "rate_limit", "") != "simulate"
    ]
    assert posting
    assert missing == []


@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
def test_fifty_threads_with_one_key_act_once():
    world = make_world()
    buckets.clear()
    token = world.token("olivia")
    answers, gate = [], threading.Barrier(50)

    def send():
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
        gate.wait()
        answers.append(post(client))
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) <= {201, 409}
    assert statuses[201] >= 1
    first = [a for a in answers if a.status_code == 201 and "Idempotency-Replayed" not in a]
    assert len(first) == 1
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["code"] == "idempotency_in_progress"
            assert answer["Retry-After"] == "1"
    assert Membership.objects.filter(user=world.users["nobody"]).count() == 1
    assert AuditEntry.objects.count() == 1
    assert IdempotencyKey.objects.count() == 1


@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
def test_fifty_threads_with_fifty_keys_all_get_through():
    world = make_world()
    buckets.clear()
    token = world.token("admin")
    statuses, gate = [], threading.Barrier(50)

    def send(number):
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
        gate.wait()
        body = {"slug": f"t{number}", "name": get_random_string(8)}
        answer = post(client, body, key=f"key-{number}", path="/api/v1/tenants/")
        statuses.append(answer.status_code)
        connection.close()

    threads = [threading.Thread(target=send, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(statuses) == {201: 50}
    assert AuditEntry.objects.filter(action="tenant.created").count() == 50


def test_decorated_method_keeps_its_name():
    @idempotent()
    def post(self, request):
        """Said."""

    assert (post.__name__, post.__doc__) == ("post", "Said.")
