"""Accounts and their roles on the platform; for platform admins."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.common import log
from controlplane.common.errors import ApplicationError, NotVisibleError
from controlplane.common.form_errors import add_refusal
from controlplane.common.pages import seek_page
from tenants.access import Actor, Right, require
from tenants.forms import PersonForm
from tenants.models import PlatformRole
from tenants.selectors import users_visible_to
from tenants.services.users import close_account, create_user, set_platform_role
from tenants.views.shell import Frame, page, render_page


@require_http_methods(["GET", "HEAD", "POST"])
@page
def people_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Every account, and the form that makes one. `?search=` is part of a login name."""
    require(actor, Right.MANAGE_USERS)
    form = PersonForm(request.POST or None)
    if request.method == "POST" and form.is_valid() and _made(request, actor, form):
        return redirect("people")
    search = request.GET.get("search", "").strip()[:150]
    rows = users_visible_to(actor).prefetch_related("memberships__tenant")
    if search:
        rows = rows.filter(username__icontains=search)
    shown, pages = seek_page(request, rows, ("username",))
    context = {
        "people": shown,
        "page": pages,
        "form": form,
        "search": search,
        "roles": PlatformRole.choices,
    }
    return render_page(request, actor, "tenants/people.html", context, Frame("people"))


def _made(request: HttpRequest, actor: Actor, form: PersonForm) -> bool:
    sent, now = form.cleaned_data, timezone.now()
    try:
        with log.writing():
            user = create_user(actor, sent["username"], sent["password"], now, email=sent["email"])
            if sent["platform_role"]:
                set_platform_role(actor, user, sent["platform_role"], now)
    except ApplicationError as error:
        add_refusal(form, error)
        return False
    messages.success(request, _("The account {name} is made.").format(name=user.get_username()))
    return True


@require_POST
@page
def change_person(request: HttpRequest, actor: Actor, pk: int) -> HttpResponse:
    """Another role on the platform, or (`do=close`) the end of the account."""
    require(actor, Right.MANAGE_USERS)
    found = users_visible_to(actor).filter(pk=pk).first()
    if found is None:
        raise NotVisibleError(_("There is no such account."))
    try:
        if request.POST.get("do") == "close":
            close_account(actor, found, timezone.now())
        else:
            set_platform_role(actor, found, request.POST.get("role", ""), timezone.now())
        messages.success(request, _("The account {name} is changed.").format(name=found))
    except ApplicationError as error:
        messages.error(request, error.sentence)
    return redirect("people")
