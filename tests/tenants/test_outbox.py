"""The outbox: written with what it tells of, sent by whoever claims it, tried again for a while, never for ever."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core import mail
from django.db import connection

from controlplane.common import log
from tenants import vault
from tenants.models import OutboxMessage, User, WebhookEndpoint
from tenants.services import delivery
from tenants.services.delivery import CLAIM_SECONDS, PAUSES_SECONDS, deliver_due, pause_after
from tenants.services.outbox import Letter, post_mail, post_webhooks
from tenants.webhook_calls import new_secret, signature
from tests.factories import NOW, later, make_tenant, make_user
from tests.tenants.receiver import Receiver, receiver

LETTER = Letter("alert.opened", "alert.opened/1/1", "GPU fault\ngpu-00001", "look\n")


@pytest.fixture(autouse=True)
def outside(settings: object) -> None:
    """The receivers of tests listen on loopback; mail is caught by Django."""
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]  # type: ignore[attr-defined]
    settings.EMAIL_URL = "smtp://localhost"  # type: ignore[attr-defined]


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def endpoint(url: str, secret: str = "", **changes: object) -> WebhookEndpoint:
    return WebhookEndpoint.objects.create(
        url=url,
        encrypted_secret=vault.encrypt((secret or new_secret()).encode()),
        created_at=NOW,
        **changes,
    )


def post(kind: str = "alert.opened", key: str = "k1") -> OutboxMessage:
    with log.writing():
        post_webhooks(None, kind, key, {"alert": 7}, NOW)
    return OutboxMessage.objects.get(dedupe_key__startswith=f"{key}/")


@pytest.mark.django_db
def test_a_webhook_arrives_signed(hook: Receiver) -> None:
    secret = new_secret()
    endpoint(hook.url, secret)
    message = post()
    assert deliver_due(NOW).sent == 1
    (call,) = hook.calls
    assert json.loads(call.body) == {
        "type": "alert.opened",
        "timestamp": "2026-11-29T12:00:00Z",
        "data": {"alert": 7},
    }
    stamp = int(call.headers["webhook-timestamp"])
    assert stamp == int(NOW.timestamp())
    assert call.headers["webhook-id"] == message.message_id
    expected = signature(secret, message.message_id, stamp, call.body)
    assert call.headers["webhook-signature"] == expected
    message.refresh_from_db()
    assert (message.sent_at, message.next_attempt_at, message.attempts) == (NOW, None, 1)
    assert deliver_due(later(3600)).sent == 0


@pytest.mark.django_db
def test_only_those_hear_who_asked_for_the_kind(hook: Receiver) -> None:
    research, vision = make_tenant("research"), make_tenant("vision")
    for tenant, kinds in (
        (None, []),
        (research, ["alert."]),
        (research, ["alert.resolved"]),
        (vision, []),
    ):
        endpoint(hook.url, tenant=tenant, kinds=kinds)
    endpoint(hook.url, tenant=research, active=False)
    with log.writing():
        assert post_webhooks(research, "alert.opened", "k", {}, NOW) == 2
        assert post_webhooks(None, "alert.opened", "p", {}, NOW) == 1


@pytest.mark.django_db
def test_the_same_key_is_written_once(hook: Receiver) -> None:
    endpoint(hook.url)
    post()
    post()
    assert OutboxMessage.objects.count() == 1


@pytest.mark.django_db
def test_what_is_rolled_back_tells_nobody(hook: Receiver) -> None:
    endpoint(hook.url)

    def change() -> None:
        with log.writing():
            post_webhooks(None, "alert.opened", "k", {}, NOW)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        change()
    assert not OutboxMessage.objects.exists()


@pytest.mark.django_db
def test_a_refusal_is_tried_again_after_a_growing_pause_and_then_given_up(hook: Receiver) -> None:
    endpoint(hook.url)
    hook.answers = [503]
    message = post()
    now, pauses = NOW, []
    for _attempt in range(len(PAUSES_SECONDS) + 1):
        deliver_due(now)
        message.refresh_from_db()
        if message.next_attempt_at is None:
            break
        pauses.append((message.next_attempt_at - now).total_seconds())
        now = message.next_attempt_at
    assert len(pauses) == len(PAUSES_SECONDS)
    for pause, base in zip(pauses, PAUSES_SECONDS, strict=True):
        assert base <= pause <= base * 1.25 + 1e-6
    assert message.failed_at == now
    assert message.last_error == "HTTP 503"
    assert len(hook.calls) == len(PAUSES_SECONDS) + 1
    assert len({call.headers["webhook-id"] for call in hook.calls}) == 1
    assert deliver_due(now + timedelta(days=9)).failed == 0


def test_jitter_parts_messages_that_failed_together() -> None:
    assert len({pause_after(1, f"msg_{n}") for n in range(50)}) > 20
    assert pause_after(len(PAUSES_SECONDS) + 1, "msg_1") is None


@pytest.mark.django_db
def test_a_receiver_may_ask_for_time_but_not_for_ever(hook: Receiver) -> None:
    endpoint(hook.url)
    hook.answers, hook.headers = [429], {"Retry-After": "900"}
    message = post()
    deliver_due(NOW)
    message.refresh_from_db()
    assert message.next_attempt_at == later(900)
    hook.headers = {"Retry-After": "999999"}
    deliver_due(later(900))
    message.refresh_from_db()
    assert message.next_attempt_at == later(900 + 3600)


@pytest.mark.django_db
def test_an_endpoint_that_is_gone_or_refuses_for_days_is_switched_off(hook: Receiver) -> None:
    row = endpoint(hook.url)
    hook.answers = [410]
    message = post()
    deliver_due(NOW)
    row.refresh_from_db()
    message.refresh_from_db()
    assert (row.active, message.failed_at) == (False, NOW)
    assert row.disabled_reason
    other = endpoint(hook.url)
    hook.answers = [500]
    post(key="k2")
    deliver_due(NOW)
    other.refresh_from_db()
    assert other.failing_since == NOW
    OutboxMessage.objects.filter(endpoint=other).update(next_attempt_at=later(4 * 86400))
    deliver_due(later(4 * 86400))
    other.refresh_from_db()
    assert not other.active


@pytest.mark.django_db
def test_an_answer_ends_the_failing(hook: Receiver) -> None:
    row = endpoint(hook.url)
    hook.answers = [500, 200]
    post()
    deliver_due(NOW)
    deliver_due(later(60))
    row.refresh_from_db()
    assert row.failing_since is None
    assert OutboxMessage.objects.get().sent_at == later(60)


@pytest.mark.django_db
def test_a_redirect_is_not_followed(hook: Receiver) -> None:
    endpoint(hook.url)
    hook.answers, hook.headers = [302], {"Location": hook.url}
    message = post()
    deliver_due(NOW)
    message.refresh_from_db()
    assert (len(hook.calls), message.last_error) == (1, "HTTP 302")


@pytest.mark.slow
@pytest.mark.django_db
def test_a_receiver_that_hangs_holds_up_nobody(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.webhook_calls.CALL_SECONDS", 3.0)
    with receiver() as slow:
        slow.delay_seconds = 6.0
        endpoint(slow.url)
        endpoint(hook.url)
        with log.writing():
            post_webhooks(None, "alert.opened", "k", {}, NOW)
        assert deliver_due(NOW).sent == 1
    failed = OutboxMessage.objects.get(sent_at__isnull=True)
    assert "no answer" in failed.last_error


@pytest.mark.django_db
def test_an_address_that_is_no_longer_allowed_is_not_called(
    hook: Receiver, settings: object
) -> None:
    endpoint(hook.url)
    message = post()
    settings.WEBHOOK_NETWORKS = []  # type: ignore[attr-defined]
    deliver_due(NOW)
    message.refresh_from_db()
    assert hook.calls == []
    assert "not public" in message.last_error


@pytest.mark.django_db(transaction=True)
def test_of_many_postmen_one_sends(hook: Receiver) -> None:
    endpoint(hook.url)
    for number in range(8):
        post(key=f"k{number}")
    start = threading.Barrier(4)

    def postman() -> None:
        start.wait()
        try:
            deliver_due(NOW)
        finally:
            connection.close()

    threads = [threading.Thread(target=postman) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [call.headers["webhook-id"] for call in hook.calls]
    assert len(ids) == len(set(ids)) == 8
    assert OutboxMessage.objects.filter(sent_at__isnull=False, attempts=1).count() == 8


@pytest.mark.django_db
def test_after_a_postman_died_another_sends_the_same_message(
    hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint(hook.url)
    message = post()

    def die(*_arguments: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(delivery, "_note", die)
        with pytest.raises(KeyboardInterrupt):
            deliver_due(NOW)
    assert deliver_due(later(CLAIM_SECONDS - 1)).sent == 0
    assert deliver_due(later(CLAIM_SECONDS)).sent == 1
    assert [call.headers["webhook-id"] for call in hook.calls] == [message.message_id] * 2


@pytest.mark.django_db
def test_mail_goes_to_those_with_an_address() -> None:
    users: list[User] = [make_user("ines"), make_user("omar"), make_user("sam")]
    User.objects.filter(username="ines").update(email="ines@example.org")
    User.objects.filter(username="sam").update(email="sam@example.org", is_active=False)
    for user in users:
        user.refresh_from_db()
    with log.writing():
        assert post_mail(users, LETTER, tenant=None, now=NOW) == 1
    assert deliver_due(NOW).sent == 1
    (letter,) = mail.outbox
    assert (letter.to, letter.subject, letter.body) == (
        ["ines@example.org"],
        "GPU fault gpu-00001",
        "look\n",
    )
    assert letter.extra_headers["Message-ID"].startswith("<msg_")


@pytest.mark.django_db
def test_without_a_mail_server_no_mail_is_written(settings: object) -> None:
    settings.EMAIL_URL = ""  # type: ignore[attr-defined]
    user = make_user("ines")
    user.email = "ines@example.org"
    with log.writing():
        assert post_mail([user], LETTER, tenant=None, now=NOW) == 0


@pytest.mark.django_db
def test_a_mail_server_that_is_away_is_tried_again(settings: object) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"  # type: ignore[attr-defined]
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1  # type: ignore[attr-defined]
    user = make_user("ines")
    user.email = "ines@example.org"
    user.save()
    with log.writing():
        post_mail([user], LETTER, tenant=None, now=NOW)
    assert deliver_due(NOW).failed == 1
    message = OutboxMessage.objects.get()
    assert message.next_attempt_at is not None
    assert "ConnectionRefusedError" in message.last_error
