"""Queues: made, opened, held, closed and tuned by their tenant's admins; presets are the platform's business."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import (
    ConflictError,
    ErrorCollector,
    FieldError,
    ForbiddenError,
    StaleError,
)
from queues.contract.queue_fields import Choices, QueueFields, read_fields, read_name_and_cluster
from queues.contract.reading import Reader
from queues.models import Cluster, Flavor, Preset, Queue, QueueFlavor, QueueState, Quota
from queues.selectors.queues import fields_of, queue_key, queue_of, with_queue_parts
from tenants.access import Actor, Right, may, require
from tenants.models import Tenant
from tenants.services.audit import Change, write_audit


def create_queue(actor: Actor, tenant: Tenant, sent: Mapping[str, Any], now: datetime) -> Queue:
    """A new queue, closed unless another state is sent. Raises InvalidError with pointers, ConflictError."""
    require(actor, Right.MANAGE_QUEUES, tenant)
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    reader.take("tenant")
    clusters = tuple(Cluster.objects.order_by("name").values_list("name", flat=True))
    name, cluster_name = read_name_and_cluster(reader, clusters)
    cluster = Cluster.objects.filter(name=cluster_name).first()
    before = QueueFields(highest_priority_admin=tenant.highest_priority)
    fields = read_fields(reader, before, _choices(tenant, cluster))
    reader.finish()
    errors.raise_if_any()
    assert cluster is not None  # an unknown one is an error
    _check_presets(actor, tenant, before, fields)
    with log.writing():
        queue = _insert(tenant, cluster, name, now)
        _write(queue, fields)
        _check_open(queue, fields)
        _note(actor, queue, "created", now, {}, asdict(fields))
    return queue_of(actor, queue_key(queue))


def change_queue(
    actor: Actor, queue: Queue, sent: Mapping[str, Any], version: int | None, now: datetime
) -> Queue:
    """Change what was sent. version: the one that the caller has seen, None for any.

    Raises StaleError, InvalidError with pointers, ForbiddenError (presets), ConflictError: a queue opens only when
    its tenant has quota.
    """
    require(actor, Right.MANAGE_QUEUES, queue.tenant)
    with log.writing():
        locked = _lock(queue, version)
        before = fields_of(locked)
        fields = _read_changes(locked, sent, before)
        _check_presets(actor, locked.tenant, before, fields)
        if fields != before:
            _write(locked, fields)
            _check_open(locked, fields)
            was = {k: v for k, v in asdict(before).items() if v != getattr(fields, k)}
            _note(actor, locked, "changed", now, was, {k: getattr(fields, k) for k in was})
    return queue_of(actor, queue_key(locked))


def _lock(queue: Queue, version: int | None) -> Queue:
    list(Queue.objects.select_for_update().filter(pk=queue.pk).values_list("pk"))
    locked = with_queue_parts(Queue.objects.all()).get(pk=queue.pk)
    if version is not None and version != locked.version:
        raise StaleError(
            _("The queue was changed after you read it."),
            hint=_("Read it again and repeat your change."),
            extra={"current_version": locked.version},
        )
    return locked


def _read_changes(queue: Queue, sent: Mapping[str, Any], before: QueueFields) -> QueueFields:
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    fields = read_fields(reader, before, _choices(queue.tenant, queue.cluster))
    reader.finish()
    errors.raise_if_any()
    return fields


def _choices(tenant: Tenant, cluster: Cluster | None) -> Choices:
    flavors = Flavor.objects.filter(cluster=cluster).order_by("name") if cluster else ()
    return Choices(
        flavors=tuple(flavor.name for flavor in flavors),
        presets=tuple(Preset.objects.order_by("name").values_list("name", flat=True)),
        highest_priority=tenant.highest_priority,
    )


def _check_presets(actor: Actor, tenant: Tenant, before: QueueFields, after: QueueFields) -> None:
    """A preset may loosen what pods may do: only platform admins give one to a queue."""
    added = set(after.presets) - set(before.presets)
    if added and not may(actor, Right.SET_NOMINAL_QUOTA, tenant):
        message = _("only a platform admin gives a queue a preset")
        raise ForbiddenError(
            f"/presets: {message}",
            code="beyond_tenant_admin",
            errors=(FieldError("/presets", "platform_admin_only", message),),
        )


def _check_open(queue: Queue, fields: QueueFields) -> None:
    """An open queue without quota would take jobs that can never start."""
    if fields.state != QueueState.OPEN:
        return
    quotas = Quota.objects.filter(tenant=queue.tenant_id, flavor__queue_flavors__queue=queue)
    may_borrow = queue.tenant.cohort_id is not None
    for quota in quotas:
        if quota.nominal or (may_borrow and quota.borrowing_limit != 0):
            return
    raise ConflictError(
        _("The queue cannot be open: tenant {tenant} has no quota of its flavors.").format(
            tenant=queue.tenant.slug
        ),
        code="no_quota",
        hint=_("A platform admin sets the tenant's quota; it can be asked for."),
    )


def _insert(tenant: Tenant, cluster: Cluster, name: str, now: datetime) -> Queue:
    try:
        with transaction.atomic():
            return Queue.objects.create(
                tenant=tenant, cluster=cluster, name=name, state=QueueState.CLOSED, created_at=now
            )
    except IntegrityError:
        raise ConflictError(
            _("Tenant {tenant} has a queue “{name}” already.").format(
                tenant=tenant.slug, name=name
            ),
            code="name_in_use",
        ) from None


def _write(queue: Queue, fields: QueueFields) -> None:
    columns = asdict(fields)
    flavors, presets = columns.pop("flavors"), columns.pop("presets")
    Queue.objects.filter(pk=queue.pk).update(version=F("version") + 1, **columns)
    ids = dict(
        Flavor.objects.filter(cluster=queue.cluster_id, name__in=flavors).values_list("name", "pk")
    )
    QueueFlavor.objects.filter(queue=queue).exclude(flavor__in=ids.values()).delete()
    for position, name in enumerate(flavors):
        QueueFlavor.objects.update_or_create(
            queue=queue, flavor_id=ids[name], defaults={"position": position}
        )
    queue.presets.set(Preset.objects.filter(name__in=presets))


def _note(
    actor: Actor,
    queue: Queue,
    what: str,
    now: datetime,
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    log.record(
        log.NewEvent(
            kind=f"queue.{what}",
            at=now,
            tenant=queue.tenant.slug,
            cluster=queue.cluster.name,
            actor=actor.name,
            numbers={"queue": queue.name, "changed": sorted(after)},
        )
    )
    change = Change(f"queue.{what}", "queue", queue_key(queue), before or None, after)
    write_audit(actor, change, now=now, tenant=queue.tenant)
