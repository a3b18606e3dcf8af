"""Tenants and cohorts: made and altered by platform admins."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, ErrorCollector
from tenants.access import Actor, Right, require
from tenants.models import SLUG_PATTERN, Cohort, CohortOrder, Tenant
from tenants.services.audit import Change, write_audit
from tenants.services.checks import check_pattern, check_text

HIGHEST_PRIORITY = 1000


@dataclass(frozen=True, slots=True)
class TenantFields:
    """What a platform admin says of a tenant. cohort: a name; empty for none."""

    name: str
    cohort: str = ""
    lowest_priority: int = 0
    highest_priority: int = HIGHEST_PRIORITY
    log_retention_days: int = 14


def fields_of(tenant: Tenant) -> TenantFields:
    """A tenant's fields as they are."""
    return TenantFields(
        name=tenant.name,
        cohort=tenant.cohort.name if tenant.cohort else "",
        lowest_priority=tenant.lowest_priority,
        highest_priority=tenant.highest_priority,
        log_retention_days=tenant.log_retention_days,
    )


def create_tenant(actor: Actor, slug: str, fields: TenantFields, now: datetime) -> Tenant:
    """A new tenant, without quota, queues or members. Raises InvalidError, ConflictError (slug in use)."""
    require(actor, Right.MANAGE_TENANTS)
    errors = ErrorCollector()
    check_pattern(errors, "/slug", slug, SLUG_PATTERN)
    cohort = _checked(fields, errors)
    with log.writing():
        try:
            with transaction.atomic():
                tenant = Tenant.objects.create(
                    slug=slug, created_at=now, **_columns(fields, cohort)
                )
        except IntegrityError:
            raise ConflictError(
                _("There is a tenant “{slug}” already.").format(slug=slug), code="slug_in_use"
            ) from None
        _note(actor, tenant, "created", now, {}, asdict(fields))
    return tenant


def change_tenant(actor: Actor, tenant: Tenant, changes: dict[str, Any], now: datetime) -> Tenant:
    """Alter what `TenantFields` names. A tenant's admin may set `log_retention_days`; the rest is the platform's."""
    own = set(changes) <= {"log_retention_days"}
    require(actor, Right.MANAGE_QUEUES if own else Right.MANAGE_TENANTS, tenant)
    with log.writing():
        locked = Tenant.objects.select_for_update().get(pk=tenant.pk)
        before = fields_of(locked)
        after = replace(before, **changes)
        cohort = _checked(after, ErrorCollector())
        for column, value in _columns(after, cohort).items():
            setattr(locked, column, value)
        locked.save()
        differing = {k: v for k, v in asdict(after).items() if v != getattr(before, k)}
        if differing:
            _note(
                actor, locked, "changed", now, {k: getattr(before, k) for k in differing}, differing
            )
    return locked


def create_cohort(actor: Actor, name: str, parent: str, now: datetime) -> Cohort:
    """A new cohort, under another one where `parent` names it."""
    require(actor, Right.MANAGE_TENANTS)
    errors = ErrorCollector()
    check_pattern(errors, "/name", name, SLUG_PATTERN)
    above = _cohort_named(parent, "/parent", errors)
    errors.raise_if_any()
    with log.writing():
        try:
            with transaction.atomic():
                cohort = Cohort.objects.create(name=name, parent=above)
        except IntegrityError:
            raise ConflictError(
                _("There is a cohort “{name}” already.").format(name=name), code="name_in_use"
            ) from None
        _note_cohort(actor, cohort, "created", now)
    return cohort


def move_cohort(actor: Actor, cohort: Cohort, parent: str, now: datetime) -> Cohort:
    """Hang a cohort under another one, or under none. Raises InvalidError for a circle."""
    require(actor, Right.MANAGE_TENANTS)
    errors = ErrorCollector()
    above = _cohort_named(parent, "/parent", errors)
    with log.writing():
        list(Cohort.objects.select_for_update().order_by("pk"))  # two moves together make no circle
        if above is not None and cohort.pk in _ancestry(above):
            errors.add("/parent", "circle", _("a cohort cannot stand under itself"))
        errors.raise_if_any()
        cohort.parent = above
        cohort.save(update_fields=["parent"])
        _note_cohort(actor, cohort, "changed", now)
    return cohort


def order_cohort(actor: Actor, cohort: Cohort, order: str, now: datetime) -> Cohort:
    """Choose how the cohort's tenants take turns: "classic" or "fair_share". Raises InvalidError for another."""
    require(actor, Right.MANAGE_TENANTS)
    errors = ErrorCollector()
    if order not in CohortOrder.values:
        errors.add("/order", "unknown_order", _("must be classic or fair_share"))
    errors.raise_if_any()
    with log.writing():
        cohort.order = order
        cohort.save(update_fields=["order"])
        _note_cohort(actor, cohort, "changed", now)
    return cohort


def _ancestry(cohort: Cohort) -> set[int]:
    """The cohort and all above it."""
    parents = dict(Cohort.objects.values_list("pk", "parent_id"))
    found: set[int] = set()
    at: int | None = cohort.pk
    while at is not None and at not in found:
        found.add(at)
        at = parents.get(at)
    return found


def _checked(fields: TenantFields, errors: ErrorCollector) -> Cohort | None:
    check_text(errors, "/name", fields.name, 120)
    for name in ("lowest_priority", "highest_priority"):
        if not 0 <= getattr(fields, name) <= HIGHEST_PRIORITY:
            errors.add(f"/{name}", "out_of_range", _("must be from 0 to 1000"))
    if fields.lowest_priority > fields.highest_priority:
        errors.add("/lowest_priority", "out_of_range", _("must not exceed highest_priority"))
    if not 1 <= fields.log_retention_days <= 400:
        errors.add("/log_retention_days", "out_of_range", _("must be from 1 to 400"))
    cohort = _cohort_named(fields.cohort, "/cohort", errors)
    errors.raise_if_any()
    return cohort


def _cohort_named(name: str, pointer: str, errors: ErrorCollector) -> Cohort | None:
    found = Cohort.objects.filter(name=name).first() if name else None
    if name and found is None:
        errors.add(pointer, "unknown_cohort", _("there is no cohort of this name"))
    return found


def _columns(fields: TenantFields, cohort: Cohort | None) -> dict[str, Any]:
    return {**asdict(fields), "cohort": cohort}


def _note(
    actor: Actor,
    tenant: Tenant,
    what: str,
    now: datetime,
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    change = Change(f"tenant.{what}", "tenant", tenant.slug, before or None, after)
    write_audit(actor, change, now=now, tenant=tenant)
    log.record(log.NewEvent(kind=f"tenant.{what}", at=now, tenant=tenant.slug, actor=actor.name))


def _note_cohort(actor: Actor, cohort: Cohort, what: str, now: datetime) -> None:
    parent = cohort.parent.name if cohort.parent else None
    after = {"parent": parent, "order": str(cohort.order)}
    write_audit(actor, Change(f"cohort.{what}", "cohort", cohort.name, after=after), now=now)
    # Without its name: everyone who is signed in reads events that concern no tenant.
    log.record(log.NewEvent(kind=f"cohort.{what}", at=now))
