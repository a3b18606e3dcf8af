"""A tenant's secrets: names for those who may use them, values for nobody."""

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
from tenants.forms import SecretForm
from tenants.models import Tenant
from tenants.selectors import secrets_visible_to, tenant_of
from tenants.services.secrets import remove_secret, set_secret
from tenants.views.shell import Frame, page, render_page


@require_http_methods(["GET", "HEAD", "POST"])
@page
def secret_list(request: HttpRequest, actor: Actor, slug: str) -> HttpResponse:
    """The names, and the form that writes one."""
    tenant = tenant_of(actor, slug)
    require(actor, Right.VIEW_SECRETS, tenant)
    form = SecretForm(request.POST or None)
    if request.method == "POST" and form.is_valid() and _written(request, actor, tenant, form):
        return redirect("secret-list", slug)
    rows = secrets_visible_to(actor).filter(tenant=tenant).select_related("created_by")
    shown, pages = seek_page(request, rows, ("name", "pk"))
    context = {
        "secrets": shown,
        "page": pages,
        "form": form,
        "may_manage": may(actor, Right.MANAGE_SECRETS, tenant),
    }
    return render_page(
        request, actor, "tenants/secrets.html", context, Frame("secrets", tenant=tenant)
    )


def _written(request: HttpRequest, actor: Actor, tenant: Tenant, form: SecretForm) -> bool:
    sent = form.cleaned_data
    try:
        secret, is_new = set_secret(
            actor,
            tenant,
            name=sent["name"],
            value=sent["value"],
            kind=sent["kind"],
            now=timezone.now(),
        )
    except ApplicationError as error:
        add_refusal(form, error)
        return False
    said = _("Secret {name} is stored.") if is_new else _("Secret {name} has a new value.")
    messages.success(request, said.format(name=secret.name))
    return True


@require_POST
@page
def forget_secret(request: HttpRequest, actor: Actor, slug: str, pk: int) -> HttpResponse:
    """Remove one."""
    tenant = tenant_of(actor, slug)
    found = secrets_visible_to(actor).filter(tenant=tenant, pk=pk).select_related("tenant").first()
    if found is None:
        raise NotVisibleError(_("There is no such secret."))
    name = found.name
    remove_secret(actor, found, timezone.now())
    messages.success(request, _("Secret {name} is removed.").format(name=name))
    return redirect("secret-list", slug)
