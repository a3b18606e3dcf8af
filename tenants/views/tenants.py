"""The list of tenants that one may see, and for platform admins the form that makes one."""

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.common import log
from controlplane.common.errors import ApplicationError, NotVisibleError
from controlplane.common.form_errors import add_refusal
from controlplane.common.pages import seek_page
from tenants.access import Actor, Right, may, require
from tenants.forms import TenantForm
from tenants.models import Cohort, CohortOrder
from tenants.selectors import cohorts_visible_to, tenants_visible_to
from tenants.services.tenants import TenantFields, create_cohort, create_tenant, order_cohort
from tenants.views.shell import Frame, page, render_page


@require_http_methods(["GET", "HEAD", "POST"])
@page
def tenant_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Tenants by name, with their cohort and how many belong to them."""
    form = TenantForm(request.POST or None)
    if request.method == "POST":
        require(actor, Right.MANAGE_TENANTS)
        if form.is_valid() and _made(request, actor, form):
            return redirect("quotas", form.cleaned_data["slug"])
    rows = tenants_visible_to(actor).select_related("cohort")
    shown, pages = seek_page(request, rows.annotate(members=Count("memberships")), ("slug",))
    context = {
        "tenants": shown,
        "page": pages,
        "form": form,
        "cohorts": list(cohorts_visible_to(actor).order_by("name")),
        "orders": CohortOrder.choices,
        "may_manage": may(actor, Right.MANAGE_TENANTS),
    }
    return render_page(request, actor, "tenants/tenants.html", context, Frame("tenants"))


@require_POST
@page
def set_order(request: HttpRequest, actor: Actor, pk: int) -> HttpResponse:
    """How a cohort's tenants take turns."""
    require(actor, Right.MANAGE_TENANTS)
    found = cohorts_visible_to(actor).filter(pk=pk).first()
    if found is None:
        raise NotVisibleError(_("There is no such cohort."))
    order_cohort(actor, found, request.POST.get("order", ""), timezone.now())
    messages.success(request, _("Cohort {name} is changed.").format(name=found.name))
    return redirect("tenant-list")


def _made(request: HttpRequest, actor: Actor, form: TenantForm) -> bool:
    """The tenant, and its cohort where that is new; both or neither."""
    sent, now = form.cleaned_data, timezone.now()
    try:
        with log.writing():
            if sent["cohort"] and not Cohort.objects.filter(name=sent["cohort"]).exists():
                create_cohort(actor, sent["cohort"], "", now)
            create_tenant(actor, sent["slug"], TenantFields(sent["name"], sent["cohort"]), now)
    except ApplicationError as error:
        add_refusal(form, error)
        return False
    text = _("Tenant {slug} is made. Give it quota, a queue and an admin.")
    messages.success(request, text.format(slug=sent["slug"]))
    return True
