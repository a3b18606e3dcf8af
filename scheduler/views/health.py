"""GPU health: the ledger, what is in quarantine, what waits to join, the rules and what each would have done."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.common.errors import ApplicationError, NotVisibleError
from controlplane.common.form_errors import add_refusal
from controlplane.common.looks import Look
from controlplane.common.pages import seek_page
from queues.models import Cluster
from scheduler.forms.health import OverrideForm, PolicyForm, ReasonForm, RuleForm, parameter_phrase
from scheduler.health.rules import RuleSpec
from scheduler.models import Gpu, HealthPolicy, HealthRule, HealthState, RuleMode
from scheduler.selectors.gpu_health import (
    ECC_HINT,
    gpus_visible_to,
    health_counts,
    joining_checklists,
    node_timeline,
    quarantine,
    rule_answer,
    rules_visible_to,
    timeline_answers,
)
from scheduler.services.gpu_overrides import override_gpu
from scheduler.services.health_policies import change_policy
from scheduler.services.health_rules import change_rule, dry_run
from scheduler.services.node_returns import burn_in_node, return_node
from scheduler.services.nodes import node_of
from scheduler.views.maps import cluster_of
from tenants.access import Actor, Right, may, require
from tenants.views.shell import Frame, page, render_page

STATES: Mapping[str, Look] = {
    "healthy": Look("succeeded", HealthState.HEALTHY.label),
    "suspect": Look("warning", HealthState.SUSPECT.label),
    "unhealthy": Look("failed", HealthState.UNHEALTHY.label),
    "draining": Look("draining", HealthState.DRAINING.label),
    "repairing": Look("stopping", HealthState.REPAIRING.label),
    "burn_in": Look("starting", HealthState.BURN_IN.label),
    "joining": Look("placed", HealthState.JOINING.label),
    "unknown": Look("off", pgettext_lazy("health", "unknown")),
}
ATTENTION = "attention"
MODES = {
    RuleMode.OFF: Look("cancelled", RuleMode.OFF.label),
    RuleMode.PROPOSE: Look("held", RuleMode.PROPOSE.label),
    RuleMode.ACT: Look("running", RuleMode.ACT.label),
}
RULE_WORDS: Mapping[str, Any] = {
    "xid": gettext_lazy("XIDs of hardware, driver and firmware"),
    "xid_repeat": gettext_lazy("XID 13 or 31 on one GPU over different jobs"),
    "ecc_uncorrected": gettext_lazy("Uncorrectable ECC errors"),
    "ecc_corrected": gettext_lazy("Corrected ECC errors"),
    "row_remap": gettext_lazy("Row remapping failed or pending"),
    "nvlink": gettext_lazy("NVLink errors"),
    "dcgm_health": gettext_lazy("DCGM's own health watches"),
    "temperature": gettext_lazy("GPU too hot"),
    "slowdown": gettext_lazy("Clocks slowed down by hardware or heat"),
    "gpu_missing": gettext_lazy("GPU no longer seen by the exporter"),
    "allocatable": gettext_lazy("Fewer GPUs allocatable than the node has"),
    "node_condition": gettext_lazy("Node conditions of watchers and clouds"),
    "node_taint": gettext_lazy("Taints set by other watchers"),
    "report": gettext_lazy("Reports of jobs and operators"),
    "kernel": gettext_lazy("XIDs in the kernel log"),
    "waste": gettext_lazy("GPUs held but idle"),
    "memory_copy": gettext_lazy("Memory copy is the bottleneck"),
    "stalled": gettext_lazy("Jobs without a sign of progress"),
}


def gpu_look(gpu: Gpu) -> Look:
    """The state of a GPU; unknown where its exporter is silent and nothing bad is known."""
    silent = gpu.unknown_since is not None and gpu.state == HealthState.HEALTHY
    return STATES["unknown" if silent else gpu.state]


@require_safe
@page
def ledger(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Every GPU by UUID; without a filter those that need attention."""
    filters = {key: request.GET.get(key, "").strip()[:253] for key in ("cluster", "state", "node")}
    clusters = list(Cluster.objects.order_by("name"))
    wanted = filters["state"] or ATTENTION
    rows = _wanted(actor, filters, wanted)
    shown, pages = seek_page(request, rows, ("node_id", "index", "pk"))
    counts: dict[str, int] = {}
    for cluster in clusters:
        if filters["cluster"] in ("", cluster.name):
            for key, n in health_counts(actor, cluster).items():
                counts[key] = counts.get(key, 0) + n
    context = {
        "gpus": [(gpu, gpu_look(gpu)) for gpu in shown],
        "page": pages,
        "filters": filters,
        "counts": [(key, STATES[key], counts.get(key, 0)) for key in STATES],
        "states": [(key, look.word) for key, look in STATES.items()],
        "wanted": wanted,
        "total": sum(n for key, n in counts.items() if key != "unknown"),
        "clusters": [cluster.name for cluster in clusters],
        "ecc_hint": ECC_HINT if any(not gpu.ecc_known for gpu in shown) else "",
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "scheduler/_ledger.html", context)
    frame = Frame("health", topics=("health",))
    return render_page(request, actor, "scheduler/ledger.html", context, frame)


