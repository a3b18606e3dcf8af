"""Checks of GPUs as Kubernetes has them: seen, offered, whole, of a known model, with telemetry. Pure."""

from collections.abc import Callable, Iterator, Sequence

from scheduler.lint.findings import Finding, found
from scheduler.lint.sheet import PRODUCT_LABEL, LintNode, Sheet

Nodes = Sequence[LintNode]
EXPORTER_LABEL = "nvidia.com/gpu.deploy.dcgm-exporter"


def names_where(nodes: Nodes, test: Callable[[LintNode], bool]) -> list[str]:
    """Names of the nodes that pass the test."""
    return [node.name for node in nodes if test(node)]


def grouped(nodes: Nodes, key: Callable[[LintNode], str]) -> Iterator[tuple[str, list[str]]]:
    """Names under each value of `key` that is not empty, by value."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        if value := key(node):
            groups.setdefault(value, []).append(node.name)
    yield from sorted(groups.items())


def seen(sheet: Sheet) -> Iterator[Finding]:
    """Nodes whose GPUs Kubernetes does not have, or does not offer."""
    if unseen := names_where(sheet.gpu_nodes, lambda node: node.unseen):
        yield found("gpu_unseen", unseen)
    whole = [n for n in sheet.gpu_nodes if n.flavor and not n.unseen and not n.is_mig]
    if none := names_where(whole, lambda node: node.allocatable == 0):
        yield found("gpu_none_offered", none)
    short = [n for n in whole if 0 < n.allocatable < n.capacity]
    if short:
        missing = sum(n.capacity - n.allocatable for n in short)
        yield found("gpu_lost", [n.name for n in short], missing=missing)
    if differ := names_where(whole, _counts_differ):
        yield found("count_differs", differ)


def _counts_differ(node: LintNode) -> bool:
    """`gpu.replicas` is per physical GPU, so what is schedulable is count × replicas."""
    counted = node.labels.get("nvidia.com/gpu.count", "")
    replicas = node.labels.get("nvidia.com/gpu.replicas", "1")
    if not counted.isdecimal() or not replicas.isdecimal() or node.capacity == 0:
        return False
    return int(counted) * int(replicas) != node.capacity


def models(sheet: Sheet) -> Iterator[Finding]:
    """Models that no flavor names, and flavors that no node has."""
    strange = [n for n in sheet.gpu_nodes if not n.flavor and not n.is_mig and not n.sharing]
    for model, names in grouped(strange, lambda node: node.labels.get(PRODUCT_LABEL, "")):
        yield found("model_unknown", names, model=model)
    used = {node.flavor for node in sheet.gpu_nodes}
    for flavor, model in sorted(sheet.flavors.items()):
        if flavor not in used:
            yield found("flavor_empty", flavor=flavor, model=model)


def shared(sheet: Sheet) -> Iterator[Finding]:
    """GPUs that are handed out several times, or in parts."""
    for strategy, names in grouped(sheet.gpu_nodes, lambda node: node.sharing):
        yield found("time_sliced", names, strategy=strategy)
    invalid = names_where(sheet.gpu_nodes, _is_invalid_mig)
    if invalid:
        yield found("mig_invalid", invalid)
    state = "nvidia.com/mig.config.state"
    if failed := names_where(sheet.gpu_nodes, lambda n: n.labels.get(state) == "failed"):
        yield found("mig_failed", failed)
    changing = [n for n in sheet.gpu_nodes if n.labels.get(state) in ("pending", "rebooting")]
    for word, names in grouped(changing, lambda node: node.labels[state]):
        yield found("mig_changing", names, state=word)
    cut = names_where(sheet.gpu_nodes, lambda n: n.is_mig and not _is_invalid_mig(n))
    if cut:
        yield found("mig_enabled", cut)


def _is_invalid_mig(node: LintNode) -> bool:
    return node.labels.get(PRODUCT_LABEL, "").endswith("-MIG-INVALID")


def telemetry(sheet: Sheet) -> Iterator[Finding]:
    """Nodes without an exporter: because it is known not to answer, or where nobody knows by the operator's label."""
    silent, heard = sheet.silent or frozenset(), sheet.heard or frozenset()

    def is_mute(node: LintNode) -> bool:
        if node.name in heard:
            return False
        return node.labels.get(EXPORTER_LABEL, "") != "true" or node.name in silent

    if mute := names_where(sheet.gpu_nodes, is_mute):
        yield found("no_telemetry", mute)


def taints(sheet: Sheet) -> Iterator[Finding]:
    """Nodes that jobs cannot reach for a taint which is neither Kubernetes' own nor ours."""
    groups: dict[str, list[str]] = {}
    for node in sheet.gpu_nodes:
        for taint in node.taints:
            groups.setdefault(taint, []).append(node.name)
    for taint, names in sorted(groups.items()):
        yield found("kept_off", names, taint=taint)


def toolkit(sheet: Sheet) -> Iterator[Finding]:
    """What no node tells, and every site with NVIDIA GPUs should look at once."""
    if any(PRODUCT_LABEL in node.labels or node.unseen for node in sheet.gpu_nodes):
        yield found("visible_devices")
