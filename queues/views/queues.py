"""A tenant's queues: what waits and runs in each, and their settings."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from controlplane.common.errors import ApplicationError, FieldError
from controlplane.common.form_errors import add_refusal
from controlplane.common.pages import seek_page
from queues.forms.queue import FIELD_OF, NewQueueForm, QueueForm
from queues.models import Cluster, Flavor, Preset, Queue
from queues.selectors.queues import (
    fields_of,
    queue_answers,
    queue_of,
    queues_visible_to,
    with_queue_parts,
)
from queues.services.queues import change_queue, create_queue
from tenants.access import Actor, Right, may, require
from tenants.models import Tenant
from tenants.selectors import tenant_of
from tenants.views.shell import Frame, page, render_page


@require_http_methods(["GET", "HEAD", "POST"])
@page
def queue_list(request: HttpRequest, actor: Actor, slug: str) -> HttpResponse:
    """The queues, and the form that makes one."""
    tenant = tenant_of(actor, slug)
    require(actor, Right.VIEW_QUOTAS, tenant)
    form = NewQueueForm(
        request.POST or None,
        clusters=list(Cluster.objects.order_by("name").values_list("name", flat=True)),
        flavors=list(Flavor.objects.order_by("name").values_list("name", flat=True)),
    )
    if request.method == "POST" and form.is_valid():
        made = _made(request, actor, tenant, form)
        if made is not None:
            return redirect("queue", slug, made.name)
    rows = with_queue_parts(queues_visible_to(actor).filter(tenant=tenant))
    shown, pages = seek_page(request, rows, ("name", "pk"))
    context = {
        "queues": list(zip(shown, queue_answers(shown), strict=True)),
        "page": pages,
        "form": form,
        "may_manage": may(actor, Right.MANAGE_QUEUES, tenant),
    }
    frame = Frame("queues", tenant=tenant)
    return render_page(request, actor, "queues/queues.html", context, frame)


def _made(request: HttpRequest, actor: Actor, tenant: Tenant, form: NewQueueForm) -> Queue | None:
    try:
        queue = create_queue(actor, tenant, form.changes(), timezone.now())
    except ApplicationError as error:
        add_refusal(form, error)
        return None
    messages.success(
        request, _("Queue {name} is made; open it when it is ready.").format(name=queue.name)
    )
    return queue


@require_http_methods(["GET", "HEAD", "POST"])
@page
def queue_page(request: HttpRequest, actor: Actor, slug: str, name: str) -> HttpResponse:
    """One queue's settings, to change for those who may."""
    tenant = tenant_of(actor, slug)
    require(actor, Right.VIEW_QUOTAS, tenant)
    queue = queue_of(actor, f"{slug}.{name}")
    may_manage = may(actor, Right.MANAGE_QUEUES, tenant)
    may_give = may(actor, Right.EDIT_CATALOGUE)
    form = QueueForm(
        request.POST or None,
        initial=QueueForm.values_of(fields_of(queue)),
        presets=list(Preset.objects.order_by("name").values_list("name", flat=True))
        if may_give
        else (),
    )
    if request.method == "POST" and form.is_valid() and _changed(request, actor, queue, form):
        return redirect("queue", slug, name)
    if not may_manage:
        for field in form.fields.values():
            field.disabled = True
    context = {
        "queue": queue,
        "answer": queue_answers([queue])[0],
        "form": form,
        "may_manage": may_manage,
        "presets": [preset.name for preset in queue.presets.all()],
    }
    frame = Frame("queues", tenant=tenant)
    return render_page(request, actor, "queues/queue.html", context, frame)


def _changed(request: HttpRequest, actor: Actor, queue: Queue, form: QueueForm) -> bool:
    version = request.POST.get("version", "")
    seen = int(version) if version.isascii() and version.isdecimal() else None
    try:
        change_queue(actor, queue, form.changes(), seen, timezone.now())
    except ApplicationError as error:
        add_refusal(form, _at_fields(error))
        return False
    messages.success(request, _("The settings are saved."))
    return True


def _at_fields(error: ApplicationError) -> ApplicationError:
    """The same refusal with the contract's names changed into those of the form's fields."""
    error.errors = tuple(
        FieldError(_pointer(found.pointer), found.code, found.message) for found in error.errors
    )
    return error


def _pointer(pointer: str) -> str:
    first, mark, rest = pointer.strip("/").partition("/")
    return f"/{FIELD_OF.get(first, first)}{mark}{rest}"
