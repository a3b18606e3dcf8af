"""The drain planner: which jobs would leave, when, what that costs, when the nodes would be empty; then do it."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.common.errors import ApplicationError
from queues.models import Cluster
from scheduler.forms.windows import DrainForm
from scheduler.models import Drain
from scheduler.selectors.topology import domain_names
from scheduler.services.departures import outlook_answer
from scheduler.services.drains import drain_nodes, preview_drain, read_drain
from scheduler.views.calendar import departures_of, faults_of, place_errors
from scheduler.views.maps import cluster_of
from tenants.access import Actor, Right, require
from tenants.views.shell import Frame, page, render_page

DRAINS_SHOWN = 100


@require_http_methods(["GET", "HEAD", "POST"])
@page
def drain_planner(request: HttpRequest, actor: Actor, cluster: str) -> HttpResponse:
    """The form and what drains now; `?node=` or `?domain=leaf/leaf-02` fill it."""
    require(actor, Right.OPERATE_NODES)
    found = cluster_of(cluster)
    initial = {"names": request.GET.get("node", ""), "domains": request.GET.get("domain", "")}
    form = _form(request, found, initial)
    if request.method == "POST" and form.is_valid() and _drained(request, actor, found, form):
        return redirect("drain-planner", cluster)
    rows = Drain.objects.filter(node__cluster=found, ended_at__isnull=True)
    context = {
        "cluster": found,
        "form": form,
        "domain_names": domain_names([found]),
        "drains": list(rows.select_related("node").order_by("node__name")[:DRAINS_SHOWN]),
    }
    frame = Frame("nodes", topics=("windows",))
    return render_page(request, actor, "scheduler/drain.html", context, frame)


def _form(request: HttpRequest, cluster: Cluster, initial: dict[str, Any]) -> DrainForm:
    flavors = list(cluster.flavors.order_by("name").values_list("name", flat=True))
    return DrainForm(request.POST or None, initial=initial, flavors=flavors)


@require_POST
@page
def drain_preview(request: HttpRequest, actor: Actor, cluster: str) -> HttpResponse:
    """Which jobs would leave. Nothing is stored."""
    require(actor, Right.OPERATE_NODES)
    found, now = cluster_of(cluster), timezone.now()
    form = _form(request, found, {})
    context: dict[str, Any] = {}
    if form.is_valid():
        try:
            ask, names = read_drain(form.changes(now), found, now, with_nodes=True)
            outlook = preview_drain(actor, found, names, ask, now)
            context = departures_of(outlook_answer(actor, outlook))
        except ApplicationError as error:
            place_errors(form, error)
    context["faults"] = faults_of(form)
    return render(request, "scheduler/_departures.html", context)


def _drained(request: HttpRequest, actor: Actor, cluster: Cluster, form: DrainForm) -> bool:
    now = timezone.now()
    try:
        ask, names = read_drain(form.changes(now), cluster, now, with_nodes=True)
        drains = drain_nodes(actor, cluster, names, ask, now)
    except ApplicationError as error:
        place_errors(form, error)
        return False
    text = ngettext("{n} node is being drained.", "{n} nodes are being drained.", len(drains))
    messages.success(request, text.format(n=len(drains)))
    return True
