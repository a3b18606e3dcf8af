"""A driver upgrade of one node, as NVIDIA's GPU operator walks it through `gpu-driver-upgrade-state`.

The states, in order, are those of the operator's upgrade library. It waits where the label
`nvidia.com/gpu-driver-upgrade.skip` holds it off, waits for pods with GPUs to end (it deletes none
that no controller owns), and gives up with `upgrade-failed` when they do not end in time. Called
by `actions`.
"""

from collections.abc import Callable

from scheduler.simcluster.admission.amounts import is_terminal, pod_amounts
from scheduler.simcluster.clock import Timer
from scheduler.simcluster.kubelet.fleet import Fleet
from scheduler.simcluster.kubelet.node import Kubelet
from scheduler.simcluster.nodes.labels import driver_labels
from scheduler.simcluster.store.resources import NODES

Action = Callable[[], None]
STATE_LABEL = "nvidia.com/gpu-driver-upgrade-state"
SKIP_LABEL = "nvidia.com/gpu-driver-upgrade.skip"
_DRIVER_PODS_LABEL = "nvidia.com/gpu.deploy.driver"
_BEFORE_PODS_LEAVE = ("cordon-required", "wait-for-jobs-required", "pod-deletion-required")
_AFTER_PODS_LEFT = ("pod-restart-required", "validation-required", "uncordon-required")
POD_DELETION_SECONDS = 300.0
"""The operator's `podDeletion.timeoutSeconds`."""


class DriverUpgrade:
    """One node's way to another driver."""

    def __init__(
        self, fleet: Fleet, kubelet: Kubelet, driver: str, cuda: str, step_seconds: float
    ) -> None:
        self._fleet, self._kubelet = fleet, kubelet
        self._driver, self._cuda, self._step_seconds = driver, cuda, step_seconds
        self._timer: Timer | None = None
        self._cordoned = False
        self._waited_seconds = 0.0

    def begin(self) -> None:
        """The operator has seen that the node's driver is old."""
        self._label(**{STATE_LABEL: "upgrade-required"})
        self._later(self._leave_required)

    def stop(self) -> None:
        """Nothing more happens; the label stays where it is."""
        if self._timer is not None:
            self._timer.cancel()

    def _leave_required(self) -> None:
        if self._labels().get(SKIP_LABEL) == "true":
            self._later(self._leave_required)
        else:
            self._walk(list(_BEFORE_PODS_LEAVE), self._wait_for_pods)

    def _walk(self, states: list[str], then: Action) -> None:
        """Enters the states one by one, a step apart, then goes on with `then`."""
        if not states:
            then()
            return
        self._enter(states[0])
        self._later(lambda: self._walk(states[1:], then))

    def _enter(self, state: str) -> None:
        self._label(**{STATE_LABEL: state})
        if state == "cordon-required":
            self._cordoned = not self._cordon(unschedulable=True)
        elif state == "pod-restart-required":
            self._kubelet.machine.plugin = "stopped"
            self._label(**{_DRIVER_PODS_LABEL: "paused-for-driver-upgrade"})
            self._kubelet.post_status()
        elif state == "validation-required":
            self._kubelet.machine.driver = self._driver
            self._kubelet.machine.restart_plugin()
            self._label(**{_DRIVER_PODS_LABEL: "true"}, **driver_labels(self._driver, self._cuda))
            self._kubelet.post_status()

    def _wait_for_pods(self) -> None:
        if not self._holds_gpus():
            self._walk(list(_AFTER_PODS_LEFT), self._finish)
        elif self._waited_seconds >= POD_DELETION_SECONDS:
            self._label(**{STATE_LABEL: "upgrade-failed"})
        else:
            self._waited_seconds += self._step_seconds
            self._later(self._wait_for_pods)

    def _finish(self) -> None:
        if self._cordoned:
            self._cordon(unschedulable=False)
        self._label(**{STATE_LABEL: "upgrade-done"})

    def _holds_gpus(self) -> bool:
        pods = self._fleet.pods.on(self._kubelet.name)
        return any(
            not is_terminal(stored.body)
            and any(name.startswith("nvidia.com/") for name in pod_amounts(stored.body["spec"]))
            for stored in pods
        )

    def _cordon(self, *, unschedulable: bool) -> bool:
        """Sets or lifts the cordon; returns whether the node was cordoned before."""
        stored = self._fleet.world.store.get(NODES, "", self._kubelet.name)
        if stored is None:
            return False
        spec = {k: v for k, v in stored.body["spec"].items() if k != "unschedulable"}
        if unschedulable:
            spec["unschedulable"] = True
        self._fleet.world.store.put(NODES, {**stored.body, "spec": spec})
        return bool(stored.body["spec"].get("unschedulable"))

    def _labels(self) -> dict[str, str]:
        stored = self._fleet.world.store.get(NODES, "", self._kubelet.name)
        return {} if stored is None else dict(stored.body["metadata"].get("labels") or {})

    def _label(self, **labels: str) -> None:
        stored = self._fleet.world.store.get(NODES, "", self._kubelet.name)
        if stored is None:
            return
        metadata = stored.body["metadata"]
        new = {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}
        self._fleet.world.store.put(NODES, {**stored.body, "metadata": new})

    def _later(self, action: Action) -> None:
        self._timer = self._fleet.world.timers.after(self._step_seconds, action)
