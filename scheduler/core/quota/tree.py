"""The cohort tree of one flavor, with usage, as Kueue defines it.

Source of the algebra: kueue pkg/cache/scheduler/resource_node.go (subtreeQuota, localQuota,
available, potentialAvailable). Mutable within one pass; built from a snapshot by
`scheduler.core.quota.accounts`. All amounts are GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from scheduler.core.inputs.quotas import FlavorQuota

UNLIMITED = 1 << 60


@dataclass(slots=True)
class Account:
    """A node of the tree: a cohort or, as a leaf, a tenant.

    `subtree` is its own nominal and what its children let it see; `local` the part of it that
    its parent never sees.
    """

    name: str
    quota: FlavorQuota
    parent: Account | None = None
    children: list[Account] = field(default_factory=list)
    subtree: int = 0
    local: int = 0
    usage: int = 0

    @property
    def local_available(self) -> int:
        """What is left of the part that is never lent."""
        return max(0, self.local - self.usage)

    @property
    def borrowed(self) -> int:
        """Use above the subtree's own quota; 0 at a root, which has nobody to borrow from."""
        return 0 if self.parent is None else max(0, self.usage - self.subtree)

    @property
    def _borrowing_limit(self) -> int:
        limit = self.quota.borrowing_limit
        return UNLIMITED if limit is None else limit

    def available(self) -> int:
        """What may still be added here; negative after a cut (over-admission)."""
        if self.parent is None:
            return self.subtree - self.usage
        stored = self.subtree - self.local
        used_above_local = max(0, self.usage - self.local)
        with_limit = stored - used_above_local + self._borrowing_limit
        return self.local_available + min(self.parent.available(), with_limit)

    def potential(self) -> int:
        """The most that it could ever use, with all usage 0."""
        if self.parent is None:
            return self.subtree
        stored = self.subtree - self.local
        return self.local + min(self.parent.potential(), stored + self._borrowing_limit)

    def add(self, gpus: int) -> None:
        """Use `gpus` more: what fits locally stays here, only the excess reaches the parent."""
        excess = max(0, gpus - self.local_available)
        self.usage += gpus
        if self.parent is not None and excess:
            self.parent.add(excess)

    def remove(self, gpus: int) -> None:
        """The reverse of `add`."""
        above_local = max(0, self.usage - self.local)
        self.usage -= gpus
        if self.parent is not None and above_local:
            self.parent.remove(min(gpus, above_local))

    def path(self) -> Iterator[Account]:
        """This account and its ancestors, root last."""
        node: Account | None = self
        while node is not None:
            yield node
            node = node.parent

    @property
    def root(self) -> Account:
        """The top of its tree."""
        return list(self.path())[-1]


def build_tree(
    cohorts: Iterable[tuple[str, str | None, FlavorQuota]],
    tenants: Iterable[tuple[str, str | None, FlavorQuota]],
) -> dict[str, Account]:
    """Tenants' accounts by name, linked into their tree; usage is 0.

    Rows are (name, parent cohort or None, quota). A parent that does not exist counts as none.
    Tenants under a circle of cohorts are left out: they have no quota until it is mended.
    """
    groups = {name: (Account(name, quota), parent) for name, parent, quota in cohorts}
    leaves = {name: (Account(name, quota), parent) for name, parent, quota in tenants}
    for account, parent in (*groups.values(), *leaves.values()):
        if parent is not None and parent in groups:
            account.parent = groups[parent][0]
            account.parent.children.append(account)
    roots = [account for account, _ in (*groups.values(), *leaves.values()) if not account.parent]
    reached: set[int] = set()
    for root in roots:
        _sum_up(root, reached)
    return {name: account for name, (account, _) in leaves.items() if id(account) in reached}


def copied_tree(leaves: Mapping[str, Account]) -> dict[str, Account]:
    """The tenants' accounts with their whole trees, copied."""
    copies: dict[int, Account] = {}

    def copied(account: Account) -> Account:
        found = copies.get(id(account))
        if found is None:
            found = copies[id(account)] = replace(account, parent=None, children=[])
            if account.parent is not None:
                found.parent = copied(account.parent)
                found.parent.children.append(found)
        return found

    return {name: copied(account) for name, account in leaves.items()}


def _sum_up(account: Account, reached: set[int]) -> None:
    """Fill `subtree` and `local` bottom up, noting the accounts seen."""
    reached.add(id(account))
    for child in account.children:
        _sum_up(child, reached)
    lent = sum(child.subtree - child.local for child in account.children)
    account.subtree = account.quota.nominal + lent
    limit = account.quota.lending_limit
    account.local = 0 if limit is None else max(0, account.subtree - limit)
