"""Alerts: one for one finding, told once, answered by those who may, seen by those who should."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import IntegrityError

from controlplane.common.errors import ConflictError, InvalidError
from controlplane.common.models import Event
from scheduler.models import Alert, AlertState, ClusterState
from scheduler.selectors.alerts import alert_answer, alerts_visible_to, sentence
from scheduler.services.alerts import (
    AlertFacts,
    acknowledge,
    prune_alerts,
    raise_alert,
    resolve,
    resolve_alert,
    settle_alerts,
    silence,
    wake_silenced,
)
from scheduler.services.platform_alerts import judge_platform
from tenants import vault
from tenants.models import MailChoice, OutboxMessage, WebhookEndpoint
from tenants.services.delivery import deliver_due
from tenants.webhook_calls import new_secret
from tests.factories import NOW, later, make_cluster, make_job, make_queue
from tests.world import World, make_world

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(settings: Any) -> World:
    settings.EMAIL_URL = "smtp://localhost"
    return make_world()


def fault(node: str = "gpu-00001", **changes: Any) -> AlertFacts:
    told = {"numbers": {"cause": "XID 79"}} | changes
    return AlertFacts("gpu_fault", cluster=make_cluster(), node=node, gpu="GPU-1", **told)


def told() -> list[str]:
    return [
        kind
        for kind in Event.objects.order_by("seq").values_list("kind", flat=True)
        if kind.startswith("alert.")
    ]


def test_the_same_finding_is_one_alert_and_told_once(world: World) -> None:
    first = raise_alert(fault(), NOW)
    for second in range(1, 59):
        assert raise_alert(fault(), later(second)).pk == first.pk
    first.refresh_from_db()
    assert (first.count, first.last_seen) == (1, NOW)
    raise_alert(fault(), later(61))
    first.refresh_from_db()
    assert (first.count, first.first_seen, first.last_seen) == (2, NOW, later(61))
    assert told() == ["alert.opened"]
    assert sentence(first) == "GPU 1 of node gpu-00001: XID 79."


@pytest.mark.parametrize(
    ("kind", "numbers", "said"),
    [
        ("gpu_fault", {}, "GPU 1 of node gpu-00001: cause unknown."),
        ("gpu_fault", {"cause": "", "index": 3}, "GPU 3 of node gpu-00001: cause unknown."),
        ("ecc_errors", {"count": 1.0, "error_kind": "corrected"},
         "GPU 1 of node gpu-00001 counts 1 new ECC error (corrected)."),
        ("ecc_errors", {"count": 12.0, "error_kind": "corrected", "index": 0},
         "GPU 0 of node gpu-00001 counts 12 new ECC errors (corrected)."),
    ],
)  # fmt: skip
def test_an_alert_reads_well_with_one_error_and_without_a_cause(
    world: World, kind: str, numbers: dict[str, Any], said: str
) -> None:
    facts = AlertFacts(kind, make_cluster(), node="gpu-00001", gpu="GPU-1", numbers=numbers)
    assert sentence(raise_alert(facts, NOW)) == said


def test_what_is_not_a_known_kind_cannot_be_raised(world: World) -> None:
    with pytest.raises(LookupError):
        raise_alert(AlertFacts("made_up"), NOW)


def test_judges_that_race_raise_one_alert(world: World) -> None:
    raise_alert(fault(), NOW)
    with pytest.raises(IntegrityError):
        Alert.objects.create(
            key=fault().key, kind="gpu_fault", severity="critical", first_seen=NOW, last_seen=NOW
        )


def test_an_alert_that_grows_graver_is_told_again_and_needs_an_answer(world: World) -> None:
    alert = raise_alert(fault(severity="warning"), NOW)
    acknowledge(world.actor("ines"), alert, "on it", NOW)
    raise_alert(fault(severity="critical"), later(1))
    alert.refresh_from_db()
    assert (alert.severity, alert.state) == ("critical", "open")
    assert told() == ["alert.opened", "alert.acknowledged", "alert.opened"]


def test_resolving_ends_it_and_soon_coming_back_is_the_same_one(world: World) -> None:
    alert = raise_alert(fault(), NOW)
    assert resolve_alert(alert.key, later(10))
    assert not resolve_alert(alert.key, later(11))
    assert raise_alert(fault(), later(20)).pk == alert.pk
    assert resolve_alert(alert.key, later(30))
    assert raise_alert(fault(), later(30 + 601)).pk != alert.pk
    assert told().count("alert.resolved") == 2


def test_settling_raises_what_is_and_resolves_what_is_not(world: World) -> None:
    cluster = make_cluster()
    settle_alerts("gpu_fault", cluster, [fault("gpu-00001"), fault("gpu-00002")], NOW)
    other = raise_alert(AlertFacts("node_lost", cluster=cluster, node="gpu-00009"), NOW)
    settle_alerts("gpu_fault", cluster, [fault("gpu-00002")], later(5))
    open_now = Alert.objects.exclude(state="resolved").values_list("node", flat=True)
    assert set(open_now) == {"gpu-00002", other.node}


def test_a_silenced_alert_tells_nobody_until_its_time_is_over(world: World) -> None:
    alert = raise_alert(fault(), NOW)
    silence(world.actor("ines"), alert, later(3600), "known, part ordered", later(1))
    before = told()
    resolve_alert(alert.key, later(10))
    again = raise_alert(fault(), later(1000))  # a new row: it was over for long
    assert again.pk != alert.pk
    assert again.state == AlertState.SILENCED
    assert OutboxMessage.objects.count() == 0
    assert wake_silenced(later(3599)) == 0
    assert wake_silenced(later(3600)) == 1
    again.refresh_from_db()
    assert again.state == AlertState.OPEN
    assert told()[len(before) :] == ["alert.resolved", "alert.opened", "alert.opened"]


@pytest.mark.parametrize("until", [NOW, NOW - timedelta(seconds=1), NOW + timedelta(days=31)])
def test_silence_has_an_end_that_is_near(world: World, until: datetime) -> None:
    alert = raise_alert(fault(), NOW)
    with pytest.raises(InvalidError) as refused:
        silence(world.actor("ines"), alert, until, "why", NOW)
    assert refused.value.errors[0].pointer == "/until"


def test_what_is_over_cannot_be_answered(world: World) -> None:
    alert = raise_alert(fault(), NOW)
    resolve(world.actor("ines"), alert, "replaced", NOW)
    with pytest.raises(ConflictError):
        acknowledge(world.actor("ines"), alert, "", NOW)


def tenant_alert(world: World) -> Alert:
    queue = make_queue(world.tenants["research"])
    job = make_job(queue, world.users["ravi"])
    numbers = {"seconds": 900}
    return raise_alert(
        AlertFacts("job_stalled", cluster=queue.cluster, job=job, numbers=numbers), NOW
    )


def test_operators_see_all_alerts_and_tenants_their_own(world: World) -> None:
    platform, own = raise_alert(fault(), NOW), tenant_alert(world)
    for name in ("admin", "ines", "sam"):
        assert set(alerts_visible_to(world.actor(name))) == {platform, own}
    for name in ("olivia", "ravi", "vera"):
        assert set(alerts_visible_to(world.actor(name))) == {own}
    for name in ("mei", "nobody"):
        assert not alerts_visible_to(world.actor(name)).exists()


def test_events_of_the_platform_hold_no_evidence(world: World) -> None:
    raise_alert(fault(detail="job_01J of research was on it"), NOW)
    event = Event.objects.get(kind="alert.opened")
    assert (event.tenant, event.message) == ("", "")
    assert "research" not in json.dumps(event.numbers)


@pytest.mark.parametrize(
    ("name", "of_platform", "of_tenant"),
    [("admin", 200, 200), ("ines", 200, 200), ("sam", 403, 403), ("olivia", 404, 200),
     ("ravi", 404, 200), ("vera", 404, 403), ("mei", 404, 404)],
)  # fmt: skip
def test_who_may_answer(world: World, name: str, of_platform: int, of_tenant: int) -> None:
    for alert, expected in (
        (raise_alert(fault(), NOW), of_platform),
        (tenant_alert(world), of_tenant),
    ):
        url = f"/api/v1/alerts/{alert.pk}/acknowledge/"
        answer = world.client(name).post(url, {"note": "seen"}, format="json")
        assert answer.status_code == expected, answer.json()
        if expected == 200:
            assert (answer.json()["state"], answer.json()["acknowledged_by"]) == (
                "acknowledged",
                name,
            )


def test_the_list_is_filtered_and_wrong_words_are_refused(world: World) -> None:
    first = raise_alert(fault("gpu-00001"), NOW)
    raise_alert(fault("gpu-00002", severity="warning"), NOW)
    resolve_alert(first.key, NOW)
    client = world.client("ines")

    def nodes(query: str) -> list[str]:
        return [each["node"] for each in client.get(f"/api/v1/alerts/?{query}").json()["results"]]

    assert nodes("") == ["gpu-00002", "gpu-00001"]
    assert nodes("state=unresolved") == nodes("severity=warning") == ["gpu-00002"]
    assert nodes("state=resolved") == nodes("node=gpu-00001") == ["gpu-00001"]
    assert nodes("cluster=demo&kind=gpu_fault&severity=critical") == ["gpu-00001"]
    assert client.get("/api/v1/alerts/?state=happy").status_code == 422


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("silence", {}, "/until"),
        ("silence", {"until": "tomorrow", "reason": "x"}, "/until"),
        ("silence", {"until": "2026-11-29T13:00:00", "reason": "x"}, "/until"),
        ("silence", {"until": "2030-13-45T13:00:00Z", "reason": "x"}, "/until"),
        ("silence", {"until": "2999-01-01T00:00:00Z", "reason": "x"}, "/until"),
        ("silence", {"until": "2026-11-30T00:00:00Z", "reason": 3}, "/reason"),
        ("silence", {"until": "2026-11-30T00:00:00Z", "reason": " "}, "/reason"),
        ("silence", {"for": 3}, "/for"),
        ("resolve", {}, "/reason"),
        ("resolve", {"reason": "x" * 1001}, "/reason"),
        ("acknowledge", {"note": ["x"]}, "/note"),
    ],
)
def test_wrong_answers_name_the_field_and_change_nothing(
    world: World, path: str, body: dict[str, Any], pointer: str
) -> None:
    alert = raise_alert(fault(), NOW)
    answer = world.client("ines").post(f"/api/v1/alerts/{alert.pk}/{path}/", body, format="json")
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["pointer"] == pointer
    alert.refresh_from_db()
    assert alert.state == "open"


def test_the_answer_has_the_story_and_the_runbook(world: World) -> None:
    answer = alert_answer(raise_alert(fault(detail="NVRM: Xid 79"), NOW))
    assert answer["runbook"] == "/runbooks/gpu-fault/"
    assert (answer["message"], answer["detail"]) == (
        "GPU 1 of node gpu-00001: XID 79.",
        "NVRM: Xid 79",
    )
    assert answer["first_seen"] == "2026-11-29T12:00:00Z"


def wants_mail(world: World, name: str, level: str) -> None:
    user = world.users[name]
    user.email = f"{name}@example.org"
    user.save(update_fields=["email"])
    MailChoice.objects.create(user=user, alerts=level)


def test_mail_reaches_those_who_chose_it_and_may_see_the_alert(world: World) -> None:
    for name, level in {"ines": "critical", "admin": "warning", "olivia": "warning", "ravi": "info",
                        "mei": "info", "vera": "info", "sam": "info"}.items():  # fmt: skip
        wants_mail(world, name, level)
    raise_alert(fault(), NOW)
    tenant_alert(world)  # a warning
    deliver_due(NOW)
    got = {
        (letter.to[0].split("@")[0], letter.subject.split(":")[1].strip()) for letter in mail.outbox
    }
    assert got == {
        ("ines", "GPU fault gpu-00001"), ("admin", "GPU fault gpu-00001"),
        ("admin", "Job stalled demo"), ("olivia", "Job stalled demo"), ("ravi", "Job stalled demo"),
    }  # fmt: skip
    assert all("/runbooks/" in letter.body for letter in mail.outbox)


def test_webhooks_hear_of_opening_and_end_each_its_own_tenants(world: World) -> None:
    for tenant in (None, world.tenants["research"], world.tenants["vision"]):
        WebhookEndpoint.objects.create(
            tenant=tenant, url="https://hooks.example/", created_at=NOW,
            encrypted_secret=vault.encrypt(new_secret().encode()),
        )  # fmt: skip
    raise_alert(fault(), NOW)
    alert = tenant_alert(world)
    resolve_alert(alert.key, later(5))
    rows = OutboxMessage.objects.order_by("pk")
    heard = [(r.tenant.slug if r.tenant else "", r.kind, r.payload["data"]["kind"]) for r in rows]
    assert heard == [
        ("", "alert.opened", "gpu_fault"),
        ("", "alert.opened", "job_stalled"), ("research", "alert.opened", "job_stalled"),
        ("", "alert.resolved", "job_stalled"), ("research", "alert.resolved", "job_stalled"),
    ]  # fmt: skip


def test_muster_alerts_of_its_own_silence(world: World) -> None:
    cluster = make_cluster()
    state = ClusterState.objects.create(
        cluster=cluster, watch="live", watch_since=NOW, heard_at=NOW, considered_at=NOW
    )
    judge_platform(later(20))
    assert not Alert.objects.exists()
    judge_platform(later(50))
    kinds = Alert.objects.exclude(state="resolved").order_by("kind").values_list("kind", flat=True)
    assert list(kinds) == ["cluster_silent", "planner_silent"]
    state.heard_at = state.considered_at = later(60)
    state.watch, state.watch_since = "unreachable", later(20)
    state.save()
    judge_platform(later(61))
    assert list(kinds.all()) == ["cluster_unreachable"]
    assert "2026-11-29T12:00:20Z" in sentence(Alert.objects.get(kind="cluster_unreachable"))


def test_what_was_over_long_ago_is_forgotten(world: World) -> None:
    alert = raise_alert(fault(), NOW)
    resolve_alert(alert.key, NOW)
    kept = raise_alert(fault("gpu-00002"), NOW)
    assert prune_alerts(NOW + timedelta(days=89)) == 0
    assert prune_alerts(NOW + timedelta(days=91)) == 1
    assert Alert.objects.get() == kept
