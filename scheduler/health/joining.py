"""The checklist of a node that has joined a running cluster, or comes back: what must hold before jobs land. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ok None: not known yet. kubectl: the line that helps a person."""

    name: str
    ok: bool | None
    told: str
    kubectl: str


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What is known of the node. discovered: GPUs that labels or the exporter count (None: unknown)."""

    name: str
    resource: str
    has_key: bool
    allocatable: int
    discovered: int | None
    driver: str
    domain_driver: str
    missing_levels: tuple[str, ...]
    exporter_answers: bool | None
    burn_in: bool | None
    burn_in_told: str
    wants_burn_in: bool
    exporter_wanted: bool = True


def checklist(node: Newcomer) -> list[Step]:
    """The steps in order; all ok means that jobs may land."""
    steps = [_gpu_key(node), _gpu_count(node), _driver(node), _labels(node)]
    if node.exporter_wanted:
        steps.append(_exporter(node))
    if node.wants_burn_in:
        steps.append(
            Step("burn_in", node.burn_in, node.burn_in_told, _burn_in_line(node.name))
        )  # fmt: skip
    return steps


@dataclass(frozen=True, slots=True)
class Returner:
    """What is known of a node that was taken out. clean None: its exporter was not asked. repaired: a reset, a
    restart or a person's word (empty: none yet)."""

    name: str
    empty: bool
    ready: bool
    repaired: str
    clean: bool | None
    allocatable: int
    capacity: int
    burn_in: bool | None
    burn_in_told: str
    wants_burn_in: bool


def return_steps(node: Returner) -> list[Step]:
    """The way back of a node, step by step, with the line that helps a person with each."""
    at = f"--field-selector spec.nodeName={node.name}"
    whole = node.ready and 0 < node.capacity == node.allocatable
    steps = [
        Step("empty", node.empty, "nothing runs there" if node.empty else "jobs are leaving",
             f"kubectl get pods -A {at}"),
        Step("repaired", bool(node.repaired), node.repaired or "reset the GPU, restart or repair the node",
             f"kubectl debug node/{node.name} -it --image=busybox -- chroot /host nvidia-smi --gpu-reset"),
        Step("clean", node.clean, _CLEAN[node.clean],
             f"kubectl get --raw /api/v1/nodes/{node.name}:9400/proxy/metrics"),
        Step("device_plugin", whole, f"{node.allocatable} of {node.capacity} GPUs allocatable"
             + ("" if whole else ": restart the device plugin"), plugin_restart_line(node.name)),
    ]  # fmt: skip
    if node.wants_burn_in:
        steps.append(Step("burn_in", node.burn_in, node.burn_in_told, _burn_in_line(node.name)))
    return steps


_CLEAN = {
    None: "the exporter has not been asked",
    True: "all GPUs are seen, and none shows a sign",
    False: "a GPU is missing or still shows a sign",
}


def _burn_in_line(node: str) -> str:
    return f"kubectl -n muster-system get pods -l muster.dev/burn-in --field-selector spec.nodeName={node}"


def passes(steps: Sequence[Step]) -> bool:
    """Whether every step is green."""
    return all(step.ok for step in steps)


def ready_for_burn_in(steps: Sequence[Step]) -> bool:
    """Whether all but the burn-in are green."""
    return all(step.ok for step in steps if step.name != "burn_in")


def plugin_restart_line(node: str) -> str:
    """How the device plugin of a node is started again: it never takes an unhealthy GPU back by itself."""
    return (
        "kubectl -n gpu-operator delete pod -l app=nvidia-device-plugin-daemonset"
        f" --field-selector spec.nodeName={node}"
    )


def _gpu_key(node: Newcomer) -> Step:
    told = (
        f"{node.resource} is in allocatable"
        if node.has_key
        else f"{node.resource} is missing: pods would run without a GPU"
    )
    line = f"kubectl get node {node.name} -o jsonpath='{{.status.allocatable}}'"
    return Step("gpu_key", node.has_key, told, line)


def _gpu_count(node: Newcomer) -> Step:
    if node.discovered is None:
        return Step("gpu_count", None, "no label and no exporter says how many GPUs there are",
                    f"kubectl get node {node.name} -L nvidia.com/gpu.count")  # fmt: skip
    ok = node.has_key and node.allocatable == node.discovered
    told = f"{node.allocatable} allocatable, {node.discovered} discovered"
    return Step("gpu_count", ok, told, plugin_restart_line(node.name))


def _driver(node: Newcomer) -> Step:
    line = f"kubectl get node {node.name} -L nvidia.com/cuda.driver-version.full"
    if not node.driver:
        return Step("driver", None, "the driver is not known", line)
    if not node.domain_driver:
        return Step("driver", ok=True, told=f"{node.driver}; it has no neighbour", kubectl=line)
    ok = node.driver == node.domain_driver
    return Step("driver", ok, f"{node.driver}, its domain has {node.domain_driver}", line)


def _labels(node: Newcomer) -> Step:
    missing = ", ".join(node.missing_levels)
    told = f"no label for {missing}" if missing else "all topology labels are there"
    return Step("topology", not missing, told, f"kubectl label node {node.name} LABEL=VALUE")


def _exporter(node: Newcomer) -> Step:
    told = {None: "not asked yet", True: "answers", False: "does not answer"}[node.exporter_answers]
    line = f"kubectl get pods -A -l app=nvidia-dcgm-exporter --field-selector spec.nodeName={node.name}"
    return Step("exporter", node.exporter_answers, told, line)
