"""Which nodes a window, a reservation or a drain means. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeLooks:
    """What a selector can see of a node."""

    name: str
    domains: Mapping[str, str]
    labels: Mapping[str, str]
    flavor: str


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """Nodes by name or domain (either will do; without both, all), of these with all `labels` and of `flavor`."""

    names: frozenset[str] = frozenset()
    domains: frozenset[tuple[str, str]] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    flavor: str = ""

    def means(self, node: NodeLooks) -> bool:
        """Whether the node is meant."""
        placed = not self.names and not self.domains
        placed = (
            placed or node.name in self.names or not self.domains.isdisjoint(node.domains.items())
        )
        return (
            placed
            and all(node.labels.get(name) == value for name, value in self.labels)
            and self.flavor in ("", node.flavor)
        )

    def of(self, nodes: Iterable[NodeLooks]) -> frozenset[str]:
        """The names of those meant."""
        return frozenset(node.name for node in nodes if self.means(node))

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing, and so would mean every node."""
        return not (self.names or self.domains or self.labels or self.flavor)


def selector_of(stored: Mapping[str, Any]) -> NodeSelector:
    """From the JSON of a window's row."""
    return NodeSelector(
        names=frozenset(stored.get("names") or ()),
        domains=frozenset((d["level"], d["name"]) for d in stored.get("domains") or ()),
        labels=tuple(sorted((stored.get("labels") or {}).items())),
        flavor=stored.get("flavor") or "",
    )
