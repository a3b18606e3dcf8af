"""The preview of a quota change: fits or not, and which jobs it would start, delay or evict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from controlplane.common.errors import ApplicationError, ForbiddenError, UnavailableError
from queues.forms.quotas import posted_grid
from queues.models import Cluster, Job
from queues.selectors.quotas import flavor_names, flavor_uses
from queues.services.quotas import QuotaDraft, draft_quotas
from scheduler.services.whatif import QuotaPreview, preview_quotas
from tenants.access import Actor
from tenants.models import Tenant
from tenants.selectors import tenant_of
from tenants.views.shell import page


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs to which the same would happen; `hidden` of them are not for this reader."""

    title: str
    jobs: Sequence[Job]
    hidden: int

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.jobs) + self.hidden


@require_POST
@page
def quota_preview(request: HttpRequest, actor: Actor, slug: str) -> HttpResponse:
    """What the posted grid would change. Nothing is stored."""
    tenant = tenant_of(actor, slug)
    names = flavor_names()
    uses = flavor_uses(tenant)
    _grid, wanted = posted_grid(request.POST, [names[use.flavor.pk] for use in uses])
    context: dict[str, Any] = {}
    try:
        draft = draft_quotas(actor, tenant, wanted)
        context = _previewed(actor, tenant, draft)
    except UnavailableError as error:
        context["error"] = error
    except ApplicationError as error:
        context["wrong"] = _wrong(error, [str(row["flavor"]) for row in wanted["flavors"]])
    return render(request, "scheduler/_quota_preview.html", context)


def _wrong(error: ApplicationError, flavors: Sequence[str]) -> list[str]:
    """One line for each thing that does not hold; for what is beyond the actor, what to do about it."""
    lines = [f"{_place(found.pointer, flavors)}{found.message}" for found in error.errors]
    hint = [error.hint] if isinstance(error, ForbiddenError) and error.hint else []
    return [*(lines or [error.detail]), *hint]


def _place(pointer: str, flavors: Sequence[str]) -> str:
    """`/flavors/0/lending_limit` → "h100, lending limit "."""
    parts = pointer.strip("/").split("/")
    last = parts[-1].replace("_", " ")
    if not last or last.isdecimal():
        return ""
    of_flavor = parts[0] == "flavors" and len(parts) > 2 and parts[1].isdecimal()
    name = flavors[int(parts[1])] if of_flavor and int(parts[1]) < len(flavors) else ""
    return f"{name}, {last} " if name else f"{last} "


def _previewed(actor: Actor, tenant: Tenant, draft: QuotaDraft) -> dict[str, Any]:
    if not draft.flavor_ids:
        return {"nothing": True}
    clusters = Cluster.objects.filter(flavors__in=draft.flavor_ids).distinct().order_by("name")
    found = [preview_quotas(actor, tenant, cluster, draft.after) for cluster in clusters]
    over = [_over(name, flavor, gpus) for each in found for name, flavor, gpus in each.over]
    return {
        "over": over,
        "fits": not over and not any(_size(each, "evicted") for each in found),
        "groups": [
            _group(_("Starts"), "starts", found),
            _group(_("Waits longer"), "waits_longer", found),
            _group(_("Is evicted"), "evicted", found),
            _group(_("Can never start"), "never", found),
        ],
    }


def _over(name: str, flavor: str, gpus: int) -> str:
    text = _("{name} would use {gpus} GPUs of {flavor} more than it may.")
    return text.format(name=name or _("Another tenant"), gpus=gpus, flavor=flavor)


def _size(preview: QuotaPreview, group: str) -> int:
    return len(getattr(preview, group)) + preview.hidden[group]


def _group(title: str, key: str, found: Sequence[QuotaPreview]) -> Group:
    ids = [job for each in found for job in getattr(each, key)]
    jobs = Job.objects.filter(pk__in=ids[:50]).select_related("tenant").order_by("pk")
    return Group(title, list(jobs), sum(each.hidden[key] for each in found))