def _wanted(actor: Actor, filters: Mapping[str, str], wanted: str) -> QuerySet[Gpu]:
    special = wanted in (ATTENTION, "all")
    rows = gpus_visible_to(actor, filters["cluster"] or None, None if special else wanted)
    if filters["node"]:
        rows = rows.filter(node__name__icontains=filters["node"])
    if wanted != ATTENTION:
        return rows
    well = Gpu.objects.filter(state=HealthState.HEALTHY, unknown_since__isnull=True)
    return rows.exclude(pk__in=well.filter(override_state="").values("pk"))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def gpu_page(request: HttpRequest, actor: Actor, uuid: str) -> HttpResponse:
    """One GPU, what befell it, and an operator's word about it."""
    gpu = gpus_visible_to(actor).filter(uuid=uuid).first()
    if gpu is None:
        raise NotVisibleError(_("There is no such GPU."))
    if request.method == "POST":
        require(actor, Right.OPERATE_NODES)
    form = OverrideForm(request.POST or None)
    if request.method == "POST" and form.is_valid() and _overridden(request, actor, gpu, form):
        return redirect("gpu", uuid)
    events = node_timeline(actor, gpu.node).filter(gpu=gpu.uuid)[:60]
    context = {
        "gpu": gpu,
        "look": gpu_look(gpu),
        "form": form,
        "lines": shown_lines(timeline_answers(actor, list(events))),
        "may_operate": may(actor, Right.OPERATE_NODES),
        "ecc_hint": "" if gpu.ecc_known else ECC_HINT,
    }
    frame = Frame("health", topics=("health",))
    return render_page(request, actor, "scheduler/gpu.html", context, frame)


def _overridden(request: HttpRequest, actor: Actor, gpu: Gpu, form: OverrideForm) -> bool:
    now, sent = timezone.now(), form.cleaned_data
    try:
        override_gpu(actor, gpu, sent["state"], sent["reason"], now + form.lasts, now)
    except ApplicationError as error:
        add_refusal(form, error)
        return False
    messages.success(request, _("Rules do not overrule that until it expires."))
    return True


