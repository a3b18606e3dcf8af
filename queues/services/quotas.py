"""The one writer of quotas: a tenant's shares, and how they are divided. Called by API, pages, quota requests.

Who may change what is decided field by field (CONTRACT, "Who may do what"): a platform admin everything; a tenant's
admin divides, lends more or less, keeps headroom, lowers borrowing, and asks for the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F
from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import (
    ConflictError,
    ErrorCollector,
    FieldError,
    ForbiddenError,
    InvalidError,
    StaleError,
)
from queues.contract.quotas import FlavorQuota, Quotas, Read, read_quotas
from queues.models import Flavor, QueueLimit, Quota, QuotaRequest, UserLimit
from queues.selectors.quotas import current_quotas, flavor_names, known_names
from tenants.access import Actor, Right, may, require
from tenants.models import Tenant
from tenants.services.audit import Change, write_audit

LONGEST_COMMENT = 2000
# Fields of a flavor's quota that its tenant's admin may not set.
PLATFORM_FIELDS = ("nominal", "weight")


@dataclass(frozen=True, slots=True)
class QuotaDraft:
    """A change that was read and may be made: before, after, and the pointer of each flavor's entry."""

    before: Quotas
    after: Quotas

    @property
    def flavor_ids(self) -> set[int]:
        """Flavors of which anything differs."""
        pairs = (
            (self.before.flavors, self.after.flavors),
            (self.before.queues, self.after.queues),
            (self.before.users, self.after.users),
        )
        found: set[int] = set()
        for before, after in pairs:
            for key in before.keys() | after.keys():
                if before.get(key) != after.get(key):  # type: ignore[arg-type]
                    found.add(key if isinstance(key, int) else key[1])
        return found


def draft_quotas(actor: Actor, tenant: Tenant, sent: Mapping[str, Any]) -> QuotaDraft:
    """Read what was sent and check that the actor may make it so; changes nothing. For previews and forms too.

    Raises InvalidError with pointers, or ForbiddenError that names each field which is beyond the actor.
    """
    require(actor, Right.DIVIDE_QUOTA, tenant)
    before, read = _read(tenant, sent)
    if not may(actor, Right.SET_NOMINAL_QUOTA, tenant):
        _refuse_beyond(before, read)
    return QuotaDraft(before, read.quotas)


def set_quotas(
    actor: Actor, tenant: Tenant, sent: Mapping[str, Any], version: int | None, now: datetime
) -> Tenant:
    """Make the tenant's quotas what was sent; returns the tenant with its new `quota_version`.

    version: the one that the caller has seen, None for any. Raises StaleError, and as `draft_quotas`.
    """
    require(actor, Right.DIVIDE_QUOTA, tenant)
    with log.writing():
        locked = _lock(tenant, version)
        draft = draft_quotas(actor, locked, sent)
        _write(actor, locked, draft, now)
    return locked


def _lock(tenant: Tenant, version: int | None) -> Tenant:
    locked = (
        Tenant.objects.select_for_update(of=("self",)).select_related("cohort").get(pk=tenant.pk)
    )
    if version is not None and version != locked.quota_version:
        raise StaleError(
            _("The quotas were changed after you read them."),
            hint=_("Read them again and repeat your change."),
            extra={"current_version": locked.quota_version},
        )
    return locked


def _read(tenant: Tenant, sent: Mapping[str, Any]) -> tuple[Quotas, Read]:
    errors = ErrorCollector()
    before = current_quotas(tenant)
    read = read_quotas(sent, before, known_names(tenant), errors)
    errors.raise_if_any()
    return before, read


