"""All checks over one cluster, the gravest first. Pure; called by `scheduler.selectors.lint`."""

from collections.abc import Callable, Iterator

from scheduler.lint import devices, topology, versions
from scheduler.lint.findings import GRAVITY, Finding
from scheduler.lint.sheet import Sheet

Check = Callable[[Sheet], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    devices.seen,
    devices.models,
    devices.shared,
    versions.drivers,
    versions.upgrades,
    topology.levels,
    topology.missing,
    topology.clashes,
    topology.twins,
    topology.uneven,
    devices.telemetry,
    devices.taints,
    devices.toolkit,
)


def lint(sheet: Sheet) -> list[Finding]:
    """What is found: errors, then warnings, then advice; in each the checks' order."""
    found = [finding for check in CHECKS for finding in check(sheet)]
    return sorted(found, key=lambda finding: GRAVITY[finding.severity])