def shown_lines(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of a fault timeline with looks and times."""
    return [
        answer
        | {
            "when": datetime.fromisoformat(answer["at"]),
            "look": STATES.get(answer["after"] or "", Look("info", "")),
            "rule_word": RULE_WORDS.get(answer["rule"] or "", ""),
        }
        for answer in answers
    ]


@require_safe
@page
def quarantine_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Nodes that are out or watched, the oldest first; and those that wait to join."""
    clusters = list(Cluster.objects.order_by("name"))
    now = timezone.now()
    context = {
        "rows": [
            {"each": each, "look": STATES[each.node.health], "age": each.age_seconds(now)}
            for cluster in clusters
            for each in quarantine(actor, cluster)
        ],
        "joining": [
            waiting | {"cluster": cluster.name}
            for cluster in clusters
            for waiting in joining_checklists(actor, cluster)
        ],
        "may_operate": may(actor, Right.OPERATE_NODES),
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "scheduler/_quarantine.html", context)
    frame = Frame("health", topics=("health",))
    return render_page(request, actor, "scheduler/quarantine.html", context, frame)


def _reason(request: HttpRequest) -> str:
    """Empty where it is missing or too long: the service says what would be right."""
    form = ReasonForm(request.POST)
    return str(form.cleaned_data["reason"]) if form.is_valid() else ""


@require_POST
@page
def node_return(request: HttpRequest, actor: Actor, cluster: str, name: str) -> HttpResponse:
    """A person says that the node was repaired, or was never broken."""
    require(actor, Right.OPERATE_NODES)
    try:
        return_node(actor, node_of(cluster, name), _reason(request), timezone.now())
        messages.success(request, _("The node goes through its checklist and comes back."))
    except ApplicationError as error:
        messages.error(request, error.sentence)
    return redirect("node", cluster, name)


@require_POST
@page
def node_burn_in(request: HttpRequest, actor: Actor, cluster: str, name: str) -> HttpResponse:
    """A person asks for a burn-in of a node, be it well or not."""
    require(actor, Right.OPERATE_NODES)
    try:
        burn_in_node(actor, node_of(cluster, name), _reason(request), timezone.now())
        messages.success(request, _("The node is burnt in once its jobs have left."))
    except ApplicationError as error:
        messages.error(request, error.lines)
    return redirect("node", cluster, name)


@require_safe
@page
def rule_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """All rules, and the budget of each cluster."""
    policies = {row.cluster_id: row for row in HealthPolicy.objects.all()}
    context = {
        "rules": [_rule(spec, row) for spec, row in rules_visible_to(actor)],
        "policies": [
            (cluster, policies.get(cluster.pk) or HealthPolicy(cluster=cluster))
            for cluster in Cluster.objects.order_by("name")
        ],
        "may_edit": may(actor, Right.EDIT_CATALOGUE),
    }
    return render_page(request, actor, "scheduler/rules.html", context, Frame("health"))


def _rule(spec: RuleSpec, row: HealthRule) -> dict[str, Any]:
    answer = rule_answer(spec, row)
    thresholds = [parameter_phrase(k, v) for k, v in answer["parameters"].items()]
    return answer | {
        "words": RULE_WORDS.get(spec.key, spec.title),
        "look": MODES[RuleMode(row.mode)],
        "thresholds": ", ".join(thresholds),
    }


@require_http_methods(["GET", "HEAD", "POST"])
@page
def rule_page(request: HttpRequest, actor: Actor, key: str) -> HttpResponse:
    """One rule's mode and thresholds, to change for platform admins."""
    spec, row = _rule_of(actor, key)
    answer = rule_answer(spec, row)
    initial = {"mode": row.mode, **answer["parameters"]}
    form = RuleForm(request.POST or None, initial=initial, spec=spec)
    may_edit = may(actor, Right.EDIT_CATALOGUE)
    if request.method == "POST":
        require(actor, Right.EDIT_CATALOGUE)
        if form.is_valid() and _rule_changed(request, actor, key, form):
            return redirect("rule-list")
    if not may_edit:
        for field in form.fields.values():
            field.disabled = True
    context = {
        "rule": _rule(spec, row),
        "form": form,
        "may_edit": may_edit,
        "clusters": list(Cluster.objects.order_by("name").values_list("name", flat=True)),
    }
    return render_page(request, actor, "scheduler/rule.html", context, Frame("health"))


def _rule_of(actor: Actor, key: str) -> tuple[RuleSpec, HealthRule]:
    found = next((pair for pair in rules_visible_to(actor) if pair[0].key == key), None)
    if found is None:
        raise NotVisibleError(_("There is no such rule."))
    return found


def _rule_changed(request: HttpRequest, actor: Actor, key: str, form: RuleForm) -> bool:
    version = request.POST.get("version", "")
    seen = int(version) if version.isascii() and version.isdecimal() else None
    try:
        change_rule(actor, key, form.changes(), seen, timezone.now())
    except ApplicationError as error:
        _place(form, error)
        return False
    messages.success(request, _("The rule is changed."))
    return True


def _place(form: RuleForm, error: ApplicationError) -> None:
    for found in error.errors:
        name = found.pointer.rsplit("/", 1)[-1]
        form.add_error(name if name in form.fields else None, found.message)
    if not error.errors:
        form.add_error(None, error.sentence)


@require_POST
@page
def rule_trial(request: HttpRequest, actor: Actor, key: str) -> HttpResponse:
    """What the rule in the form would have found in the last day. Nothing is stored."""
    require(actor, Right.EDIT_CATALOGUE)
    spec, _row = _rule_of(actor, key)
    form = RuleForm(request.POST, spec=spec)
    context: dict[str, Any] = {}
    if form.is_valid():
        cluster = cluster_of(request.POST.get("cluster", ""))
        try:
            context["run"] = dry_run(actor, cluster, key, form.changes(), timezone.now())
        except ApplicationError as error:
            context["error"] = error
    else:
        context["wrong"] = True
    return render(request, "scheduler/_rule_trial.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def policy_page(request: HttpRequest, actor: Actor, cluster: str) -> HttpResponse:
    """A cluster's budget, burn-in and metrics; platform admins change them."""
    found = cluster_of(cluster)
    row = HealthPolicy.objects.filter(cluster=found).first() or HealthPolicy(cluster=found)
    form = PolicyForm(request.POST or None, initial=PolicyForm.values_of(row))
    may_edit = may(actor, Right.EDIT_CATALOGUE)
    if request.method == "POST":
        require(actor, Right.EDIT_CATALOGUE)
        if form.is_valid():
            try:
                change_policy(actor, found, form.changes(), timezone.now())
            except ApplicationError as error:
                add_refusal(form, error)
            else:
                messages.success(request, _("Kept."))
                return redirect("rule-list")
    if not may_edit:
        for field in form.fields.values():
            field.disabled = True
    context = {"cluster": found, "form": form, "may_edit": may_edit}
    return render_page(request, actor, "scheduler/policy.html", context, Frame("health"))
