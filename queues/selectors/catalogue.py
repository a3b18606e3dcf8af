"""The catalogue as doors show it: clusters, flavors, presets. Everyone who is signed in may see it."""

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from controlplane.common.errors import NotVisibleError
from queues.contract.catalogue import ClusterFields, FlavorFields, PresetFields
from queues.models import Cluster, Flavor, Preset
from queues.selectors.answers import time_text
from tenants.access import Actor


def clusters_visible_to(actor: Actor) -> QuerySet[Cluster]:
    """All clusters."""
    return Cluster.objects.all()


def flavors_visible_to(actor: Actor) -> QuerySet[Flavor]:
    """All flavors."""
    return Flavor.objects.all()


def presets_visible_to(actor: Actor) -> QuerySet[Preset]:
    """All presets; what is in them concerns the pods of everyone."""
    return Preset.objects.all()


def cluster_named(actor: Actor, name: str) -> Cluster:
    """The cluster. Raises NotVisibleError."""
    found = clusters_visible_to(actor).filter(name=name).first() if name.isascii() else None
    if found is None:
        raise NotVisibleError(_("There is no cluster “{name}”.").format(name=name[:80]))
    return found


def flavor_named(actor: Actor, name: str) -> Flavor:
    """The flavor named `<cluster>.<flavor>`, or by its own name where only one cluster has it."""
    cluster, dot, own = name.rpartition(".")
    rows = flavors_visible_to(actor).select_related("cluster").filter(name=own)
    found = list(rows.filter(cluster__name=cluster) if dot else rows[:2]) if name.isascii() else []
    if len(found) != 1:
        raise NotVisibleError(_("There is no flavor “{name}”.").format(name=name[:80]))
    return found[0]


def preset_named(actor: Actor, name: str) -> Preset:
    """The preset. Raises NotVisibleError."""
    rows = presets_visible_to(actor).select_related("flavor__cluster")
    found = rows.filter(name=name).first() if name.isascii() else None
    if found is None:
        raise NotVisibleError(_("There is no preset “{name}”.").format(name=name[:80]))
    return found


def flavors_by_full_name() -> dict[str, Flavor]:
    """All flavors by "cluster/name"."""
    rows = Flavor.objects.select_related("cluster")
    return {f"{flavor.cluster.name}/{flavor.name}": flavor for flavor in rows}


def cluster_fields(cluster: Cluster) -> ClusterFields:
    """A cluster's fields as they are."""
    levels = cluster.levels.order_by("position").values_list("name", "node_label")
    return ClusterFields(cluster.mode, dict(cluster.node_selector), tuple(levels))


def flavor_fields(flavor: Flavor) -> FlavorFields:
    """A flavor's fields as they are."""
    return FlavorFields(
        resource_name=flavor.resource_name,
        model_label=flavor.model_label,
        model=flavor.model,
        gpus_per_nvlink_domain=flavor.gpus_per_nvlink_domain,
        default_cpu_millis_per_gpu=flavor.default_cpu_millis_per_gpu,
        default_memory_mib_per_gpu=flavor.default_memory_mib_per_gpu,
    )


def preset_fields(preset: Preset) -> PresetFields:
    """A preset's fields as they are."""
    flavor = preset.flavor
    name = f"{flavor.cluster.name}/{flavor.name}" if flavor else ""
    return PresetFields(preset.description, name, dict(preset.spec))


def cluster_answers(clusters: QuerySet[Cluster] | Sequence[Cluster]) -> list[dict[str, Any]]:
    """As the API shows them; needs `levels` prefetched and `state` joined to stay at two queries."""
    return [_cluster_answer(cluster, getattr(cluster, "state", None)) for cluster in clusters]


def _cluster_answer(cluster: Cluster, state: Any) -> dict[str, Any]:
    """state: the row in which the room above keeps how fresh our knowledge is; None before the first sync."""
    return {
        "name": cluster.name,
        "version": cluster.version,
        "mode": cluster.mode,
        "node_selector": cluster.node_selector,
        "levels": [
            {"name": level.name, "node_label": level.node_label}
            for level in sorted(cluster.levels.all(), key=lambda level: level.position)
        ],
        "watch": state.watch if state is not None else "never",
        "watch_since": time_text(state.watch_since) if state is not None else None,
    }


def flavor_answer(flavor: Flavor) -> dict[str, Any]:
    """As the API shows it; needs its cluster loaded. Sizes are null until a node was seen."""
    return {
        "id": f"{flavor.cluster.name}.{flavor.name}",
        "name": flavor.name,
        "cluster": flavor.cluster.name,
        "resource_name": flavor.resource_name,
        "model_label": flavor.model_label,
        "model": flavor.model,
        "sharing": flavor.sharing,
        "gpus_per_nvlink_domain": flavor.gpus_per_nvlink_domain,
        "gpus_per_node": flavor.gpus_per_node or None,
        "default_cpu_millis_per_gpu": flavor.default_cpu_millis_per_gpu,
        "default_memory_mib_per_gpu": flavor.default_memory_mib_per_gpu,
    }


def preset_answer(preset: Preset) -> dict[str, Any]:
    """As the API shows it; needs its flavor and cluster loaded."""
    fields = preset_fields(preset)
    return {
        "name": preset.name,
        "description": fields.description,
        "flavor": fields.flavor or None,
        "spec": fields.spec,
    }
