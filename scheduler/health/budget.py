"""How many nodes rules may take out without a person. Pure arithmetic.

Per cluster and per leaf: 5 % of the nodes, rounded up, or 2, whichever is larger, within 30 minutes; and never the
last healthy domain of a flavor (a domain is healthy while at least half of its nodes take jobs).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a cluster."""

    percent: float = 5.0
    nodes: int = 2
    window: timedelta = timedelta(minutes=30)

    def allowed(self, of_nodes: int) -> int:
        """Nodes that may be taken out within the window, of so many."""
        return max(math.ceil(of_nodes * self.percent / 100), self.nodes)


@dataclass(frozen=True, slots=True)
class Place:
    """A node as the budget sees it. domain: its narrowest domain above node (empty: none known)."""

    node: str
    domain: str
    flavor: str
    takes_jobs: bool = True


@dataclass(frozen=True, slots=True)
class Taken:
    """A node that a rule took out, and when."""

    node: str
    at: datetime


class Refusal(StrEnum):
    """Which limit says no."""

    CLUSTER = "cluster"
    LEAF = "leaf"
    LAST_DOMAIN = "last_domain"


@dataclass(frozen=True, slots=True)
class Answer:
    """May it be taken out? Where not: which limit, how many were taken, how many may be."""

    refusal: Refusal | None
    taken: int
    allowed: int

    @property
    def granted(self) -> bool:
        """Within the budget."""
        return self.refusal is None


def may_take(
    node: str, places: Collection[Place], taken: Iterable[Taken], budget: Budget, now: datetime
) -> Answer:
    """Whether the rule may take `node` out now. A node that is out by rule already costs nothing more."""
    here = next((place for place in places if place.node == node), None)
    if here is None:
        return Answer(Refusal.CLUSTER, 0, 0)
    recent = {each.node for each in taken if each.at > now - budget.window}
    cluster = Answer(None, len(recent), budget.allowed(len(places)))
    if node in recent:
        return cluster
    if cluster.taken >= cluster.allowed:
        return Answer(Refusal.CLUSTER, cluster.taken, cluster.allowed)
    if here.domain:
        inside = {place.node for place in places if place.domain == here.domain}
        allowed = budget.allowed(len(inside))
        if len(recent & inside) >= allowed:
            return Answer(Refusal.LEAF, len(recent & inside), allowed)
    if is_last_domain(here, places):
        return Answer(Refusal.LAST_DOMAIN, cluster.taken, cluster.allowed)
    return cluster


def is_last_domain(here: Place, places: Iterable[Place]) -> bool:
    """Whether without this node no domain of its flavor would be healthy, though one is with it."""
    total: Counter[str] = Counter()
    taking: dict[bool, Counter[str]] = defaultdict(Counter)
    for place in places:
        if place.flavor != here.flavor:
            continue
        total[place.domain] += 1
        taking[False][place.domain] += place.takes_jobs
        taking[True][place.domain] += place.takes_jobs and place.node != here.node
    before = any(2 * taking[False][domain] >= count for domain, count in total.items())
    after = any(2 * taking[True][domain] >= count for domain, count in total.items())
    return before and not after