def _refuse_beyond(before: Quotas, read: Read) -> None:
    """Raise ForbiddenError for fields that only a platform admin sets."""
    after = read.quotas
    faults: list[FieldError] = []
    for flavor_id in before.flavors.keys() | after.flavors.keys():
        pointer = read.pointers.get(flavor_id, "/flavors")
        was, wanted = before.flavors.get(flavor_id), after.flavors.get(flavor_id)
        if was is None or wanted is None:
            faults.append(_beyond(pointer, _("only a platform admin adds or removes a flavor")))
            continue
        faults += _fields_beyond(pointer, was, wanted)
    if faults:
        raise ForbiddenError(
            f"{faults[0].pointer}: {faults[0].message}",
            code="beyond_tenant_admin",
            hint=_("Ask for it with a quota request; a platform admin decides."),
            errors=tuple(faults),
        )


def _fields_beyond(pointer: str, was: FlavorQuota, wanted: FlavorQuota) -> list[FieldError]:
    faults = [
        _beyond(
            f"{pointer}/{name}",
            _("is {value}; only a platform admin changes it").format(value=getattr(was, name)),
        )
        for name in PLATFORM_FIELDS
        if getattr(was, name) != getattr(wanted, name)
    ]
    if _is_raised(was.borrowing_limit, wanted.borrowing_limit):
        message = _("is {value}; you may lower it, only a platform admin raises it")
        faults.append(
            _beyond(f"{pointer}/borrowing_limit", message.format(value=was.borrowing_limit))
        )
    return faults


def _is_raised(was: int | None, wanted: int | None) -> bool:
    """None is no limit: the highest."""
    return was is not None and (wanted is None or wanted > was)


def _beyond(pointer: str, message: str) -> FieldError:
    return FieldError(pointer, "platform_admin_only", message)


# --- writing ---


def _write(actor: Actor, tenant: Tenant, draft: QuotaDraft, now: datetime) -> None:
    touched = draft.flavor_ids
    if not touched:
        return
    _write_flavors(tenant, draft)
    _write_limits(tenant, draft)
    Tenant.objects.filter(pk=tenant.pk).update(quota_version=F("quota_version") + 1)
    tenant.quota_version += 1
    names = flavor_names()
    change = Change(
        "quotas.changed",
        "quotas",
        tenant.slug,
        _shown(draft.before, draft.after, names),
        _shown(draft.after, draft.before, names),
    )
    write_audit(actor, change, now=now, tenant=tenant)
    for cluster in (
        Flavor.objects.filter(pk__in=touched).values_list("cluster__name", flat=True).distinct()
    ):
        log.record(
            log.NewEvent(
                kind="quota.changed",
                at=now,
                tenant=tenant.slug,
                cluster=cluster,
                actor=actor.name,
                numbers={
                    "version": tenant.quota_version,
                    "flavors": sorted(names[pk] for pk in touched),
                },
            )
        )


def _write_flavors(tenant: Tenant, draft: QuotaDraft) -> None:
    gone = draft.before.flavors.keys() - draft.after.flavors.keys()
    Quota.objects.filter(tenant=tenant, flavor__in=gone).delete()
    for flavor_id, quota in draft.after.flavors.items():
        if draft.before.flavors.get(flavor_id) != quota:
            Quota.objects.update_or_create(
                tenant=tenant,
                flavor_id=flavor_id,
                defaults={
                    "nominal": quota.nominal,
                    "borrowing_limit": quota.borrowing_limit,
                    "lending_limit": quota.lending_limit,
                    "weight": quota.weight,
                    "headroom": quota.headroom,
                },
            )


def _write_limits(tenant: Tenant, draft: QuotaDraft) -> None:
    for (queue_id, flavor_id), limit in _changed(draft.before.queues, draft.after.queues):
        rows = QueueLimit.objects.filter(queue_id=queue_id, flavor_id=flavor_id)
        if limit is None:
            rows.delete()
        elif not rows.update(limit=limit):
            QueueLimit.objects.create(queue_id=queue_id, flavor_id=flavor_id, limit=limit)
    for (user_id, flavor_id), limit in _changed(draft.before.users, draft.after.users):
        mine = UserLimit.objects.filter(tenant=tenant, user_id=user_id, flavor_id=flavor_id)
        if limit is None:
            mine.delete()
        elif not mine.update(limit=limit):
            UserLimit.objects.create(
                tenant=tenant, user_id=user_id, flavor_id=flavor_id, limit=limit
            )


