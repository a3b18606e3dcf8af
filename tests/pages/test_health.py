"""Pages of GPU health: ledger, quarantine, one GPU, a node's faults, rules with a dry run, budgets."""

import pytest

from scheduler.models import Gpu, HealthPolicy, HealthRule, NodeReport, NodeWatch
from tenants.models import AuditEntry
from tests.pages.operations import add_operations

PATHS = [
    "/health/",
    "/health/?state=all",
    "/health/quarantine/",
    "/health/rules/",
    "/health/rules/temperature/",
    "/health/policy/demo/",
    "/nodes/demo/gpu-00019/",
    "/health/gpus/GPU-0019-7-ab12-cd34/",
]
BROKEN = "GPU-0019-7-ab12-cd34"


@pytest.fixture
def busy(scene):
    add_operations(scene)
    return scene


@pytest.mark.parametrize("name", ["ravi", "ines", "sam", "admin"])
def test_everyone_sees_health_and_nobody_another_tenants_jobs(busy, sign_in, name):
    client = sign_in(name)
    for path in PATHS:
        answer = client.get(path)
        assert answer.status_code == 200, path
        if name == "ravi":
            text = answer.content.decode()
            assert busy.jobs["vision-secret-plan"].pk[-6:].lower() not in text, path


def test_ledger_shows_what_needs_attention_first_and_unknown_is_no_number(busy, sign_in):
    text = sign_in("ines").get("/health/").content.decode()
    assert "XID 79: GPU has fallen off the bus" in text
    assert "its exporter does not answer" in text
    assert text.count('<span class="dim">?</span>') >= 16  # 8 GPUs of a silent exporter
    assert "gpu-00002" not in text
    assert "gpu-00002" in sign_in("ines").get("/health/?state=all&node=gpu-00002").content.decode()


def test_ledger_asks_few_questions(busy, sign_in, django_assert_max_num_queries):
    client = sign_in("ines")
    client.get("/health/?state=all")
    for path in ("/health/?state=all", "/health/quarantine/", "/health/rules/"):
        with django_assert_max_num_queries(22):
            client.get(path)


def test_timeline_of_a_node_tells_signal_age_jobs_and_next_step(busy, sign_in):
    text = sign_in("ravi").get("/nodes/demo/gpu-00019/").content.decode()
    assert "seen by dcgm" in text
    assert "sat on this GPU" in text
    assert "1 job of other tenants" in text
    assert "reset, restart or repair" in text
    assert "&lt;unknown&gt;" in text


def test_joining_node_shows_its_checklist_with_the_line(busy, sign_in):
    text = sign_in("ravi").get("/health/quarantine/").content.decode()
    assert "kubectl get node gpu-00070 -L nvidia.com/cuda.driver-version.full" in text


def test_operator_overrules_a_gpu_with_a_reason_and_nobody_else(busy, sign_in):
    path, sent = f"/health/gpus/{BROKEN}/", {"state": "healthy", "days": "1", "reason": "swapped"}
    assert sign_in("olivia").post(path, sent).status_code == 403
    assert "reason" in sign_in("ines").post(path, sent | {"reason": ""}).context["form"].errors
    assert sign_in("ines").post(path, sent).status_code == 302
    gpu = Gpu.objects.get(uuid=BROKEN)
    assert (gpu.override_state, gpu.override_by) == ("healthy", "ines")
    assert "swapped" in sign_in("ines").get(path).content.decode()


def test_rule_is_switched_by_platform_admins_and_wrong_thresholds_stand_at_the_field(busy, sign_in):
    path = "/health/rules/temperature/"
    sent = {"mode": "act", "above_c": "83", "seconds": "60", "version": "0"}
    assert sign_in("ines").post(path, sent).status_code == 403
    wrong = sign_in("admin").post(path, sent | {"above_c": "hot"})
    assert "above_c" in wrong.context["form"].errors
    assert sign_in("admin").post(path, sent)["Location"] == "/health/rules/"
    row = HealthRule.objects.get(key="temperature")
    assert (row.mode, row.parameters["above_c"]) == ("act", 83.0)
    stale = sign_in("admin").post(path, sent | {"mode": "off"})
    assert stale.status_code == 200
    assert HealthRule.objects.get(key="temperature").mode == "act"


