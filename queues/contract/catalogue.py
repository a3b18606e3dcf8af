"""Clusters, flavors and presets as platform admins send them. Pure. Called by `services.catalogue`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from queues.contract import names
from queues.contract.reading import Fault, Reader

MODES = ("observe", "schedule", "paused")
LEVEL_NAMES = ("zone", "spine", "leaf", "nvlink")
NVLINK_SIZES = (1, 2, 4, 8, 72)
POD_SECURITY = ("restricted", "baseline", "privileged")
MOST_ENTRIES = 100


@dataclass(frozen=True, slots=True)
class ClusterFields:
    """What a platform admin sets of a cluster. levels: (name, node label) pairs, widest first."""

    mode: str
    node_selector: Mapping[str, str] = field(default_factory=dict)
    levels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FlavorFields:
    """A kind of accelerator capacity, and what a replica gets by default for each of its GPUs."""

    resource_name: str = "nvidia.com/gpu"
    model_label: str = "nvidia.com/gpu.product"
    model: str = ""
    gpus_per_nvlink_domain: int = 8
    default_cpu_millis_per_gpu: int = 8_000
    default_memory_mib_per_gpu: int = 65_536


@dataclass(frozen=True, slots=True)
class PresetFields:
    """What is merged into pods; keys of `spec` as in `models.Preset`. flavor: "cluster/name", empty for any."""

    description: str = ""
    flavor: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)


def read_cluster(reader: Reader, now: ClusterFields) -> ClusterFields:
    """The fields that are wanted: those sent, the others as they are."""
    selector = reader.pairs(
        "node_selector", most=32, key_rule=names.label_key, value_rule=names.label_value
    )
    levels = _read_levels(reader)
    return ClusterFields(
        mode=reader.choice("mode", now.mode, MODES),
        node_selector=selector if reader.has("node_selector") else now.node_selector,
        levels=levels if reader.has("levels") else now.levels,
    )


def _read_levels(reader: Reader) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for entry in reader.objects("levels", most=len(LEVEL_NAMES)):
        entry.required("name", "node_label")
        name = entry.choice("name", "", LEVEL_NAMES)
        label = entry.text("node_label", longest=316, rule=names.label_key)
        entry.finish()
        if name and any(name == other for other, _label in found):
            entry.fault("name", "duplicate", _("stands twice"))
        found.append((name, label))
    order = [LEVEL_NAMES.index(name) for name, _label in found if name]
    if order != sorted(order):
        reader.fault(
            "levels",
            "wrong_order",
            _("must go from the widest to the narrowest: {levels}").format(
                levels=", ".join(LEVEL_NAMES)
            ),
        )
    return tuple(found)


def read_flavor(reader: Reader, now: FlavorFields | None) -> FlavorFields:
    """A flavor's fields; `model` is required for a new one."""
    if now is None:
        reader.required("model")
    was = now or FlavorFields()
    size = reader.whole("gpus_per_nvlink_domain", was.gpus_per_nvlink_domain)
    if size not in NVLINK_SIZES:
        reader.fault(
            "gpus_per_nvlink_domain",
            "unknown_choice",
            _("must be one of {options}").format(options=", ".join(map(str, NVLINK_SIZES))),
        )
    return FlavorFields(
        resource_name=reader.text("resource_name", was.resource_name, longest=253, rule=_resource),
        model_label=reader.text("model_label", was.model_label, longest=316, rule=names.label_key),
        model=reader.text("model", was.model, longest=63, rule=names.label_value),
        gpus_per_nvlink_domain=size,
        default_cpu_millis_per_gpu=reader.whole(
            "default_cpu_millis_per_gpu", was.default_cpu_millis_per_gpu, least=1, most=1_000_000
        ),
        default_memory_mib_per_gpu=reader.whole(
            "default_memory_mib_per_gpu", was.default_memory_mib_per_gpu, least=1, most=10_485_760
        ),
    )


def _resource(value: str) -> Fault | None:
    """An extended resource: always with a domain in front."""
    if "/" in value and names.label_key(value) is None:
        return None
    return Fault("invalid_resource", _("must be a resource name, such as nvidia.com/gpu"))


def read_preset(reader: Reader, now: PresetFields, flavors: tuple[str, ...]) -> PresetFields:
    """A preset's fields. `spec`, where it is sent, replaces the old one whole."""
    flavor = reader.text("flavor", longest=100)
    if flavor and flavor not in flavors:
        reader.fault("flavor", "unknown_flavor", _("is not a flavor; write it as cluster/flavor"))
    spec = _read_spec(reader)
    return PresetFields(
        description=reader.text("description", now.description, longest=200),
        flavor=flavor if "flavor" in reader.sent else now.flavor,
        spec=spec if reader.has("spec") else now.spec,
    )


def _read_spec(reader: Reader) -> dict[str, Any]:
    spec = reader.object("spec")
    if spec is None:
        return {}
    found: dict[str, Any] = {
        "resources": spec.pairs("resources", most=MOST_ENTRIES, key_rule=_resource),
        "capabilities": list(spec.texts("capabilities", most=40, longest=40)),
        "runtime_class_name": spec.text("runtime_class_name", longest=253, rule=names.object_name),
        "tolerations": _objects(spec, "tolerations"),
        "node_selector": spec.pairs(
            "node_selector", most=32, key_rule=names.label_key, value_rule=names.label_value
        ),
        # A platform admin may set what a job may not, such as NVIDIA_DRIVER_CAPABILITIES.
        "env": spec.pairs("env", most=MOST_ENTRIES, key_rule=names.any_env_name),
        "volumes": _objects(spec, "volumes"),
        "volume_mounts": _objects(spec, "volume_mounts"),
        "annotations": spec.pairs("annotations", most=MOST_ENTRIES, key_rule=names.label_key),
        "labels": spec.pairs(
            "labels", most=MOST_ENTRIES, key_rule=names.label_key, value_rule=names.label_value
        ),
        "pod_security": spec.choice("pod_security", "restricted", POD_SECURITY),
        "run_as_user": spec.optional_whole("run_as_user", least=1),
        "host_network": spec.flag("host_network", default=False),
    }
    spec.finish()
    if found["host_network"] and found["pod_security"] != "privileged":
        spec.fault("host_network", "needs_privileged", _("needs pod_security “privileged”"))
    return {key: value for key, value in found.items() if value}


def _objects(spec: Reader, key: str) -> list[dict[str, Any]]:
    """Pieces of a pod, handed to Kubernetes as they stand."""
    return [dict(entry.sent) for entry in spec.objects(key, most=MOST_ENTRIES)]
