"""Webhook endpoints, a tenant's and the platform's, how their messages fare; and what one hears of by mail."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.common.errors import ApplicationError, NotVisibleError
from controlplane.common.form_errors import add_refusal
from controlplane.common.pages import seek_page
from tenants.access import Actor, Right, require
from tenants.forms import MailForm, WebhookForm
from tenants.models import OutboxMessage, Tenant, WebhookEndpoint
from tenants.selectors import tenant_of, webhooks_visible_to
from tenants.services.notices import choose_mail, mail_choice
from tenants.services.webhooks import (
    EndpointFields,
    change_endpoint,
    create_endpoint,
    remove_endpoint,
    renew_secret,
    try_endpoint,
)
from tenants.views.shell import Frame, page, render_page

DELIVERIES_SHOWN = 50


@require_http_methods(["GET", "HEAD", "POST"])
@page
def tenant_webhooks(request: HttpRequest, actor: Actor, slug: str) -> HttpResponse:
    """A tenant's endpoints, and the form that registers one."""
    return _list(request, actor, tenant_of(actor, slug))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def platform_webhooks(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The platform's own."""
    return _list(request, actor, None)


def _list(request: HttpRequest, actor: Actor, tenant: Tenant | None) -> HttpResponse:
    require(actor, Right.MANAGE_WEBHOOKS, tenant)
    form = WebhookForm(request.POST or None)
    secret = ""
    if request.method == "POST" and form.is_valid():
        secret = _made(actor, tenant, form)
    rows = webhooks_visible_to(actor).filter(tenant=tenant)
    shown, pages = seek_page(request, rows, ("-pk",))
    context = {
        "endpoints": shown,
        "page": pages,
        "form": WebhookForm() if secret else form,
        "secret": secret,
    }
    key = "webhooks" if tenant else "platform-webhooks"
    frame = Frame(key, tenant=tenant)
    answer = render_page(request, actor, "tenants/webhooks.html", context, frame)
    # The secret is shown this once, and belongs in no cache.
    answer["Cache-Control"] = "no-store"
    return answer


def _made(actor: Actor, tenant: Tenant | None, form: WebhookForm) -> str:
    """The new endpoint's secret; empty when it was refused, with the reason in the form."""
    try:
        return create_endpoint(actor, tenant, _fields(form), timezone.now())[1]
    except ApplicationError as error:
        add_refusal(form, error)
        return ""


def _fields(form: WebhookForm) -> EndpointFields:
    sent = form.cleaned_data
    kinds = [sent["kinds"]] if sent["kinds"] else []
    return EndpointFields(sent["url"], kinds, sent["description"], sent.get("active", True))


@require_http_methods(["GET", "HEAD", "POST"])
@page
def webhook_page(request: HttpRequest, actor: Actor, pk: int) -> HttpResponse:
    """One endpoint: its settings, its last messages."""
    found = _endpoint_of(actor, pk)
    form = WebhookForm(request.POST or None, initial=WebhookForm.values_of(found), existing=True)
    if request.method == "POST" and form.is_valid():
        try:
            change_endpoint(actor, found, _fields(form), timezone.now())
        except ApplicationError as error:
            add_refusal(form, error)
        else:
            messages.success(request, _("The endpoint is changed."))
            return redirect("webhook", pk)
    return _one(request, actor, found, form)


def _one(
    request: HttpRequest,
    actor: Actor,
    found: WebhookEndpoint,
    form: WebhookForm,
    secret: str = "",
) -> HttpResponse:
    sent = OutboxMessage.objects.filter(endpoint=found).order_by("-pk")[:DELIVERIES_SHOWN]
    context = {"endpoint": found, "form": form, "deliveries": list(sent), "secret": secret}
    frame = Frame("webhooks" if found.tenant else "platform-webhooks", tenant=found.tenant)
    answer = render_page(request, actor, "tenants/webhook.html", context, frame)
    answer["Cache-Control"] = "no-store"
    return answer


def _endpoint_of(actor: Actor, pk: int) -> WebhookEndpoint:
    found = webhooks_visible_to(actor).filter(pk=pk).first()
    if found is None:
        raise NotVisibleError(_("There is no such endpoint."))
    return found


@require_POST
@page
def act_on_webhook(request: HttpRequest, actor: Actor, pk: int) -> HttpResponse:
    """`do=try` sends a test, `do=renew` makes another secret, `do=remove` forgets the endpoint."""
    found, now = _endpoint_of(actor, pk), timezone.now()
    what = request.POST.get("do", "")
    if what == "renew":
        changed, secret = renew_secret(actor, found, now)
        form = WebhookForm(initial=WebhookForm.values_of(changed), existing=True)
        return _one(request, actor, changed, form, secret)
    if what == "remove":
        tenant = found.tenant
        remove_endpoint(actor, found, now)
        messages.success(request, _("The endpoint is forgotten."))
        return redirect("webhook-list", tenant.slug) if tenant else redirect("platform-webhooks")
    try_endpoint(actor, found, now)
    messages.success(request, _("A test message is on its way; it appears below."))
    return redirect("webhook", pk)


@require_http_methods(["GET", "HEAD", "POST"])
@page
def own_notices(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Which alerts one hears of by mail."""
    form = MailForm(request.POST or None, initial={"alerts": mail_choice(actor.user)})
    if request.method == "POST" and form.is_valid():
        choose_mail(actor.user, form.cleaned_data["alerts"])
        messages.success(request, _("Kept."))
        return redirect("own-notices")
    context = {"form": form, "email": actor.user.email}
    return render_page(request, actor, "tenants/notices.html", context, Frame("own-notices"))
