"""The quota editor of a tenant: use and limits in one grid; save what one may, ask for the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.common.errors import ApplicationError, NotVisibleError
from queues.forms.quotas import FLAVOR_FIELDS, QuotaGrid, add_refusal, grid_of, posted_grid
from queues.models import Queue, QuotaRequest
from queues.selectors.quotas import (
    FlavorUse,
    flavor_names,
    flavor_uses,
    quota_answer,
    quota_requests_visible_to,
)
from queues.services.quotas import ask_for_quota, decide_quota_request, set_quotas
from tenants.access import Actor, Right, may, require
from tenants.models import Tenant
from tenants.selectors import memberships_visible_to, tenant_of
from tenants.views.shell import Frame, page, render_page

REQUESTS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of the grid. changed: it differs from what holds now."""

    key: str
    value: str
    wrong: str
    label: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class FlavorRow:
    """A flavor's use, and its cells in the order of FLAVOR_FIELDS."""

    name: str
    use: FlavorUse
    cells: Sequence[Cell]

    @property
    def scale(self) -> int:
        """What the bar's whole width stands for: the ceiling, or twice nominal where there is none."""
        return max(self.use.ceiling or self.use.quota.nominal * 2, 1)

    @property
    def own(self) -> int:
        """GPUs in use within the tenant's own share."""
        return max(0, self.use.used + self.use.outside - self.use.borrowed)


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A queue's or a user's limits, one cell for each flavor."""

    name: str
    cells: Sequence[Cell]


@require_http_methods(["GET", "HEAD", "POST"])
@page
def quota_page(request: HttpRequest, actor: Actor, slug: str) -> HttpResponse:
    """The grid; POST saves it (`do=save`) or asks a platform admin for it (`do=ask`)."""
    tenant = tenant_of(actor, slug)
    require(actor, Right.VIEW_QUOTAS, tenant)
    uses = flavor_uses(tenant)
    names = flavor_names()
    answer = quota_answer(tenant)
    holds = grid_of(answer)
    grid = holds
    if request.method == "POST":
        grid, wanted = posted_grid(request.POST, [names[use.flavor.pk] for use in uses])
        if _done(request, actor, tenant, grid, wanted):
            return redirect("quotas", slug)
    context = {
        "rows": [_flavor_row(use, names[use.flavor.pk], grid, holds) for use in uses],
        "queues": _queue_rows(tenant, uses, names, grid, holds),
        "users": _user_rows(answer, uses, names, grid, holds),
        "flavors": [names[use.flavor.pk] for use in uses],
        "missing": sorted(set(names.values()) - {names[use.flavor.pk] for use in uses}),
        "people": _people(actor, tenant),
        "grid": grid,
        "version": tenant.quota_version,
        "cohort": answer["cohort"],
        "may_divide": may(actor, Right.DIVIDE_QUOTA, tenant),
        "may_set": may(actor, Right.SET_NOMINAL_QUOTA, tenant),
        "may_decide": may(actor, Right.DECIDE_QUOTA_REQUESTS, tenant),
        "requests": _requests(actor, tenant),
    }
    frame = Frame("quotas", tenant=tenant, topics=(f"quotas:{slug}",))
    return render_page(request, actor, "queues/quotas.html", context, frame)


def _done(
    request: HttpRequest, actor: Actor, tenant: Tenant, grid: QuotaGrid, wanted: dict[str, Any]
) -> bool:
    """Save or ask; False with the refusals in the grid."""
    now = timezone.now()
    version = request.POST.get("version", "")
    seen = int(version) if version.isascii() and version.isdecimal() else None
    try:
        if request.POST.get("do") == "ask":
            ask_for_quota(actor, tenant, wanted, request.POST.get("comment", "")[:4000], now)
            messages.success(request, _("Your request is with the platform admins."))
        else:
            set_quotas(actor, tenant, wanted, seen, now)
            messages.success(request, _("The quotas are saved."))
    except ApplicationError as error:
        add_refusal(grid, wanted, error)
        return False
    return True


def _flavor_row(use: FlavorUse, name: str, grid: QuotaGrid, holds: QuotaGrid) -> FlavorRow:
    words = {
        "nominal": _("nominal"),
        "borrowing_limit": _("borrowing limit"),
        "lending_limit": _("lending limit"),
        "weight": _("weight"),
        "headroom": _("headroom"),
    }
    cells = [
        _cell(f"f:{name}:{each}", f"{name}: {words[each]}", grid, holds) for each in FLAVOR_FIELDS
    ]
    return FlavorRow(name, use, cells)


def _cell(key: str, label: str, grid: QuotaGrid, holds: QuotaGrid) -> Cell:
    value = grid.values.get(key, "")
    return Cell(key, value, grid.wrong.get(key, ""), label, value != holds.values.get(key, ""))


def _queue_rows(
    tenant: Tenant,
    uses: Sequence[FlavorUse],
    names: Mapping[int, str],
    grid: QuotaGrid,
    holds: QuotaGrid,
) -> list[LimitRow]:
    queues = Queue.objects.filter(tenant=tenant).order_by("name").values_list("name", flat=True)
    flavors = [names[use.flavor.pk] for use in uses]
    return [_limit_row("q", queue, flavors, grid, holds) for queue in queues[:200]]


def _user_rows(
    answer: Mapping[str, Any],
    uses: Sequence[FlavorUse],
    names: Mapping[int, str],
    grid: QuotaGrid,
    holds: QuotaGrid,
) -> list[LimitRow]:
    flavors = [names[use.flavor.pk] for use in uses]
    posted = [key.split(":", 1)[1].rpartition(":")[0] for key in grid.values if key[:2] == "u:"]
    users = sorted({*(row["user"] for row in answer["users"]), *posted})
    return [_limit_row("u", user, flavors, grid, holds) for user in users[:200]]


def _limit_row(
    kind: str, name: str, flavors: Sequence[str], grid: QuotaGrid, holds: QuotaGrid
) -> LimitRow:
    return LimitRow(
        name, [_cell(f"{kind}:{name}:{f}", f"{name}: {f}", grid, holds) for f in flavors]
    )


def _people(actor: Actor, tenant: Tenant) -> list[str]:
    rows = memberships_visible_to(actor).filter(tenant=tenant).order_by("user__username")
    return list(rows.values_list("user__username", flat=True)[:500])


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """A quota request with its changes in words."""

    row: QuotaRequest
    changes: Sequence[str]


def _requests(actor: Actor, tenant: Tenant) -> list[ShownRequest]:
    rows = quota_requests_visible_to(actor).filter(tenant=tenant)
    found = rows.select_related("asked_by", "decided_by").order_by("-pk")[:REQUESTS_SHOWN]
    return [ShownRequest(row, _changes(row.changes)) for row in found]


def _changes(wanted: Mapping[str, Any]) -> list[str]:
    """What a change set asks for, flavor by flavor."""
    said = []
    for row in wanted.get("flavors", []):
        numbers = ", ".join(
            f"{key.replace('_', ' ')} {'–' if value is None else value}"
            for key, value in row.items()
            if key != "flavor"
        )
        said.append(f"{row.get('flavor')}: {numbers}")
    return said


@require_POST
@page
def decide_request(request: HttpRequest, actor: Actor, slug: str, pk: int) -> HttpResponse:
    """A platform admin accepts or refuses."""
    tenant = tenant_of(actor, slug)
    rows = quota_requests_visible_to(actor).filter(tenant=tenant, pk=pk)
    found = rows.select_related("tenant").first()
    if found is None:
        raise NotVisibleError(_("There is no such request."))
    accept = request.POST.get("do") == "accept"
    comment = request.POST.get("comment", "")[:4000]
    try:
        decide_quota_request(actor, found, accept=accept, comment=comment, now=timezone.now())
        messages.success(request, _("The request is decided."))
    except ApplicationError as error:
        messages.error(request, error.sentence)
    return redirect("quotas", slug)
