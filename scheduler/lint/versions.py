"""Checks of drivers and CUDA, by the labels of feature discovery and of the GPU operator. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from scheduler.lint.devices import grouped, names_where
from scheduler.lint.findings import Finding, found
from scheduler.lint.sheet import LintNode, Sheet, by_domain

UPGRADE_LABEL = "nvidia.com/gpu-driver-upgrade-state"


@dataclass(frozen=True, slots=True)
class VersionSum:
    """How many nodes of a flavor run a driver with that CUDA; empty where they do not say."""

    flavor: str
    driver: str
    cuda: str
    nodes: int


def version_sums(sheet: Sheet) -> list[VersionSum]:
    """By flavor, the most nodes first."""
    counts = Counter((n.flavor, n.driver, n.cuda) for n in sheet.gpu_nodes if n.flavor)
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0]))
    return [VersionSum(*key, nodes) for key, nodes in ordered]


def drivers(sheet: Sheet) -> Iterator[Finding]:
    """Unknown drivers, and domains where gangs would meet two."""
    silent = names_where(
        sheet.gpu_nodes, lambda n: bool(n.flavor) and not n.unseen and not n.driver
    )
    if silent:
        yield found("driver_unknown", silent)
    if sheet.levels:
        level, label = sheet.levels[-1]
        for domain, nodes in sorted(by_domain(sheet.gpu_nodes, level).items()):
            yield from _mixed(domain, label, nodes)


def _mixed(domain: str, label: str, nodes: list[LintNode]) -> Iterator[Finding]:
    """Only nodes of one flavor meet in a gang."""
    for flavor in sorted({node.flavor for node in nodes}):
        alike = [node for node in nodes if node.flavor == flavor and node.driver]
        versions = Counter(node.driver for node in alike)
        if len(versions) < 2:
            continue
        usual = max(versions, key=lambda version: (versions[version], version))
        odd = [node for node in alike if node.driver != usual]
        said = ", ".join(sorted({node.driver for node in odd}))
        names = [node.name for node in odd]
        yield found("driver_mixed", names, domain=domain, usual=usual, odd=said, label=label)


def upgrades(sheet: Sheet) -> Iterator[Finding]:
    """What the operator is doing to drivers. All states but done and absent keep jobs away."""
    failed = names_where(sheet.gpu_nodes, lambda n: n.labels.get(UPGRADE_LABEL) == "upgrade-failed")
    if failed:
        yield found("driver_upgrade_failed", failed)
    quiet = ("", "upgrade-done", "upgrade-failed")
    moving = [n for n in sheet.gpu_nodes if n.labels.get(UPGRADE_LABEL, "") not in quiet]
    for state, names in grouped(moving, lambda node: node.labels[UPGRADE_LABEL]):
        yield found("driver_upgrading", names, state=state)
