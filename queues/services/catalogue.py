"""Clusters, flavors and presets: edited by platform admins, and what the cluster process knows of node sizes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db import IntegrityError, models, transaction
from django.db.models import F, ProtectedError
from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, ErrorCollector, StaleError
from queues.contract.catalogue import (
    ClusterFields,
    PresetFields,
    read_cluster,
    read_flavor,
    read_preset,
)
from queues.contract.names import dns_label
from queues.contract.reading import Reader
from queues.models import Cluster, Flavor, Level, Preset, Quota
from queues.selectors.catalogue import (
    cluster_fields,
    flavor_fields,
    flavors_by_full_name,
    preset_fields,
)
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit

Row = TypeVar("Row", bound=models.Model)


@dataclass(frozen=True, slots=True)
class NodeSizes:
    """The most that any one node of a flavor has, healthy or not: whole GPUs, thousandths of a core, MiB."""

    gpus: int
    cpu_millis: int
    memory_mib: int


def record_node_sizes(
    cluster: Cluster, sizes: Mapping[int, NodeSizes], now: datetime
) -> list[Flavor]:
    """Keep the largest node of each flavor (by id); returns the flavors that changed.

    Called by the cluster process after it has observed nodes. Writes and tells only what differs, so that it
    may be called at every tick.
    """
    with log.writing():
        changed = [
            flavor
            for flavor in Flavor.objects.filter(cluster=cluster, pk__in=sizes.keys())
            if _resize(flavor, sizes[flavor.pk])
        ]
        if changed:
            Flavor.objects.bulk_update(
                changed, ["gpus_per_node", "cpu_millis_per_node", "memory_mib_per_node"]
            )
        for flavor in changed:
            log.record(_resized(cluster, flavor, now))
    return changed


def _resize(flavor: Flavor, sizes: NodeSizes) -> bool:
    before = (flavor.gpus_per_node, flavor.cpu_millis_per_node, flavor.memory_mib_per_node)
    after = (sizes.gpus, sizes.cpu_millis, sizes.memory_mib)
    flavor.gpus_per_node, flavor.cpu_millis_per_node, flavor.memory_mib_per_node = after
    return before != after


def _resized(cluster: Cluster, flavor: Flavor, now: datetime) -> log.NewEvent:
    return log.NewEvent(
        kind="flavor.node_sizes",
        at=now,
        cluster=cluster.name,
        actor="cluster",
        numbers={"flavor": flavor.name, "gpus_per_node": flavor.gpus_per_node},
    )


def record_outside_use(cluster: Cluster, used: Mapping[tuple[int, int], int], now: datetime) -> int:
    """Keep the GPUs that foreign pods use, by (tenant id, flavor id); returns how many quotas changed.

    Called by the cluster process after it has observed foreign pods; pairs that are not in `used` become 0.
    Writes and tells only what differs.
    """
    with log.writing():
        changed = []
        for quota in Quota.objects.filter(flavor__cluster=cluster).select_related(
            "tenant", "flavor"
        ):
            outside = used.get((quota.tenant_id, quota.flavor_id), 0)
            if quota.outside != outside:
                quota.outside = outside
                changed.append(quota)
        if changed:
            Quota.objects.bulk_update(changed, ["outside"])
        for quota in changed:
            log.record(_outside(cluster, quota, now))
    return len(changed)


def _outside(cluster: Cluster, quota: Quota, now: datetime) -> log.NewEvent:
    return log.NewEvent(
        kind="quota.outside",
        at=now,
        tenant=quota.tenant.slug,
        cluster=cluster.name,
        actor="cluster",
        numbers={"flavor": quota.flavor.name, "outside": quota.outside},
    )


# --- what platform admins edit ---


def change_cluster(
    actor: Actor, cluster: Cluster, sent: Mapping[str, Any], version: int | None, now: datetime
) -> Cluster:
    """Set mode, node selector or levels. version: the one that the caller has seen, None for any.

    Raises StaleError, InvalidError with pointers.
    """
    require(actor, Right.EDIT_CATALOGUE)
    errors = ErrorCollector()
    with log.writing():
        locked = Cluster.objects.select_for_update().get(pk=cluster.pk)
        if version is not None and version != locked.version:
            raise StaleError(
                _("The cluster was changed after you read it."),
                extra={"current_version": locked.version},
            )
        before = cluster_fields(locked)
        reader = Reader(sent, "", errors)
        after = read_cluster(reader, before)
        reader.finish()
        errors.raise_if_any()
        if after != before:
            _write_cluster(locked, before, after)
            change = _edit("cluster", locked.name, asdict(before), asdict(after))
            _note(actor, change, now, locked.name)
            locked.refresh_from_db()
    return locked


def _write_cluster(cluster: Cluster, before: ClusterFields, after: ClusterFields) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(
        mode=after.mode, node_selector=dict(after.node_selector), version=F("version") + 1
    )
    if after.levels != before.levels:
        Level.objects.filter(cluster=cluster).delete()
        Level.objects.bulk_create(
            Level(cluster=cluster, name=name, node_label=label, position=position)
            for position, (name, label) in enumerate(after.levels)
        )


def create_flavor(actor: Actor, sent: Mapping[str, Any], now: datetime) -> Flavor:
    """A new flavor on a cluster. Raises InvalidError with pointers, ConflictError for one that is there."""
    require(actor, Right.EDIT_CATALOGUE)
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    reader.required("name", "cluster")
    name = reader.text("name", longest=40, rule=dns_label)
    cluster = Cluster.objects.filter(name=reader.text("cluster", longest=40)).first()
    if cluster is None and reader.has("cluster"):
        reader.fault("cluster", "unknown_cluster", _("is not a cluster"))
    fields = read_flavor(reader, None)
    reader.finish()
    errors.raise_if_any()
    assert cluster is not None  # an unknown one is an error
    with log.writing():
        flavor = _create(Flavor(cluster=cluster, name=name, **asdict(fields)))
        change = _edit("flavor", f"{cluster.name}/{name}", None, asdict(fields))
        _note(actor, change, now, cluster.name)
    return flavor


def change_flavor(actor: Actor, flavor: Flavor, sent: Mapping[str, Any], now: datetime) -> Flavor:
    """Change what was sent; its name and cluster stay."""
    require(actor, Right.EDIT_CATALOGUE)
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    before = flavor_fields(flavor)
    after = read_flavor(reader, before)
    reader.finish()
    errors.raise_if_any()
    if after == before:
        return flavor
    with log.writing():
        for column, value in asdict(after).items():
            setattr(flavor, column, value)
        _save(flavor, list(asdict(after)))
        name = f"{flavor.cluster.name}/{flavor.name}"
        change = _edit("flavor", name, asdict(before), asdict(after))
        _note(actor, change, now, flavor.cluster.name)
    return flavor


def create_preset(actor: Actor, sent: Mapping[str, Any], now: datetime) -> Preset:
    """A new preset. Queues are given it by `services.queues`."""
    require(actor, Right.EDIT_CATALOGUE)
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    reader.required("name")
    name = reader.text("name", longest=40, rule=dns_label)
    flavors = flavors_by_full_name()
    fields = read_preset(reader, PresetFields(), tuple(flavors))
    reader.finish()
    errors.raise_if_any()
    with log.writing():
        preset = _create(
            Preset(
                name=name,
                description=fields.description,
                flavor=flavors.get(fields.flavor),
                spec=dict(fields.spec),
            )
        )
        _note(actor, _edit("preset", name, None, asdict(fields)), now)
    return preset


def change_preset(actor: Actor, preset: Preset, sent: Mapping[str, Any], now: datetime) -> Preset:
    """Change what was sent; pods that run keep what they were made with."""
    require(actor, Right.EDIT_CATALOGUE)
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    flavors = flavors_by_full_name()
    before = preset_fields(preset)
    after = read_preset(reader, before, tuple(flavors))
    reader.finish()
    errors.raise_if_any()
    if after == before:
        return preset
    with log.writing():
        preset.description = after.description
        preset.flavor = flavors.get(after.flavor)
        preset.spec = dict(after.spec)
        preset.save(update_fields=["description", "flavor", "spec"])
        _note(actor, _edit("preset", preset.name, asdict(before), asdict(after)), now)
    return preset


def delete_preset(actor: Actor, preset: Preset, now: datetime) -> None:
    """Take a preset away. Raises ConflictError while a job names it."""
    require(actor, Right.EDIT_CATALOGUE)
    before = asdict(preset_fields(preset))
    with log.writing():
        try:
            with transaction.atomic():
                preset.delete()
        except ProtectedError:
            raise ConflictError(
                _("Jobs name this preset; it goes when they are no longer kept."), code="in_use"
            ) from None
        _note(actor, _edit("preset", preset.name, before, None), now)


def _create(row: Row) -> Row:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise ConflictError(_("There is one like it already."), code="exists") from None
    return row


def _save(flavor: Flavor, columns: list[str]) -> None:
    try:
        with transaction.atomic():
            flavor.save(update_fields=columns)
    except IntegrityError:
        raise ConflictError(
            _("Another flavor of the cluster has this resource and model."), code="exists"
        ) from None


def _note(actor: Actor, change: Change, now: datetime, cluster: str = "") -> None:
    """Tell and audit it. Catalogue events concern nobody's tenant in particular."""
    log.record(
        log.NewEvent(
            kind=change.action,
            at=now,
            cluster=cluster,
            actor=actor.name,
            numbers={change.object_kind: change.object_name},
        )
    )
    write_audit(actor, change, now=now)


def _edit(
    kind: str, name: str, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> Change:
    what = "created" if before is None else "deleted" if after is None else "changed"
    return Change(f"{kind}.{what}", kind, name, before, after)
