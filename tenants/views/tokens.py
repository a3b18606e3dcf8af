"""API tokens: one's own everywhere, and those of a tenant for its admins. A token's text is shown once."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.common.errors import ApplicationError, NotVisibleError
from controlplane.common.form_errors import add_refusal
from controlplane.common.pages import seek_page
from tenants.access import SCOPES, Actor, Right, require
from tenants.forms import TokenForm
from tenants.models import Tenant
from tenants.selectors import memberships_visible_to, tenant_of, tokens_visible_to
from tenants.services.tokens import NewToken, create_token, revoke_token
from tenants.views.shell import Frame, page, render_page


@require_safe
@page
def own_tokens(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The tokens that act as oneself."""
    rows = tokens_visible_to(actor).filter(user=actor.user, revoked_at__isnull=True)
    shown, pages = seek_page(request, rows.select_related("tenant", "user"), ("-pk",))
    context = {"tokens": shown, "page": pages, "now": timezone.now(), "scope_count": len(SCOPES)}
    return render_page(request, actor, "tenants/own_tokens.html", context, Frame("own-tokens"))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def tenant_tokens(request: HttpRequest, actor: Actor, slug: str) -> HttpResponse:
    """A tenant's tokens, the form that makes one, and once the text of the one just made."""
    tenant = tenant_of(actor, slug)
    require(actor, Right.MANAGE_TOKENS, tenant)
    form = TokenForm(request.POST or None, usernames=_usernames(actor, tenant))
    made = ""
    if request.method == "POST" and form.is_valid():
        made = _made(actor, tenant, form)
    rows = tokens_visible_to(actor).filter(tenant=tenant, revoked_at__isnull=True)
    shown, pages = seek_page(request, rows.select_related("user", "created_by"), ("-pk",))
    context = {
        "tokens": shown,
        "page": pages,
        "form": TokenForm(usernames=_usernames(actor, tenant)) if made else form,
        "made": made,
        "scope_count": len(SCOPES),
        "now": timezone.now(),
    }
    answer = render_page(
        request, actor, "tenants/tokens.html", context, Frame("tokens", tenant=tenant)
    )
    # The text of a token belongs in no cache, the browser's included.
    answer["Cache-Control"] = "no-store"
    return answer


def _usernames(actor: Actor, tenant: Tenant) -> list[str]:
    rows = memberships_visible_to(actor).filter(tenant=tenant, user__is_active=True)
    return list(rows.order_by("user__username").values_list("user__username", flat=True)[:500])


def _made(actor: Actor, tenant: Tenant, form: TokenForm) -> str:
    """The new token's text; empty when it was refused, with the reason in the form."""
    sent = form.cleaned_data
    rows = memberships_visible_to(actor).filter(tenant=tenant, user__username=sent["user"])
    member = rows.select_related("user").first()
    if member is None:
        form.add_error("user", _("must be a member of the tenant"))
        return ""
    wanted = NewToken(member.user, tenant, sent["name"], sent["scopes"], int(sent["days"]))
    try:
        return create_token(actor, wanted, timezone.now())[1]
    except ApplicationError as error:
        add_refusal(form, error)
        return ""


@require_POST
@page
def end_token(request: HttpRequest, actor: Actor, pk: int) -> HttpResponse:
    """Revoke one that the actor may see."""
    found = tokens_visible_to(actor).filter(pk=pk).select_related("tenant", "user").first()
    if found is None:
        raise NotVisibleError(_("There is no such token."))
    revoke_token(actor, found, timezone.now())
    messages.success(request, _("Token {name} is revoked.").format(name=found.name))
    there = request.POST.get("next", "")
    ours = url_has_allowed_host_and_scheme(there, allowed_hosts={request.get_host()})
    return redirect(there if ours else "token-list")
