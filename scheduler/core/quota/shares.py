"""Dominant resource share of a tenant or cohort, as Kueue defines it.

Source: kueue pkg/cache/scheduler/fair_sharing.go and keps/1714. A share is in thousandths of what
the parent could lend; flavors stand in for resources. Used by order and by preemption.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scheduler.core.quota.tree import Account


def share(account: Account, extra_gpus: int = 0) -> float:
    """The weighted share of one account with `extra_gpus` counted; 0 unless it borrows."""
    if account.parent is None:
        return 0.0
    borrowed = account.usage + extra_gpus - account.subtree
    if borrowed <= 0:
        return 0.0
    lendable = account.parent.potential()
    ratio = borrowed * 1000.0 / lendable if lendable > 0 else math.inf
    weight = account.quota.weight
    return ratio / weight if weight > 0 else math.inf


def dominant_share(accounts: Iterable[Account | None], extra: dict[str, int]) -> float:
    """The largest share over flavors; `extra` GPUs per flavor are counted as used."""
    shares = [share(a, extra.get(a.quota.flavor, 0)) for a in accounts if a is not None]
    return max(shares, default=0.0)


def bubbled(path: list[Account], gpus: int) -> list[int]:
    """How much of `gpus` more at the leaf reaches each account of its path."""
    amounts = []
    for account in path:
        amounts.append(gpus)
        gpus = max(0, gpus - account.local_available)
    return amounts
