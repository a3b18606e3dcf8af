"""Flavors, presets, audit, webhooks, notices, the order of cohorts: seen by whom, changed by whom, errors at fields."""

import pytest

from queues.models import Flavor, Preset
from tenants.models import AuditEntry, Cohort, MailChoice, OutboxMessage, WebhookEndpoint

FLAVOR = {
    "name": "h200",
    "cluster": "demo",
    "model": "NVIDIA-H200",
    "model_label": "nvidia.com/gpu.product",
    "resource_name": "nvidia.com/gpu",
    "gpus_per_nvlink_domain": "8",
    "default_cpu_millis_per_gpu": "16",
    "default_memory_mib_per_gpu": "128Gi",
}


@pytest.mark.parametrize("path", ["/flavors/", "/presets/", "/flavors/demo.h100/", "/notices/"])
@pytest.mark.parametrize("name", ["ravi", "ines", "sam", "admin"])
def test_everyone_sees_the_catalogue(scene, sign_in, path, name):
    assert sign_in(name).get(path).status_code == 200


def test_flavor_is_made_and_changed_by_platform_admins_alone(scene, sign_in):
    assert sign_in("ines").post("/flavors/", FLAVOR).status_code == 403
    assert sign_in("admin").post("/flavors/", FLAVOR)["Location"] == "/flavors/"
    made = Flavor.objects.get(name="h200")
    assert (made.model, made.default_cpu_millis_per_gpu) == ("NVIDIA-H200", 16_000)
    assert made.default_memory_mib_per_gpu == 131_072
    twice = sign_in("admin").post("/flavors/", FLAVOR | {"name": "again"})
    assert "There is one like it already." in twice.content.decode()
    sent = {k: v for k, v in FLAVOR.items() if k not in ("name", "cluster")}
    wrong = sign_in("admin").post("/flavors/demo.h200/", sent | {"resource_name": "gpu"})
    assert "resource_name" in wrong.context["form"].errors
    odd = sign_in("admin").post(
        "/flavors/demo.h200/", sent | {"default_cpu_millis_per_gpu": "lots"}
    )
    assert "default_cpu_millis_per_gpu" in odd.context["form"].errors
    sign_in("admin").post("/flavors/demo.h200/", sent | {"gpus_per_nvlink_domain": "4"})
    made.refresh_from_db()
    assert made.gpus_per_nvlink_domain == 4


def test_preset_is_made_changed_and_taken_away(scene, sign_in):
    admin, sent = sign_in("admin"), {"name": "ib", "spec": '{"resources": {"rdma/hca": "1"}}'}
    assert sign_in("olivia").post("/presets/", sent).status_code == 403
    assert admin.post("/presets/", sent).status_code == 302
    assert Preset.objects.get().spec["resources"] == {"rdma/hca": "1"}
    broken = admin.post("/presets/ib/", {"spec": "{"})
    assert "is no JSON" in str(broken.context["form"].errors["spec"])
    unknown = admin.post("/presets/ib/", {"spec": '{"privileged": true}'})
    assert "spec" in unknown.context["form"].errors
    admin.post("/presets/ib/", {"spec": '{"env": {"NCCL_DEBUG": "INFO"}}', "description": "IB"})
    assert Preset.objects.get().spec["env"] == {"NCCL_DEBUG": "INFO"}
    admin.post("/presets/ib/", {"do": "delete"})
    assert not Preset.objects.exists()


def test_audit_shows_what_changed_and_why_to_those_who_may_see(scene, sign_in):
    sign_in("ines").post("/nodes/demo/gpu-00005/cordon/", {"reason": "<i>fan</i>"})
    sign_in("admin").post("/flavors/", FLAVOR)
    text = sign_in("sam").get("/audit/").content.decode()
    assert "&lt;i&gt;fan" in text
    assert "NVIDIA-H200" in text
    assert "h200" not in sign_in("sam").get("/audit/?actor=ines").content.decode()
    for name in ("ravi", "vera", "mei"):
        assert sign_in(name).get("/audit/").status_code == 403


def test_tenant_admin_audits_their_own_tenant_alone(scene, sign_in):
    now, tenants = scene.now, scene.tenants
    for slug in ("research", "vision"):
        AuditEntry.objects.create(
            at=now,
            actor="somebody",
            action="quota.changed",
            tenant=tenants[slug],
            object_kind="tenant",
            object_name=f"about-{slug}",
            before={"nominal": 1, "weight": 1},
            after={"nominal": 2, "weight": 1},
        )
    answer = sign_in("olivia").get("/audit/")
    text = answer.content.decode()
    assert "about-research" in text
    assert "about-vision" not in text
    [(_entry, changes)] = answer.context["entries"]
    assert [(c.field, c.before, c.after) for c in changes] == [("nominal", "1", "2")]


