"""What faults do to machines, kubelets and pods. Every function returns how to undo it, or None."""

from collections.abc import Callable
from typing import Any

from scheduler.simcluster.faults.upgrade import DriverUpgrade
from scheduler.simcluster.kubelet.fleet import Fleet
from scheduler.simcluster.kubelet.node import Kubelet
from scheduler.simcluster.kubelet.run import KILLED, PodRun
from scheduler.simcluster.nodes.hardware import Gpu
from scheduler.simcluster.nodes.machine import PLUGIN_GRACE_SECONDS, new_boot_id
from scheduler.simcluster.nodes.xids import (
    IGNORED_BY_PLUGIN,
    LOSES_GPU,
    ends_process,
    message_of,
)
from scheduler.simcluster.store.resources import NODES
from scheduler.simcluster.world import Subject

Json = dict[str, Any]
Undo = Callable[[], None] | None
BOOT_SECONDS = 60.0
CRASH_SECONDS = 0.5


def _kernel_address(gpu: Gpu) -> str:
    """Domain, bus and device as the kernel's log has them: `0000:1b:00`."""
    domain, bus, device = gpu.bus_id.lower().partition(".")[0].split(":")
    return f"{domain[-4:]}:{bus}:{device}"


class NoSuchTarget(Exception):  # noqa: N818 - a wrong order, answered with 404
    """The node, GPU or pod that a fault names is not there."""


