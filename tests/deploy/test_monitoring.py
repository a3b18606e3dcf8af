"""Dashboard and alert rules: Prometheus takes them, every rule speaks and is quiet when it should, and every metric
that a panel or a rule names is exported by some process."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

import scheduler.loop.metrics
import scheduler.reconcile.calls  # noqa: F401  counts in the cluster process
from controlplane.common.metrics import installation, registry
from scheduler.alert_kinds import KINDS
from tests.deploy.rendered import ROOT, pod_specs, written
from tests.services.binaries import runs_in_ci

MONITORING = ROOT / "deploy" / "monitoring"
RUNBOOKS = ROOT / "docs" / "runbooks"


@pytest.fixture(scope="module")
def promtool() -> str:
    """Debian's package prometheus has it."""
    found = shutil.which("promtool")
    if found is None:
        if runs_in_ci():
            pytest.fail("CI needs Debian's package prometheus")
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return found


def rules() -> list[dict[str, Any]]:
    read = yaml.safe_load((MONITORING / "rules.yaml").read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return read


def expressions() -> Iterator[tuple[str, str]]:
    """Every query with the name of its panel or rule."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


@pytest.mark.parametrize("arguments", [("check", "rules.yaml"), ("test", "rules_test.yaml")])
def test_prometheus_takes_the_rules(promtool: str, arguments: tuple[str, str]) -> None:
    verb, file = arguments
    done = subprocess.run(
        [promtool, verb, "rules", file], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_query_of_the_dashboard_parses(promtool: str, tmp_path: Any) -> None:
    """As rules: promtool of Debian 12 parses queries in no other way."""
    written = [
        {"record": f"panel:{number}", "expr": expr.replace("$cluster", ".*")}
        for number, (_title, expr) in enumerate(expressions())
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": written}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.django_db
def test_every_metric_that_is_named_is_exported() -> None:
    text = (generate_latest(registry) + generate_latest(installation)).decode()
    exported = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        parts = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
        exported |= {name + part for part in parts}
    for title, expr in expressions():
        named = set(re.findall(r"\b(muster_[a-z_]+)", expr))
        assert named, title
        assert named <= exported, (title, named - exported)


def test_prometheus_is_told_of_ports_that_exist() -> None:
    """promtool of Debian knows no kubernetes_sd_configs: only names are compared here."""
    (job,) = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())["scrape_configs"]
    _name, ports, components = (rule["regex"].split("|") for rule in job["relabel_configs"])
    specs = pod_specs(written())
    exist = {port["name"] for name in components for port in specs[name]["containers"][0]["ports"]}
    assert exist == set(ports)


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert max(x for x, _y in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_rule_is_tested_and_leads_to_a_runbook() -> None:
    tested = (MONITORING / "rules_test.yaml").read_text()
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert (RUNBOOKS / f"{rule['annotations']['runbook']}.md").is_file(), rule["alert"]
        assert f"alertname: {rule['alert']}\n        exp_alerts" in tested, rule["alert"]


def test_every_kind_of_alert_leads_to_a_runbook_and_every_runbook_is_led_to() -> None:
    wanted = {kind.runbook for kind in KINDS.values()}
    wanted |= {rule["annotations"]["runbook"] for rule in rules()}
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == wanted
