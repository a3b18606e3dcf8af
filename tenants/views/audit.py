"""Who did what, when, from where and why; for auditors, platform admins, and a tenant's admins."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from controlplane.common.errors import ForbiddenError
from controlplane.common.pages import seek_page
from tenants.access import Actor, Right, may
from tenants.models import AuditEntry
from tenants.selectors import audit_visible_to, tenants_visible_to
from tenants.views.shell import Frame, page, render_page

LONGEST_VALUE = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """One field before and after; empty where it was not there."""

    field: str
    before: str
    after: str


@require_safe
@page
def audit_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Newest first; `?actor=&action=&object=&tenant=` narrow it."""
    if not may_audit(actor):
        raise ForbiddenError(
            _("You may not see the audit trail."),
            hint=_("Auditors, platform admins and admins of a tenant may."),
        )
    filters = {
        key: request.GET.get(key, "").strip()[:200]
        for key in ("actor", "action", "object", "tenant")
    }
    rows = audit_visible_to(actor).select_related("tenant")
    for key, column in COLUMNS.items():
        if filters[key]:
            rows = rows.filter(**{column: filters[key]})
    shown, pages = seek_page(request, rows, ("-pk",))
    context = {
        "entries": [(entry, differences(entry)) for entry in shown],
        "page": pages,
        "filters": filters,
        "filtered": any(filters.values()),
        "tenants": list(tenants_visible_to(actor).order_by("slug").values_list("slug", flat=True)),
    }
    return render_page(request, actor, "tenants/audit.html", context, Frame("audit"))


COLUMNS: Mapping[str, str] = {
    "actor": "actor",
    "action": "action__startswith",
    "object": "object_name__icontains",
    "tenant": "tenant__slug",
}


def may_audit(actor: Actor) -> bool:
    """Whether the actor sees any entry at all."""
    if may(actor, Right.VIEW_AUDIT):
        return True
    tenants = tenants_visible_to(actor).filter(pk__in=actor.roles)
    return any(may(actor, Right.VIEW_AUDIT, tenant) for tenant in tenants)


def differences(entry: AuditEntry) -> list[Difference]:
    """What changed, field by field; what stayed is left out, and what a new thing has nothing of."""
    before, after = entry.before or {}, entry.after or {}
    found = [
        Difference(_name(name), _text(before.get(name)), _text(after.get(name)))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    return [each for each in found if each.before or each.after]


def _name(field: str) -> str:
    return field.replace("_", " ")


def _text(value: Any) -> str:
    """A value as people read it: lists and mappings in words, what is empty left out."""
    text = _said(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _said(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, Mapping):
        parts = [(_name(str(key)), _said(each)) for key, each in value.items()]
        return ", ".join(f"{key} {text}" for key, text in parts if text)
    if isinstance(value, list):
        return ", ".join(_said(each) for each in value)
    return str(value)