class Actions:
    """Carries out faults on one cluster."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._world = fleet, fleet.world

    def kubelet(self, name: str) -> Kubelet:
        """The kubelet of a simulated node. Raises NoSuchTarget."""
        found = self._fleet.kubelets.get(name)
        if found is None:
            raise NoSuchTarget(f"no simulated node {name!r}")
        return found

    def gpu(self, name: str, index: int) -> Gpu:
        """One GPU. Raises NoSuchTarget."""
        gpus = self.kubelet(name).machine.gpus
        if not 0 <= index < len(gpus):
            raise NoSuchTarget(f"node {name!r} has no GPU {index}")
        return gpus[index]

    # Nodes.

    def node_not_ready(self, node: str, problem: str = "container runtime is down") -> Undo:
        """The kubelet reports itself not ready; its pods run on."""
        kubelet = self.kubelet(node)
        kubelet.machine.ready_problem = problem
        kubelet.post_status()

        def undo() -> None:
            kubelet.machine.ready_problem = ""
            kubelet.post_status()

        return undo

    def node_silent(self, node: str) -> Undo:
        """The kubelet is cut off from the API; containers run on unseen."""
        kubelet = self.kubelet(node)
        kubelet.machine.kubelet_up = False

        def undo() -> None:
            kubelet.machine.kubelet_up = True
            if kubelet.machine.powered:
                kubelet.catch_up(rebooted=False)

        return undo

    def node_gone(self, node: str) -> Undo:
        """The machine loses power: containers die, nothing is written. Undone by a boot."""
        kubelet = self.kubelet(node)
        kubelet.power_off()
        return lambda: self.boot(kubelet)

    def boot(self, kubelet: Kubelet) -> None:
        """Power is back: a new boot id, healthy GPUs, containers found dead."""
        machine = kubelet.machine
        if machine.powered:
            return
        machine.powered = True
        draw = self._world.identities.stable("boot", machine.name, machine.boot_id)
        machine.boot_id = new_boot_id(draw)
        for gpu in machine.gpus:
            gpu.reset()
        if machine.plugin == "stopped":
            machine.restart_plugin()
        if self._world.store.get(NODES, "", machine.name) is None:
            self._fleet.register(kubelet)
        source = {"component": "kubelet", "host": machine.name}
        subject = Subject("Node", machine.name)
        text = f"Node {machine.name} has been rebooted, boot id: {machine.boot_id}"
        self._world.record(subject, "Warning", "Rebooted", text, source)
        kubelet.catch_up(rebooted=True)

    def node_reboot(self, node: str, down_seconds: float = BOOT_SECONDS) -> Undo:
        """The machine restarts."""
        kubelet = self.kubelet(node)
        kubelet.power_off()
        self._world.timers.after(down_seconds, lambda: self.boot(kubelet))
        return None

    def node_deleted(self, node: str) -> Undo:
        """The machine is taken away and its Node object deleted. Undone by a new registration."""
        kubelet = self.kubelet(node)
        kubelet.power_off()
        stored = self._world.store.get(NODES, "", node)
        if stored is not None:
            self._world.store.remove(NODES, stored.key)
        return lambda: self.boot(kubelet)

    def clock_skew(self, node: str, skew_seconds: float = 120.0) -> Undo:
        """The node's clock is wrong: its heartbeats carry wrong times."""
        kubelet = self.kubelet(node)
        kubelet.machine.clock_skew_seconds = skew_seconds
        kubelet.renew_lease()

        def undo() -> None:
            kubelet.machine.clock_skew_seconds = 0.0

        return undo

    def node_condition(
        self,
        node: str,
        type: str,
        status: str = "True",
        reason: str = "Injected",
        message: str = "",
    ) -> Undo:
        """A condition as node-problem-detector and cloud vendors set them."""
        self.kubelet(node)
        self._set_condition(node, type, status, reason, message)
        opposite = "False" if status == "True" else "True"
        return lambda: self._set_condition(node, type, opposite, reason, "")

    def _set_condition(self, node: str, type_: str, status: str, reason: str, message: str) -> None:
        stored = self._world.store.get(NODES, "", node)
        if stored is None:
            return
        now = self._world.now_text()
        old = stored.body.get("status") or {}
        kept = [c for c in old.get("conditions") or [] if c["type"] != type_]
        kept.append(
            {"type": type_, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now,
             "reason": reason, "message": message}
        )  # fmt: skip
        self._world.store.put(NODES, {**stored.body, "status": {**old, "conditions": kept}})

    def node_event(
        self, node: str, reason: str, message: str = "", component: str = "kernel-monitor"
    ) -> Undo:
        """A warning event on the node, as node-problem-detector reports what it reads in logs."""
        self.kubelet(node)
        source = {"component": component, "host": node}
        self._world.record(Subject("Node", node, uid=node), "Warning", reason, message, source)
        return None

    def node_added(self, like: str) -> Undo:
        """A new machine joins, of the group of the node named `like`. Undone by taking it away."""
        added = self._fleet.add_like(self.kubelet(like).machine)

        def undo() -> None:
            self.node_deleted(added.name)

        return undo

    def driver_upgrade(
        self, node: str, driver: str = "580.82.07", cuda: str = "13.0", step_seconds: float = 10.0
    ) -> Undo:
        """The GPU operator upgrades the node's driver, state by state, once no pod holds a GPU."""
        upgrade = DriverUpgrade(self._fleet, self.kubelet(node), driver, cuda, step_seconds)
        upgrade.begin()
        return upgrade.stop

    # GPUs.

    def gpu_xid(
        self, node: str, gpu: int, code: int, *, kills: bool | None = None, report: bool = False
    ) -> Undo:
        """An XID: seen by the exporter, by the plugin unless it ignores it, and by the process;
        with `report` the kernel's line is an event on the node, too."""
        kubelet, found = self.kubelet(node), self.gpu(node, gpu)
        now = self._world.clock.now()
        found.xid = code
        found.xid_times.append((now, code))
        if code in LOSES_GPU:
            found.lost = True
        if code not in IGNORED_BY_PLUGIN:
            self._plugin_notices(kubelet, found)
        if ends_process(code) if kills is None else kills:
            self._crash_on(kubelet, gpu, f"CUDA error: XID {code}: {message_of(code)}")
        if report:
            line = f"NVRM: Xid (PCI:{_kernel_address(found)}): {code}, {message_of(code)}"
            self.node_event(node, "XIDError", line)
        return None

    def _plugin_notices(self, kubelet: Kubelet, gpu: Gpu) -> None:
        machine = kubelet.machine
        gpu.healthy = False
        if machine.group.time_slices > 1:
            gpu.replicas_lost = 1  # the plugin's lookup from UUID to device holds one entry
        if gpu.mig:
            gpu.mig[0].healthy = False
        self._world.timers.after(0.1, kubelet.post_status)

    def _crash_on(self, kubelet: Kubelet, gpu: int, text: str) -> None:
        for uid, devices in list(kubelet.machine.held.items()):
            run = kubelet.runs.get(uid)
            if run is not None and any(device.gpu == gpu for device in devices):
                self._crash(run, text)

    def _crash(self, run: PodRun, text: str) -> None:
        now = self._world.clock.now()
        for container in run.containers:
            if container.output is not None and container.running:
                rank = container.output.rank
                container.output.stopped_at = min(container.output.stopped_at, now)
                container.output.extra.append((now, f"rank={rank} {text}"))
        for container in run.containers:
            self._world.timers.after(CRASH_SECONDS, lambda c=container: run.kill(c, 1, "Error"))  # type: ignore[misc]

    def gpu_ecc(self, node: str, gpu: int, single: int = 0, double: int = 1) -> Undo:
        """ECC errors are counted; double-bit ones leave a row remap pending."""
        found = self.gpu(node, gpu)
        found.ecc_single += single
        found.ecc_double += double
        if double:
            found.remapped_rows += 1
            found.remap_pending = True
        return None

    def gpu_heat(self, node: str, gpu: int) -> Undo:
        """The GPU is too hot and slows down."""
        found = self.gpu(node, gpu)
        found.hot = True

        def undo() -> None:
            found.hot = False

        return undo

    def gpu_nvlink(self, node: str, gpu: int, errors: int = 100) -> Undo:
        """NVLink errors are counted."""
        self.gpu(node, gpu).nvlink_errors += errors
        return None

    def gpu_reset(self, node: str, gpu: int | None = None) -> Undo:
        """Resets one GPU or all, and restarts the plugin so that it takes them again."""
        kubelet = self.kubelet(node)
        indexes = range(len(kubelet.machine.gpus)) if gpu is None else (gpu,)
        for index in indexes:
            self.gpu(node, index).reset()
        return self.plugin_restart(node)

    # The programs on a node.

    def plugin_stopped(self, node: str) -> Undo:
        """The device plugin dies: allocatable 0 at once, capacity 0 after five minutes."""
        kubelet = self.kubelet(node)
        machine = kubelet.machine
        if machine.plugin != "missing":
            machine.plugin, machine.plugin_stopped_at = "stopped", self._world.clock.now()
        kubelet.post_status()
        stopped_at = machine.plugin_stopped_at

        def drop_capacity() -> None:
            if machine.plugin == "stopped" and machine.plugin_stopped_at == stopped_at:
                machine.capacity_dropped = True
                kubelet.post_status()

        self._world.timers.after(PLUGIN_GRACE_SECONDS, drop_capacity)
        return lambda: self._discard(self.plugin_restart(node))

    def _discard(self, undo: Undo) -> None:
        del undo

    def plugin_missing(self, node: str) -> Undo:
        """The node never heard of a plugin: the resource key is absent from its status."""
        kubelet = self.kubelet(node)
        kubelet.machine.plugin = "missing"
        kubelet.post_status()
        return lambda: self._discard(self.plugin_restart(node))

    def plugin_restart(self, node: str) -> Undo:
        """The device plugin starts again and reports what it finds."""
        kubelet = self.kubelet(node)
        kubelet.machine.restart_plugin()
        kubelet.post_status()
        return None

    def exporter_down(self, node: str) -> Undo:
        """The DCGM exporter does not answer."""
        machine = self.kubelet(node).machine
        machine.exporter_up = False

        def undo() -> None:
            machine.exporter_up = True

        return undo

    def pull_fails(self, node: str, message: str = "dial tcp: i/o timeout") -> Undo:
        """Every image pull on the node fails."""
        machine = self.kubelet(node).machine
        machine.pull_problem = message

        def undo() -> None:
            machine.pull_problem = ""

        return undo

    def pull_slow(self, node: str, factor: float = 30.0) -> Undo:
        """Image pulls on the node take longer."""
        machine = self.kubelet(node).machine
        machine.pull_factor = factor

        def undo() -> None:
            machine.pull_factor = 1.0

        return undo

    # Pods.

    def _run(self, namespace: str, pod: str) -> PodRun:
        for kubelet in self._fleet.kubelets.values():
            run = kubelet.find((namespace, pod))
            if run is not None:
                return run
        raise NoSuchTarget(f"no pod {namespace}/{pod} on a simulated node")

    def pod_oom(self, namespace: str, pod: str) -> Undo:
        """The containers use more memory than they may."""
        run = self._run(namespace, pod)
        for container in run.containers:
            run.kill(container, KILLED, "OOMKilled")
        return None

    def pod_exit(self, namespace: str, pod: str, code: int = 1) -> Undo:
        """The containers end by themselves."""
        run = self._run(namespace, pod)
        for container in run.containers:
            run.kill(container, code, "Completed" if code == 0 else "Error")
        return None

    def pod_hang(self, namespace: str, pod: str) -> Undo:
        """The processes hang: no more log lines, idle GPUs, no end."""
        self._run(namespace, pod).hang()
        return None

    def pod_evicted(self, namespace: str, pod: str) -> Undo:
        """The kubelet evicts the pod for lack of memory on the node."""
        self._run(namespace, pod).evict(
            "Evicted",
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 92Mi. ",
        )
        return None
