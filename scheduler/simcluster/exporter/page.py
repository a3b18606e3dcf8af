"""The metrics page of each node, as its dcgm-exporter would answer a scrape.

Reached through the API server, as on a real cluster (`/api/v1/nodes/NODE:9400/proxy/metrics`), and
directly at `/_sim/exporter/NODE/metrics`.
"""

from collections import Counter
from dataclasses import dataclass

from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.api.request import NOT_A_PATH, Call, Reply
from scheduler.simcluster.exporter.families import (
    FAMILIES,
    MIG_KEYS,
    Family,
    shown_name,
    shown_value,
)
from scheduler.simcluster.exporter.readings import RESERVED_MIB, Holder, holders, readings
from scheduler.simcluster.kubelet.fleet import Fleet
from scheduler.simcluster.kubelet.node import Kubelet
from scheduler.simcluster.nodes.hardware import Gpu
from scheduler.simcluster.nodes.xids import message_of
from scheduler.simcluster.world import World

PORT = "9400"
XID_WINDOW_SECONDS = 300
WATCHES = (
    "PCIE",
    "NVLINK",
    "PMU",
    "MCU",
    "MEM",
    "SM",
    "INFOROM",
    "THERMAL",
    "POWER",
    "DRIVER",
    "ALL",
)
_FAIL_XIDS = frozenset({48, 64, 74, 79, 95, 119, 120, 140})
Labels = dict[str, str]


@dataclass(slots=True)
class Row:
    """A GPU or MIG instance: its labels, as text too, and its values by family key."""

    labels: Labels
    values: dict[str, float]
    text: str = ""

    def __post_init__(self) -> None:
        self.text = _render(self.labels)


