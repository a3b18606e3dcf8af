"""Pages of alerts: who sees which, what people answer, and the number in the rail."""

import pytest
from django.utils import timezone

from controlplane.common.live import Viewer
from scheduler.live import TOPICS
from scheduler.models import Alert
from scheduler.services.alerts import AlertFacts, raise_alert
from tenants.models import AuditEntry


@pytest.fixture
def raised(scene):
    """A faulty GPU, which is nobody's tenant's; and an idle job of each tenant."""
    facts = [
        AlertFacts(
            "gpu_fault",
            cluster=scene.cluster,
            node="gpu-00019",
            gpu="GPU-7",
            numbers={"cause": "XID 79"},
            detail="<b>NVRM: Xid</b>",
        ),
        AlertFacts(
            "gpu_waste", job=scene.jobs["pretrain-7b"], numbers={"utilisation": 4, "minutes": 30}
        ),
        AlertFacts(
            "gpu_waste",
            job=scene.jobs["vision-secret-plan"],
            numbers={"utilisation": 4, "minutes": 30},
        ),
    ]
    return [raise_alert(each, scene.now) for each in facts]


@pytest.mark.parametrize(
    ("name", "number", "sees"),
    [
        ("ines", 3, ["XID 79", "pretrain", "vision"]),
        ("ravi", 1, ["GPUs idle"]),
        ("mei", 1, ["GPUs idle"]),
    ],
)
def test_each_sees_theirs_and_their_number(scene, raised, sign_in, name, number, sees):
    text = sign_in(name).get("/alerts/").content.decode()
    assert f'data-count="alerts" data-zero>{number}<' in text
    assert f'data-count="alerts">{number}<' in text
    if name != "ines":
        assert "XID 79" not in text
        other = scene.jobs["vision-secret-plan" if name == "ravi" else "pretrain-7b"]
        assert other.pk not in text


def test_alert_of_others_is_not_found(raised, sign_in):
    fault, _own, other = raised
    for pk in (fault.pk, other.pk):
        assert sign_in("ravi").get(f"/alerts/{pk}/").status_code == 404
        sent = {"reason": "mine now"}
        assert sign_in("ravi").post(f"/alerts/{pk}/resolve/", sent).status_code == 404
    assert Alert.objects.filter(state="open").count() == 3


def test_page_of_one_says_all_and_escapes_evidence(raised, sign_in):
    text = sign_in("ines").get(f"/alerts/{raised[0].pk}/").content.decode()
    assert "GPU 7 of node gpu-00019: XID 79." in text
    assert "&lt;b&gt;NVRM" in text
    assert 'href="/runbooks/gpu-fault/"' in text
    assert 'href="/nodes/demo/gpu-00019/"' in text


def test_alert_is_acknowledged_silenced_and_resolved(raised, sign_in):
    client, pk = sign_in("ines"), raised[0].pk
    client.post(f"/alerts/{pk}/acknowledge/", {"note": "at the rack"})
    alert = Alert.objects.get(pk=pk)
    assert (alert.state, alert.acknowledged_by, alert.note) == (
        "acknowledged",
        "ines",
        "at the rack",
    )
    assert "at the rack" in client.get(f"/alerts/{pk}/").content.decode()
    client.post(f"/alerts/{pk}/silence/", {"span": "3600", "reason": "being mended"})
    alert.refresh_from_db()
    assert alert.state == "silenced"
    assert alert.silenced_until is not None
    assert 3500 < (alert.silenced_until - timezone.now()).total_seconds() <= 3600
    client.post(f"/alerts/{pk}/resolve/", {"reason": "new GPU"})
    alert.refresh_from_db()
    assert (alert.state, alert.resolved_by) == ("resolved", "ines")
    assert AuditEntry.objects.filter(action__startswith="alert.").count() == 3
    late = client.post(f"/alerts/{pk}/acknowledge/", {"note": ""}, follow=True)
    assert "This alert is over." in late.content.decode()


def test_answer_without_a_reason_comes_back_with_the_field_named(raised, sign_in):
    answer = sign_in("ines").post(
        f"/alerts/{raised[0].pk}/silence/", {"span": "3600", "reason": ""}
    )
    assert "reason" in answer.context["forms"]["silence"].errors
    assert Alert.objects.get(pk=raised[0].pk).state == "open"


def test_auditor_and_viewer_see_and_answer_nothing(raised, sign_in):
    _fault, own, _other = raised
    for name in ("sam", "vera"):
        text = sign_in(name).get(f"/alerts/{own.pk}/").content.decode()
        assert "not answer it" in text
        assert sign_in(name).post(f"/alerts/{own.pk}/acknowledge/", {"note": ""}).status_code in (
            302,
            403,
        )
    assert Alert.objects.get(pk=own.pk).state == "open"


def test_list_is_filtered_and_asks_few_questions(raised, sign_in, django_assert_max_num_queries):
    client = sign_in("ines")
    client.get("/alerts/")
    with django_assert_max_num_queries(16):
        text = client.get("/alerts/?kind=gpu_fault").content.decode()
    assert "gpu-00019" in text
    assert "GPUs idle</a>" not in text
    assert "No alert matches" in client.get("/alerts/?node=nowhere").content.decode()
    assert "None" in client.get("/alerts/?view=over").content.decode()


def test_live_topic_tells_each_their_number(scene, raised):
    topic = next(each for each in TOPICS if each.name == "alerts")
    for name, number in (("ines", 3), ("ravi", 1)):
        viewer = Viewer(key=1, actor=scene.actor(name), language="en", zone="UTC")
        said = topic.render(viewer, "", frozenset({"alert.opened"}))
        assert said.counts == {"alerts": number}