def test_webhook_is_registered_tried_renewed_and_forgotten(scene, sign_in, settings):
    settings.WEBHOOK_NETWORKS = ["203.0.113.0/24"]
    client, sent = sign_in("olivia"), {"url": "https://203.0.113.9/hook", "kinds": "alert."}
    made = client.post("/tenants/research/webhooks/", sent)
    secret = made.context["secret"]
    assert secret in made.content.decode()
    assert made["Cache-Control"] == "no-store"
    assert secret not in client.get("/tenants/research/webhooks/").content.decode()
    row = WebhookEndpoint.objects.get()
    assert row.tenant is not None
    assert (row.tenant.slug, row.kinds) == ("research", ["alert."])
    client.post(f"/webhooks/{row.pk}/act/", {"do": "try"})
    assert OutboxMessage.objects.get().kind == "webhook.test"
    assert "webhook.test" in client.get(f"/webhooks/{row.pk}/").content.decode()
    renewed = client.post(f"/webhooks/{row.pk}/act/", {"do": "renew"})
    assert renewed.context["secret"] not in ("", secret)
    wrong = client.post(f"/webhooks/{row.pk}/", {"url": "ftp://x"})
    assert "url" in wrong.context["form"].errors
    client.post(f"/webhooks/{row.pk}/", sent | {"description": "pager"})
    row.refresh_from_db()
    assert (row.active, row.description) == (False, "pager")
    for name in ("ravi", "mei", "ines"):
        assert sign_in(name).get(f"/webhooks/{row.pk}/").status_code == 404
    client.post(f"/webhooks/{row.pk}/act/", {"do": "remove"})
    assert not WebhookEndpoint.objects.exists()


def test_platform_webhooks_are_for_platform_admins(scene, sign_in):
    assert sign_in("admin").get("/webhooks/").status_code == 200
    for name in ("olivia", "ines", "sam"):
        assert sign_in(name).get("/webhooks/").status_code == 403
    assert sign_in("ravi").get("/tenants/research/webhooks/").status_code == 403


def test_notices_are_ones_own(scene, sign_in):
    sign_in("ravi").post("/notices/", {"alerts": "critical"})
    assert MailChoice.objects.get().user.username == "ravi"
    assert "alerts" in sign_in("ravi").post("/notices/", {"alerts": "x"}).context["form"].errors


def test_order_of_a_cohort_is_chosen_by_platform_admins(scene, sign_in):
    cohort = Cohort.objects.get()
    path = f"/cohorts/{cohort.pk}/order/"
    assert sign_in("olivia").post(path, {"order": "fair_share"}).status_code == 403
    sign_in("admin").post(path, {"order": "fair_share"})
    cohort.refresh_from_db()
    assert cohort.order == "fair_share"
    assert "fair_share" in sign_in("admin").get("/tenants/").content.decode()


def test_lists_ask_few_questions(scene, sign_in, django_assert_max_num_queries):
    client = sign_in("admin")
    for path in ("/flavors/", "/presets/", "/audit/", "/webhooks/"):
        client.get(path)
        with django_assert_max_num_queries(18):
            client.get(path)


def test_audit_stands_in_the_rail_of_those_who_may_read_it(scene, sign_in):
    link = "/audit/?tenant=research"
    assert link in sign_in("olivia").get("/tenants/research/quotas/").content.decode()
    for name in ("ravi", "vera"):
        assert "/audit/" not in sign_in(name).get("/tenants/research/quotas/").content.decode()


def test_audit_tells_values_in_words(scene, sign_in):
    AuditEntry.objects.create(
        at=scene.now,
        actor="admin",
        action="quotas.changed",
        object_kind="tenant",
        object_name="research",
        before={"h100": {"nominal": 64, "lending_limit": None}, "flavors": ["h100"]},
        after={"h100": {"nominal": 96, "lending_limit": None}, "flavors": ["h100", "a100"]},
        via="web",
    )
    text = sign_in("sam").get("/audit/").content.decode()
    assert "<del>nominal 64</del> → <ins>nominal 96</ins>" in text
    assert "<ins>h100, a100</ins>" in text
    assert "null" not in text.split("<tbody>")[1].split("</tbody>")[0]


def test_platform_admin_gives_presets_to_a_queue_and_a_tenant_admin_keeps_them(scene, sign_in):
    queue = scene.queues["research", "train"]
    Preset.objects.create(name="infiniband", spec={})
    sent = {
        "version": queue.version,
        "state": "open",
        "flavors": "h100, a100",
        "highest_priority_submitter": "500",
        "highest_priority_admin": "900",
        "bookings": "1",
        "booking_after": "12h",
        "backfill_order": "shortest_limit",
        "min_runtime": "5m",
        "on_waste": "lower",
    }
    path = "/tenants/research/queues/train/"
    assert "infiniband" in sign_in("admin").get(path).content.decode()
    answer = sign_in("admin").post(path, sent | {"presets": ["infiniband"]})
    assert answer.status_code == 302
    queue.refresh_from_db()
    assert [preset.name for preset in queue.presets.all()] == ["infiniband"]
    answer = sign_in("olivia").post(path, sent | {"version": queue.version, "bookings": "2"})
    assert answer.status_code == 302
    queue.refresh_from_db()
    assert (queue.bookings, queue.presets.count()) == (2, 1)
    assert (queue.min_runtime_seconds, queue.on_waste) == (300, "lower")
