"""How much of a quota is used, borrowed and lent. Pure. Called by `selectors.quotas`."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holding:
    """One tenant's share of one flavor, and what it uses. GPUs; None: no limit."""

    nominal: int
    used: int = 0
    outside: int = 0
    headroom: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None

    @property
    def in_use(self) -> int:
        """What counts against the quota: jobs and foreign pods."""
        return self.used + self.outside

    @property
    def borrowed(self) -> int:
        """What is used above nominal."""
        return max(0, self.in_use - self.nominal)

    @property
    def lendable(self) -> int:
        """What others may use of it now: what is idle, kept headroom aside, within the lending limit."""
        idle = max(0, self.nominal - max(self.in_use, self.headroom))
        return idle if self.lending_limit is None else min(idle, self.lending_limit)


def lent_shares(holdings: Mapping[int, Holding]) -> dict[int, int]:
    """Of each tenant of one cohort tree (by id) how much of its idle quota others use.

    GPUs are not marked as lent by somebody: what is borrowed in the tree is spread over those who have idle
    quota, in proportion to it, in whole GPUs by largest remainder (ties to the lower id).
    """
    borrowed = sum(holding.borrowed for holding in holdings.values())
    idle = sum(holding.lendable for holding in holdings.values())
    spread = min(borrowed, idle)
    if not spread:
        return dict.fromkeys(holdings, 0)
    exact = {key: holding.lendable * spread for key, holding in holdings.items()}
    shares = {key: amount // idle for key, amount in exact.items()}
    left = spread - sum(shares.values())
    by_remainder = sorted(exact, key=lambda key: (-(exact[key] % idle), key))
    for key in by_remainder[:left]:
        shares[key] += 1
    return shares
