"""Series → one reading per GPU: values in our units, who holds it, XIDs, DCGM's own verdicts.

What a page does not say is absent from `values`, never zero. MIG repeats GPU-wide values on every instance's line:
they are joined by UUID, the largest wins.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler.health import names
from scheduler.health.text import Sample, samples
from scheduler.health.xids import gravest

# How the exporter's own pod shows as the holder when Prometheus has put its target labels over an idle GPU.
_EXPORTER = "dcgm-exporter"


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that the kubelet has given the GPU, or a MIG instance of it."""

    namespace: str
    pod: str
    container: str = ""


@dataclass(slots=True)
class GpuReading:
    """What one scrape says of one GPU. `xid` None: the series is missing; 0: none."""

    uuid: str
    index: int
    node: str = ""
    model: str = ""
    driver: str = ""
    generation: str = ""
    mig: bool = False
    values: dict[str, float] = field(default_factory=dict)
    holders: list[Holder] = field(default_factory=list)
    xid: int | None = None
    xid_message: str = ""
    # Events by XID: within the exporter's window, and since its start.
    xid_window: dict[int, int] = field(default_factory=dict)
    xid_totals: dict[int, int] = field(default_factory=dict)
    # DCGM's health watches: name → (0 pass, 10 warn, 20 fail; its error code).
    watches: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def utilisation(self) -> float | None:
        """Percent; of a GPU cut by MIG that of its busiest instance, for GPU_UTIL means nothing there."""
        return self.values.get("engine_active" if self.mig else "utilisation")

    @property
    def ecc_known(self) -> bool:
        """Whether the exporter tells ECC counts at all (they are off by default)."""
        return any(key in self.values for key in names.ECC_KEYS)


def read_page(text: str, *, through_prometheus: bool = False) -> dict[str, GpuReading]:
    """Readings by UUID from an exporter's page."""
    return readings_of(samples(text), through_prometheus=through_prometheus)


def readings_of(
    series: Iterable[Sample], *, through_prometheus: bool = False
) -> dict[str, GpuReading]:
    """Readings by UUID. through_prometheus: target labels may lie over the exporter's own."""
    found: dict[str, GpuReading] = {}
    known: dict[int, tuple[Mapping[str, str], GpuReading | None]] = {}
    for sample in series:
        labels = sample.labels
        # Labels of one text are one object (kept alive in `known`): looked at once.
        seen = known.get(id(labels))
        if seen is None:
            reading = _reading(found, labels, through_prometheus=through_prometheus)
            known[id(labels)] = (labels, reading)
        else:
            reading = seen[1]
        if reading is not None:
            _take(reading, sample)
    return found


def _reading(
    found: dict[str, GpuReading], labels: Mapping[str, str], *, through_prometheus: bool
) -> GpuReading | None:
    uuid = uuid_of(labels)
    if not uuid:
        return None
    reading = found.get(uuid)
    if reading is None:
        reading = found[uuid] = GpuReading(uuid, int(labels["gpu"]))
    old = labels.get("Hostname")
    reading.node = reading.node or old or labels.get("hostname", "")
    reading.model = reading.model or labels.get("modelName") or labels.get("model_name", "")
    if "DCGM_FI_SYSTEM_DRIVER_VERSION" in labels:
        reading.driver, reading.generation = labels["DCGM_FI_SYSTEM_DRIVER_VERSION"], "C"
    else:
        reading.driver = reading.driver or labels.get("DCGM_FI_DRIVER_VERSION", "")
        reading.generation = reading.generation or ("A" if old else "B")
    reading.mig = reading.mig or bool(labels.get("GPU_I_ID"))
    holder = holder_of(labels, through_prometheus=through_prometheus)
    if holder is not None and holder not in reading.holders:
        reading.holders.append(holder)
    return reading


def uuid_of(labels: Mapping[str, str]) -> str:
    """The GPU that a series is about; empty where it is about none, as of an NVSwitch or a CPU."""
    if not labels.get("gpu", "").isdecimal():
        return ""
    return labels.get("UUID") or labels.get("uuid") or labels.get("gpu_uuid") or ""


def holder_of(labels: Mapping[str, str], *, through_prometheus: bool = False) -> Holder | None:
    """The pod on the GPU: by `exported_pod`, `pod`, or the old namespace's `pod_name`; None when idle.

    With Prometheus' default (honorLabels: false) the job's pod is `exported_pod` and `pod` is the exporter's.
    """
    if labels.get("exported_pod"):
        return Holder(
            labels.get("exported_namespace", ""),
            labels["exported_pod"],
            labels.get("exported_container", ""),
        )
    pod = labels.get("pod") or labels.get("pod_name") or ""
    if not pod or (through_prometheus and _EXPORTER in pod):
        return None
    return Holder(
        labels.get("namespace") or labels.get("pod_namespace", ""),
        pod,
        labels.get("container") or labels.get("container_name", ""),
    )


def _take(reading: GpuReading, sample: Sample) -> None:
    name, value = sample.name, sample.value
    if names.is_blank(value):
        return
    if name in names.ONLY_C:
        reading.generation = "C"
    metric = names.GPU_METRICS.get(name)
    if metric is not None:
        key, factor = metric
        ours = value * factor
        if ours > reading.values.get(key, float("-inf")):
            reading.values[key] = ours
    elif name in names.XID_LAST:
        _take_xid(reading, sample)
    elif name == names.HEALTH_STATUS:
        watch = sample.labels.get("health_watch", "")
        if int(value) >= reading.watches.get(watch, (-1, ""))[0]:
            reading.watches[watch] = (int(value), sample.labels.get("health_error_code", ""))
    elif (code := sample.labels.get("xid", "")).isdecimal():
        counts = reading.xid_window if name == names.XID_WINDOW else reading.xid_totals
        counts[int(code)] = max(counts.get(int(code), 0), int(value))


def _take_xid(reading: GpuReading, sample: Sample) -> None:
    """The last XID. A stale series of an older code may stand beside it: the gravest is believed."""
    code = int(sample.value)
    known = reading.xid or 0
    grave = gravest((known, code))
    reading.xid = grave.code if grave else 0
    if reading.xid != known:
        reading.xid_message = sample.labels.get("err_msg", "")
