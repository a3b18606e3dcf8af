"""Flavors and presets: everyone sees them, platform admins make and change them."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.db.models import Count, Sum
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from controlplane.common.errors import ApplicationError
from controlplane.common.form_errors import add_refusal
from controlplane.common.pages import seek_page
from queues.forms.catalogue import FlavorForm, PresetForm
from queues.models import Cluster, Quota
from queues.selectors.catalogue import (
    flavor_fields,
    flavor_named,
    flavors_by_full_name,
    flavors_visible_to,
    preset_fields,
    preset_named,
    presets_visible_to,
)
from queues.services.catalogue import (
    change_flavor,
    change_preset,
    create_flavor,
    create_preset,
    delete_preset,
)
from tenants.access import Actor, Right, may, require
from tenants.views.shell import Frame, page, render_page


@require_http_methods(["GET", "HEAD", "POST"])
@page
def flavor_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """All flavors; `?model=` fills the form that makes one."""
    clusters = list(Cluster.objects.order_by("name").values_list("name", flat=True))
    initial = {"model": request.GET.get("model", ""), "cluster": request.GET.get("cluster", "")}
    form = FlavorForm(request.POST or None, initial=initial, clusters=clusters or [""])
    if request.method == "POST":
        require(actor, Right.EDIT_CATALOGUE)
        if form.is_valid() and _done(form, lambda sent: create_flavor(actor, sent, timezone.now())):
            messages.success(request, _("The flavor is made; give tenants quota of it."))
            return redirect("flavor-list")
    rows = flavors_visible_to(actor).select_related("cluster")
    shown, pages = seek_page(request, rows, ("cluster_id", "name"))
    given = Quota.objects.filter(flavor__in=[flavor.pk for flavor in shown]).values("flavor")
    sums = {row["flavor"]: row for row in given.annotate(nominal=Sum("nominal"), n=Count("pk"))}
    context = {
        "flavors": [(flavor, sums.get(flavor.pk)) for flavor in shown],
        "page": pages,
        "form": form,
        "may_edit": may(actor, Right.EDIT_CATALOGUE),
    }
    return render_page(request, actor, "queues/flavors.html", context, Frame("flavors"))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def flavor_page(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """One flavor; its name and cluster stay."""
    flavor = flavor_named(actor, name)
    may_edit = may(actor, Right.EDIT_CATALOGUE)
    form = FlavorForm(request.POST or None, initial=FlavorForm.values_of(flavor_fields(flavor)))
    if request.method == "POST":
        require(actor, Right.EDIT_CATALOGUE)
        if form.is_valid() and _done(
            form, lambda sent: change_flavor(actor, flavor, sent, timezone.now())
        ):
            messages.success(request, _("The flavor is changed."))
            return redirect("flavor-list")
    _lock(form, may_edit=may_edit)
    context = {"flavor": flavor, "form": form, "may_edit": may_edit}
    return render_page(request, actor, "queues/flavor.html", context, Frame("flavors"))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def preset_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """All presets, and the form that makes one."""
    form = PresetForm(request.POST or None, flavors=sorted(flavors_by_full_name()))
    if request.method == "POST":
        require(actor, Right.EDIT_CATALOGUE)
        if form.is_valid() and _done(form, lambda sent: create_preset(actor, sent, timezone.now())):
            messages.success(request, _("The preset is made; give it to queues over the API."))
            return redirect("preset-list")
    rows = presets_visible_to(actor).select_related("flavor__cluster")
    shown, pages = seek_page(request, rows.annotate(n=Count("queues")), ("name",))
    context = {
        "presets": [
            (each, sorted(key for key, value in each.spec.items() if value)) for each in shown
        ],
        "page": pages,
        "form": form,
        "may_edit": may(actor, Right.EDIT_CATALOGUE),
    }
    return render_page(request, actor, "queues/presets.html", context, Frame("presets"))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def preset_page(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """One preset; `do=delete` takes it away unless a job names it."""
    preset = preset_named(actor, name)
    may_edit = may(actor, Right.EDIT_CATALOGUE)
    sent_form = request.POST if request.POST.get("do") != "delete" else None
    form = PresetForm(
        sent_form or None,
        initial=PresetForm.values_of(preset_fields(preset)),
        flavors=sorted(flavors_by_full_name()),
        existing=True,
    )
    if request.method == "POST":
        require(actor, Right.EDIT_CATALOGUE)
        if request.POST.get("do") == "delete":
            delete_preset(actor, preset, timezone.now())
            messages.success(request, _("The preset is gone."))
            return redirect("preset-list")
        if form.is_valid() and _done(
            form, lambda sent: change_preset(actor, preset, sent, timezone.now())
        ):
            messages.success(request, _("The preset is changed, for pods made from now on."))
            return redirect("preset-list")
    _lock(form, may_edit=may_edit)
    context = {"preset": preset, "form": form, "may_edit": may_edit}
    return render_page(request, actor, "queues/preset.html", context, Frame("presets"))


def _done(form: FlavorForm | PresetForm, act: Callable[[dict[str, Any]], Any]) -> bool:
    """Whether the service took it; its refusal stands in the form."""
    try:
        act(form.changes())
    except ApplicationError as error:
        add_refusal(form, error)
        return False
    return True


def _lock(form: Form, *, may_edit: bool) -> None:
    if not may_edit:
        for field in form.fields.values():
            field.disabled = True
