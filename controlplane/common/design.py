"""The page that shows every piece of the design system in use: `/design/`, for platform admins."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from controlplane.common import looks, svg

NUMBERS: dict[str, Any] = {
    "best_domain": "leaf-03",
    "free_there": 6,
    "needed_nodes": 8,
    "needed_gpus": 640,
    "most_gpus": 512,
    "most_replicas": 64,
    "needed_replicas": 80,
    "available_gpus": 48,
    "free_gpus": 96,
    "used_gpus": 24,
    "limit_gpus": 32,
    "longest_seconds": 4800,
    "jobs_ahead": 3,
    "stopping_jobs": 2,
    "nodes_out": 3,
    "reserved_nodes": 4,
    "open_dependencies": 2,
    "new_enough_nodes": 12,
    "too_old_nodes": 4,
    "min_cuda": "12.8",
    "queue": "train",
    "cluster": "demo",
    "lowest_tenant": "vision",
}


class Sample(forms.Form):
    """One field of each kind; the first is left wrong on purpose."""

    image = forms.CharField(label=_("Image"), help_text=_("What the replicas run."))
    command = forms.CharField(
        label=_("Command"), required=False, widget=forms.Textarea(attrs={"rows": 2})
    )
    gpus = forms.IntegerField(label=_("GPUs in all"), min_value=1)
    queue = forms.ChoiceField(label=_("Queue"), choices=[("train", "research / train")])
    limit = forms.CharField(label=_("Time limit"), help_text=_("Such as 90m, 24h, 2d."))
    preemptible = forms.BooleanField(label=_("May be preempted"), required=False)
    notes = forms.CharField(label=_("Node labels"), required=False)


@require_safe
def design(request: HttpRequest) -> HttpResponse:
    """404 for everyone but platform admins."""
    if getattr(request.user, "platform_role", "") != "admin":
        raise Http404
    epoch = timezone.now().timestamp() + 7200
    times = dict.fromkeys(
        ("begin_at", "starts_at", "ends_at", "free_at", "backoff_until", "refused_until"), epoch
    )
    context = {
        "phases": [phase for phase in looks.PHASES if phase != "finished"],
        "outcomes": list(looks.OUTCOMES),
        "node_states": list(looks.NODES),
        "reasons": [{"code": code, "numbers": NUMBERS | times} for code in looks.REASONS],
        "rows": _rows(),
        "bars": BARS,
        "form": Sample(
            {"command": "torchrun train.py", "gpus": "64", "queue": "train", "limit": "24h"}
        ),
        "map": mark_safe(svg.spine_svg(_spine())),
        "page": SimpleNamespace(previous="?", next="?", said="1–5"),
        "live_topics": "",
    }
    return render(request, "design.html", context)


BARS = [
    {"own": 192, "nominal": 256, "borrowed": 0, "ceiling": 512, "headroom": 0, "out": 0},
    {"own": 256, "nominal": 256, "borrowed": 64, "ceiling": 512, "headroom": 0, "out": 0},
    {"own": 16, "nominal": 32, "borrowed": 0, "ceiling": None, "headroom": 8, "out": 0},
    {"own": 120, "nominal": 256, "borrowed": 0, "ceiling": None, "headroom": 0, "out": 64},
]
SHOWN = (
    ("pending", "", "pretrain-70b-ctx32k", "16 × 8", "waiting_for_topology"),
    ("pending", "", "way-too-big", "80 × 8", "exceeds_quota_for_ever"),
    ("held", "", "ablation-17", "2 × 8", ""),
    ("running", "", "pretrain-7b", "8 × 8", ""),
    ("finished", "failed", "probe-nccl", "4 × 8", ""),
)


def _rows() -> list[dict[str, Any]]:
    now = timezone.now()
    return [
        {
            "id": f"job_01J8ZK{index:04d}QX7A",
            "href": "#",
            "name": name,
            "phase": phase,
            "outcome": outcome,
            "shape": shape,
            "model": "h100",
            "tenant": "research",
            "queue": "train",
            "user": "ravi",
            "priority": 500,
            "position": index if reason else None,
            "submitted_at": now - timedelta(minutes=7 * index),
            "started_at": now - timedelta(hours=2) if phase == "running" else None,
            "finished_at": now - timedelta(minutes=3) if phase == "finished" else None,
            "reason_code": reason,
            "reason_numbers": NUMBERS,
        }
        for index, (phase, outcome, name, shape, reason) in enumerate(SHOWN, start=1)
    ]


def _spine() -> svg.MapSpine:
    states = ["used", "used", "free", "faulty", "used", "maintenance", "cordoned", "unplugged"]
    nodes = [
        svg.MapNode(f"gpu-{i:05d}", states[i % 8], (i * 3) % 9, 8, f"gpu-{i:05d}", "#")
        for i in range(16)
    ]
    return svg.MapSpine(
        "spine-00", [svg.MapLeaf("leaf-00", nodes, "40"), svg.MapLeaf("leaf-01", [])]
    )
