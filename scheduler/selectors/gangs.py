"""How whole the free capacity is: per flavor and level the largest gang of whole nodes that fits now.

The definition is that of `core.topology.fragments.level_states`, over nodes as pages know them. Called by Plan and map.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler.selectors.node_facts import NodeFacts


@dataclass(frozen=True, slots=True)
class LevelGang:
    """One level of one flavor, in whole free nodes.

    level: empty for the whole flavor. scattered: 0 when all free nodes that could share a domain do, towards 1 as they
    are spread: 1 − largest / min(free, largest domain).
    """

    flavor: str
    level: str
    nodes: int
    gpus: int
    domain: str
    free_nodes: int
    scattered: float

    @property
    def percent(self) -> int:
        """`scattered` in percent."""
        return round(self.scattered * 100)


def level_gangs(facts: Iterable[NodeFacts], levels: Sequence[str]) -> list[LevelGang]:
    """By flavor, then the whole flavor and its levels from wide to narrow."""
    groups: dict[str, list[NodeFacts]] = {}
    for node in facts:
        if node.flavor:
            groups.setdefault(node.flavor, []).append(node)
    return [
        _gang(flavor, level, nodes)
        for flavor, nodes in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        for level in ("", *levels)
    ]


def _gang(flavor: str, level: str, nodes: list[NodeFacts]) -> LevelGang:
    """Nodes without a label of the level are in no domain of it."""
    sizes: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    for node in nodes:
        domain = node.domains.get(level, "") if level else flavor
        if not domain:
            continue
        sizes[domain] += 1
        if node.is_in and node.capacity and node.free == node.capacity:
            whole[domain] += 1
            gpus[domain] += node.capacity
    free = whole.total()
    best = max(whole, key=lambda name: (gpus[name], name), default="")
    could = min(free, max(sizes.values(), default=0))
    scattered = 1 - whole[best] / could if could else 0.0
    place = best if level else ""
    return LevelGang(flavor, level, whole[best], gpus[best], place, free, scattered)
