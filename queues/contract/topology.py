"""How close together a role's replicas must or should be. Pure. Called by `roles`."""

from django.utils.translation import gettext as _

from queues.contract.context import Context
from queues.contract.reading import Reader, listed
from queues.specs import NODE_LEVEL, SliceSpec, TopologySpec

MODES = ("required", "preferred")


def read_topology(role: Reader, context: Context, replicas: int, min_replicas: int) -> TopologySpec:
    """The role's topology; by default the lowest level above node, preferred."""
    reader = role.object("topology")
    if reader is None:
        if not role.has("topology"):
            context.note_default(role.at("topology"), "cluster")
        return TopologySpec(level=lowest_level(context))
    spec = _read(reader, context, replicas, min_replicas)
    reader.finish()
    return spec


def lowest_level(context: Context) -> str:
    """The narrowest level above node; empty on a cluster without levels."""
    return context.levels[-1] if context.levels else ""


def _read(reader: Reader, context: Context, replicas: int, min_replicas: int) -> TopologySpec:
    mode = reader.choice("mode", "preferred", MODES)
    level = _read_level(reader, context, "level")
    preferred = _read_level(reader, context, "preferred_level")
    if not reader.has("level"):
        level = lowest_level(context)
        context.note_default(reader.at("level"), "cluster")
    if preferred and mode != "required":
        reader.fault(
            "preferred_level", "needs_required", _("makes sense only with mode “required”")
        )
    elif preferred and not _is_narrower(context, preferred, level):
        reader.fault(
            "preferred_level",
            "not_narrower",
            _("must be narrower than the required level “{level}”").format(level=level),
        )
    part = _read_slice(reader, context, level if mode == "required" else "", replicas, min_replicas)
    return TopologySpec(level=level, mode=mode, preferred_level=preferred, slice=part)


def _read_level(reader: Reader, context: Context, key: str) -> str:
    value = reader.text(key, longest=63)
    if not value or context.offer is None or value in (*context.levels, NODE_LEVEL):
        return value
    reader.fault(
        key,
        "unknown_level",
        _("is not a level of cluster {cluster}; its levels are {levels}").format(
            cluster=context.offer.cluster, levels=listed((*context.levels, NODE_LEVEL))
        ),
    )
    return ""


def _is_narrower(context: Context, level: str, than: str) -> bool:
    order = (*context.levels, NODE_LEVEL)
    if level not in order or than not in order:
        return True  # an unknown level has been reported
    return order.index(level) > order.index(than)


def _read_slice(
    topology: Reader, context: Context, required: str, replicas: int, min_replicas: int
) -> SliceSpec | None:
    reader = topology.object("slice")
    if reader is None:
        return None
    reader.required("replicas", "level")
    count = reader.whole("replicas", 1, least=1, most=replicas)
    level = _read_level(reader, context, "level")
    if replicas % count or min_replicas % count:
        reader.fault(
            "replicas",
            "does_not_divide",
            _("must divide replicas ({replicas}) and min_replicas ({least})").format(
                replicas=replicas, least=min_replicas
            ),
        )
    if required and level and level != required and not _is_narrower(context, level, required):
        reader.fault(
            "level",
            "not_narrower",
            _("must not be wider than the required level “{level}”").format(level=required),
        )
    reader.finish()
    return SliceSpec(replicas=count, level=level)