def test_dry_run_says_what_would_have_been_found(busy, sign_in):
    sent = {"mode": "act", "cluster": "demo"}
    text = sign_in("admin").post("/health/rules/xid/trial/", sent).content.decode()
    assert "1 finding" in text
    assert "gpu-00019" in text
    assert not HealthRule.objects.exists()
    assert sign_in("ines").post("/health/rules/xid/trial/", sent).status_code == 403


def test_budget_is_set_and_the_burn_in_command_read_as_words(busy, sign_in):
    sent = {
        "budget_percent": "10",
        "budget_nodes": "3",
        "budget_window_seconds": "1800",
        "burn_in_image": "registry.example/burn:1",
        "burn_in_command": "dcgmi diag -r 3 --json 'a b'",
        "burn_in_limit_seconds": "900",
        "exporter_url": "",
        "prometheus_url": "",
        "scrape_seconds": "15",
    }
    assert sign_in("ines").post("/health/policy/demo/", sent).status_code == 403
    assert sign_in("admin").post("/health/policy/demo/", sent).status_code == 302
    row = HealthPolicy.objects.get()
    assert row.burn_in_command == ["dcgmi", "diag", "-r", "3", "--json", "a b"]
    broken = sign_in("admin").post("/health/policy/demo/", sent | {"burn_in_command": "a 'b"})
    assert "burn_in_command" in broken.context["form"].errors


def test_operator_reports_a_node(busy, sign_in):
    sent = {"kind": "nvlink", "gpu": "3", "message": "NCCL hangs"}
    path = "/nodes/demo/gpu-00030/report/"
    assert sign_in("ravi").post(path, sent).status_code == 403
    assert not NodeReport.objects.exists()
    sign_in("ines").post(path, sent)
    assert NodeReport.objects.get().message == "NCCL hangs"


def test_drift_is_shown_to_those_who_look_after_all(busy, sign_in):
    assert "jx7k2m9qa-1-main-0-1" in sign_in("ines").get("/clusters/demo/").content.decode()
    assert "jx7k2m9qa-1-main-0-1" not in sign_in("ravi").get("/clusters/demo/").content.decode()


def test_thresholds_stand_with_their_units(busy, sign_in):
    text = sign_in("admin").get("/health/rules/").content.decode()
    assert "above 85 °C, for 2m" in text
    assert "below 20 %, for 30m" in text
    page = sign_in("admin").get("/health/rules/temperature/").content.decode()
    assert 'value="85"' in page
    assert '<span class="unit">°C</span>' in page


def test_operator_asks_for_a_burn_in_where_the_cluster_has_one(busy, sign_in):
    page, path = "/nodes/demo/gpu-00005/", "/nodes/demo/gpu-00005/burn-in/"
    assert "Burn in" not in sign_in("ines").get(page).content.decode()
    HealthPolicy.objects.update_or_create(
        cluster=busy.cluster, defaults={"burn_in_image": "registry.example/burn-in:1"}
    )
    assert "Burn in" in sign_in("ines").get(page).content.decode()
    assert "Burn in" not in sign_in("ravi").get(page).content.decode()
    assert sign_in("ravi").post(path, {"reason": "it is slow"}).status_code == 403
    sign_in("ines").post(path, {"reason": ""})
    assert not AuditEntry.objects.filter(action="node.burn_in").exists()
    node = busy.nodes[5]
    NodeWatch.objects.update_or_create(node=node, defaults={"state": "healthy", "since": busy.now})
    sign_in("ines").post(path, {"reason": "it is slow"})
    assert AuditEntry.objects.get(action="node.burn_in").reason == "it is slow"
