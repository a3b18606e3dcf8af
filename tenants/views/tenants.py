"""The list of tenants that one may see; platform roles reach every tenant's pages from here."""

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from controlplane.common.pages import seek_page
from tenants.access import Actor
from tenants.selectors import tenants_visible_to
from tenants.views.shell import Frame, page, render_page


@require_safe
@page
def tenant_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Tenants by name, with their cohort and how many belong to them."""
    rows = tenants_visible_to(actor).select_related("cohort")
    shown, pages = seek_page(request, rows.annotate(members=Count("memberships")), ("slug",))
    context = {"tenants": shown, "page": pages}
    return render_page(request, actor, "tenants/tenants.html", context, Frame("tenants"))