def _changed(
    before: Mapping[tuple[int, int], int], after: Mapping[tuple[int, int], int]
) -> list[tuple[tuple[int, int], int | None]]:
    """Keys whose limit differs, with the new one; None where it is taken away."""
    keys = sorted(before.keys() | after.keys())
    return [(key, after.get(key)) for key in keys if before.get(key) != after.get(key)]


def _shown(one: Quotas, other: Quotas, names: Mapping[int, str]) -> dict[str, Any]:
    """What of `one` differs from `other`, for the audit trail."""
    flavors = {
        names[pk]: {
            "nominal": quota.nominal,
            "borrowing_limit": quota.borrowing_limit,
            "lending_limit": quota.lending_limit,
            "weight": str(quota.weight),
            "headroom": quota.headroom,
        }
        for pk, quota in one.flavors.items()
        if other.flavors.get(pk) != quota
    }
    limits = {
        f"{section}/{owner}/{names[flavor]}": limit
        for section, mine, theirs in (
            ("queue", one.queues, other.queues),
            ("user", one.users, other.users),
        )
        for (owner, flavor), limit in mine.items()
        if theirs.get((owner, flavor)) != limit
    }
    return flavors | limits


# --- asking for more ---


def ask_for_quota(
    actor: Actor, tenant: Tenant, sent: Mapping[str, Any], comment: str, now: datetime
) -> QuotaRequest:
    """Keep a change set that a platform admin will accept or refuse. Raises InvalidError as `set_quotas`."""
    require(actor, Right.ASK_FOR_QUOTA, tenant)
    _check_comment(comment, "/comment")
    before, read = _read(tenant, sent)
    if not QuotaDraft(before, read.quotas).flavor_ids:
        message = _("changes nothing")
        raise InvalidError(message, errors=(FieldError("/changes", "no_change", message),))
    with log.writing():
        request = QuotaRequest.objects.create(
            tenant=tenant,
            changes=dict(sent),
            quota_version=tenant.quota_version,
            comment=comment,
            asked_by=actor.user,
            asked_at=now,
        )
        _note_request(actor, request, "opened", now)
    return request


def decide_quota_request(
    actor: Actor, request: QuotaRequest, *, accept: bool, comment: str, now: datetime
) -> QuotaRequest:
    """Accept (which applies the change set to the quotas as they are now) or refuse. Raises ConflictError twice."""
    require(actor, Right.DECIDE_QUOTA_REQUESTS, request.tenant)
    _check_comment(comment, "/comment")
    state = "accepted" if accept else "refused"
    with log.writing():
        decided = QuotaRequest.objects.filter(pk=request.pk, state="open").update(
            state=state, decided_by=actor.user, decided_at=now, decision_comment=comment
        )
        if not decided:
            raise ConflictError(_("The request has been decided already."), code="already_decided")
        if accept:
            set_quotas(actor, request.tenant, request.changes, None, now)
        request.refresh_from_db()
        _note_request(actor, request, state, now)
    return request


def _check_comment(comment: str, pointer: str) -> None:
    if len(comment) > LONGEST_COMMENT or "\x00" in comment:
        message = _("must have at most {most} characters").format(most=LONGEST_COMMENT)
        raise InvalidError(message, errors=(FieldError(pointer, "too_long", message),))


def _note_request(actor: Actor, request: QuotaRequest, what: str, now: datetime) -> None:
    log.record(
        log.NewEvent(
            kind=f"quota_request.{what}",
            at=now,
            tenant=request.tenant.slug,
            actor=actor.name,
            message=request.decision_comment if what != "opened" else request.comment,
            numbers={"request": request.pk},
        )
    )
    change = Change(
        f"quota_request.{what}", "quota_request", str(request.pk), None, request.changes
    )
    write_audit(actor, change, now=now, tenant=request.tenant, reason=request.decision_comment)
