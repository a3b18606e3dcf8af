"""Who belongs to a tenant: seen by its members, changed by its admins."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.common.errors import ApplicationError, NotVisibleError
from controlplane.common.form_errors import add_refusal
from controlplane.common.pages import seek_page
from tenants.access import Actor, Right, may, require
from tenants.forms import MemberForm
from tenants.models import Membership, Tenant, TenantRole
from tenants.selectors import memberships_visible_to, tenant_of
from tenants.services.members import add_member, change_role, remove_member
from tenants.views.shell import Frame, page, render_page


@require_http_methods(["GET", "HEAD", "POST"])
@page
def member_list(request: HttpRequest, actor: Actor, slug: str) -> HttpResponse:
    """The members, and the form that adds one."""
    tenant = tenant_of(actor, slug)
    require(actor, Right.VIEW_MEMBERS, tenant)
    form = MemberForm(request.POST or None)
    if request.method == "POST" and form.is_valid() and _added(request, actor, tenant, form):
        return redirect("member-list", slug)
    rows = memberships_visible_to(actor).filter(tenant=tenant).select_related("user")
    shown, pages = seek_page(request, rows, ("pk",))
    context = {
        "members": shown,
        "page": pages,
        "form": form,
        "roles": TenantRole.choices,
        "may_manage": may(actor, Right.MANAGE_MEMBERS, tenant),
    }
    return render_page(
        request, actor, "tenants/members.html", context, Frame("members", tenant=tenant)
    )


def _added(request: HttpRequest, actor: Actor, tenant: Tenant, form: MemberForm) -> bool:
    name, role = form.cleaned_data["user"], form.cleaned_data["role"]
    try:
        add_member(actor, tenant, name, role, timezone.now())
    except ApplicationError as error:
        add_refusal(form, error)
        return False
    messages.success(request, _("{user} is a member now.").format(user=name))
    return True


@require_POST
@page
def change_member(request: HttpRequest, actor: Actor, slug: str, pk: int) -> HttpResponse:
    """Another role, or the end of the membership when `role` is empty."""
    tenant = tenant_of(actor, slug)
    member = _member(actor, tenant, pk)
    role, name = request.POST.get("role", ""), member.user.username
    try:
        if role:
            change_role(actor, member, role, timezone.now())
            messages.success(request, _("The role of {user} is changed.").format(user=name))
        else:
            remove_member(actor, member, timezone.now())
            messages.success(request, _("{user} is no longer a member.").format(user=name))
    except ApplicationError as error:
        messages.error(request, error.sentence)
    return redirect("member-list", slug)


def _member(actor: Actor, tenant: Tenant, pk: int) -> Membership:
    rows = memberships_visible_to(actor).filter(tenant=tenant, pk=pk)
    found = rows.select_related("user", "tenant").first()
    if found is None:
        raise NotVisibleError(_("There is no such member."))
    return found
