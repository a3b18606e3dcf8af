"""Amounts of a node's four countable resources.

Every room of the planner counts with these; the order of the fields is the order of the
rows in the planner's capacity matrices (`scheduler.core.topology`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Amount:
    """What a pod asks for or a node offers.

    `gpus` are units of the node's one flavor (a MIG profile counts as a unit of its own flavor),
    `cpu_millis` thousandths of a core, `memory_mib` mebibytes, `pods` a plain count.
    """

    gpus: int = 0
    cpu_millis: int = 0
    memory_mib: int = 0
    pods: int = 0

    def as_tuple(self) -> tuple[int, int, int, int]:
        """The amounts in matrix order: GPUs, CPU, memory, pods."""
        return (self.gpus, self.cpu_millis, self.memory_mib, self.pods)

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.gpus + other.gpus,
            self.cpu_millis + other.cpu_millis,
            self.memory_mib + other.memory_mib,
            self.pods + other.pods,
        )

    def times(self, count: int) -> Amount:
        """`count` times this amount."""
        return Amount(
            self.gpus * count,
            self.cpu_millis * count,
            self.memory_mib * count,
            self.pods * count,
        )


NOTHING = Amount()