class MetricsPage:
    """Renders exporters' pages."""

    def __init__(self, world: World, fleet: Fleet) -> None:
        self._world, self._fleet = world, fleet
        self._boot = world.clock.now() - 3600.0

    def proxy(self, call: Call) -> Reply:
        """GET /api/v1/nodes/NODE:9400/proxy/metrics. Raises ApiError."""
        node, _, port = call.name.partition(":")
        if port != PORT:
            raise ApiError(
                503, "ServiceUnavailable", f"nothing listens on port {port or '10250'} of {node}"
            )
        if call.rest.strip("/") == "health":
            self._find(node)
            return Reply(200, b"OK", "text/plain; charset=utf-8")
        if call.rest.strip("/") != "metrics":
            return NOT_A_PATH
        return Reply(200, self.page(node).encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _find(self, node: str) -> Kubelet:
        kubelet = self._fleet.kubelets.get(node)
        if kubelet is None:
            raise ApiError(404, "NotFound", f'nodes "{node}" not found')
        machine = kubelet.machine
        if not machine.gpus or not machine.powered or not machine.exporter_up:
            raise ApiError(
                503, "ServiceUnavailable",
                f"error trying to reach service: dial tcp {machine.address}:{PORT}: connect: "
                "connection refused",
            )  # fmt: skip
        return kubelet

    def page(self, node: str) -> str:
        """The whole page of a node. Raises ApiError 404 or 503."""
        kubelet = self._find(node)
        generation = kubelet.machine.group.dcgm_generation
        now = self._world.clock.now()
        held = holders(kubelet)
        rows = self._rows(kubelet, held, now)
        lines: list[str] = []
        for family in FAMILIES:
            name = shown_name(family, generation)
            if not name or (family.optional and not kubelet.machine.group.dcgm_optional_metrics):
                continue
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.type}"]
            lines += [
                f"{name}{_labels_of(row, family)} {shown_value(family, generation, row.values[family.key])}"
                for row in rows
                if family.key in row.values
            ]
        if kubelet.machine.group.dcgm_optional_metrics:
            lines += self._counts(kubelet, held, now)
        return "\n".join(lines) + "\n"

    def _rows(
        self, kubelet: Kubelet, held: dict[tuple[int, int], Holder], now: float
    ) -> list["Row"]:
        rows: list[Row] = []
        for gpu in kubelet.machine.gpus:
            holder = held.get((gpu.index, -1))
            if gpu.lost:
                # Only what the driver still remembers: the XID that it went with.
                rows.append(Row(self._labels(kubelet, gpu, holder), {"xid": gpu.xid}))
                continue
            if not gpu.mig:
                values = readings(gpu, holder, now, self._boot)
                rows.append(Row(self._labels(kubelet, gpu, holder), values))
            for place, instance in enumerate(gpu.mig):
                holder = held.get((gpu.index, place))
                values = readings(gpu, holder, now, self._boot)
                share = instance.memory_mib / gpu.model.memory_mib
                used = round(values["fb_used"] * share)
                values |= {"fb_used": used, "fb_free": max(0, instance.memory_mib - used),
                           "fb_reserved": round(RESERVED_MIB * share)}  # fmt: skip
                labels = self._labels(
                    kubelet, gpu, holder, instance.profile, str(instance.instance)
                )
                rows.append(Row(labels, {key: values[key] for key in MIG_KEYS}))
        return rows

    def _labels(
        self,
        kubelet: Kubelet,
        gpu: Gpu,
        holder: Holder | None,
        profile: str = "",
        instance: str = "",
    ) -> Labels:
        generation = kubelet.machine.group.dcgm_generation
        labels = {
            "gpu": str(gpu.index), "UUID": gpu.uuid, "pci_bus_id": gpu.bus_id,
            "device": f"nvidia{gpu.index}", "modelName": gpu.model.name,
        }  # fmt: skip
        if profile:
            labels |= {"GPU_I_PROFILE": profile, "GPU_I_ID": instance}
        labels["Hostname" if generation == "A" else "hostname"] = kubelet.name
        driver = "DCGM_FI_SYSTEM_DRIVER_VERSION" if generation == "C" else "DCGM_FI_DRIVER_VERSION"
        labels[driver] = kubelet.machine.driver
        if holder is not None:
            labels |= {
                "container": holder.container,
                "namespace": holder.namespace,
                "pod": holder.pod,
            }
        return labels

    def _counts(
        self, kubelet: Kubelet, held: dict[tuple[int, int], Holder], now: float
    ) -> list[str]:
        window = str(XID_WINDOW_SECONDS * 1000)
        xids: list[str] = []
        totals: list[str] = []
        health: list[str] = []
        for gpu in kubelet.machine.gpus:
            labels = self._labels(kubelet, gpu, held.get((gpu.index, -1)))
            recent = Counter(code for at, code in gpu.xid_times if at >= now - XID_WINDOW_SECONDS)
            if not recent:
                xids.append(
                    _line("DCGM_EXP_XID_ERRORS_COUNT", labels | {"window_size_in_ms": window}, 0)
                )
            for code, count in sorted(recent.items()):
                extra = {"window_size_in_ms": window, "xid": str(code)}
                xids.append(_line("DCGM_EXP_XID_ERRORS_COUNT", labels | extra, count))
            for code, count in sorted(Counter(code for _, code in gpu.xid_times).items()):
                totals.append(
                    _line("DCGM_EXP_XID_ERRORS_TOTAL", labels | {"xid": str(code)}, count)
                )
            health += _health_lines(gpu, labels)
        found = ["# HELP DCGM_EXP_XID_ERRORS_COUNT XIDs inside the window",
                 "# TYPE DCGM_EXP_XID_ERRORS_COUNT counter", *xids]  # fmt: skip
        if kubelet.machine.group.dcgm_generation != "A" and totals:
            found += ["# HELP DCGM_EXP_XID_ERRORS_TOTAL XIDs since the exporter started",
                      "# TYPE DCGM_EXP_XID_ERRORS_TOTAL counter", *totals]  # fmt: skip
        found += ["# HELP DCGM_EXP_GPU_HEALTH_STATUS Health watch: 0 pass, 10 warn, 20 fail",
                  "# TYPE DCGM_EXP_GPU_HEALTH_STATUS counter", *health]  # fmt: skip
        return found


def _health_lines(gpu: Gpu, labels: Labels) -> list[str]:
    lines = []
    for watch in WATCHES:
        value, code = _health(gpu, watch)
        extra = {"health_error_code": code, "health_watch": watch}
        lines.append(_line("DCGM_EXP_GPU_HEALTH_STATUS", labels | extra, value))
    return lines


def _health(gpu: Gpu, watch: str) -> tuple[int, str]:
    if watch == "THERMAL" and gpu.hot:
        return 10, "DCGM_FR_CLOCKS_EVENT_THERMAL"
    if watch == "MEM" and (gpu.remap_failed or gpu.ecc_double):
        return 20, "DCGM_FR_VOLATILE_DBE_DETECTED"
    if watch == "NVLINK" and gpu.nvlink_errors:
        return 10, "DCGM_FR_NVLINK_ERROR_THRESHOLD"
    if watch == "ALL" and gpu.xid in _FAIL_XIDS:
        return 20, "DCGM_FR_XID_ERROR"
    return 0, "DCGM_FR_OK"


def _labels_of(row: Row, family: Family) -> str:
    if family.key != "xid":
        return row.text
    code = int(row.values["xid"])
    return _render(row.labels | {"err_code": str(code), "err_msg": message_of(code)})


def _render(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _line(name: str, labels: Labels, value: int) -> str:
    return f"{name}{_render(labels)} {value}"
