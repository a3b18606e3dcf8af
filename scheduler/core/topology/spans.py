"""Nodes and amounts of many holders, one holder after another, as flat arrays.

What running jobs hold, what comes free when, what bookings claim: asked about all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.core.topology.grid import RESOURCES, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """`nodes` (entries) and `amounts` (4, entries); holder i has entries `offsets[i]:offsets[i+1]`,
    each of another node."""

    nodes: Ints
    amounts: Ints
    offsets: Ints

    @property
    def sizes(self) -> Ints:
        """How many nodes each holder has."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def owners(self) -> Ints:
        """The holder of each entry."""
        return np.repeat(np.arange(self.offsets.size - 1), self.sizes)

    def picked(self, holders: Ints) -> Spans:
        """These holders' entries, in this order."""
        sizes = self.sizes[holders]
        offsets = _offsets(sizes)
        shifts = np.repeat(self.offsets[:-1][holders] - offsets[:-1], sizes)
        entries = np.arange(offsets[-1]) + shifts
        return Spans(self.nodes[entries], self.amounts[:, entries], offsets)

    def followed_by(self, other: Spans) -> Spans:
        """Both, one after the other."""
        return Spans(
            np.concatenate((self.nodes, other.nodes)),
            np.concatenate((self.amounts, other.amounts), axis=1),
            np.concatenate((self.offsets, other.offsets[1:] + self.offsets[-1])),
        )

    def inserted(self, place: int, nodes: Ints, amounts: Ints) -> Spans:
        """With one more holder before the one at `place`."""
        at = int(self.offsets[place])
        return Spans(
            np.concatenate((self.nodes[:at], nodes, self.nodes[at:])),
            np.concatenate((self.amounts[:, :at], amounts, self.amounts[:, at:]), axis=1),
            np.concatenate((self.offsets[: place + 1], self.offsets[place:] + nodes.size)),
        )

    def without(self, place: int) -> Spans:
        """Without the holder at `place`."""
        first, last = int(self.offsets[place]), int(self.offsets[place + 1])
        return Spans(
            np.concatenate((self.nodes[:first], self.nodes[last:])),
            np.concatenate((self.amounts[:, :first], self.amounts[:, last:]), axis=1),
            np.concatenate((self.offsets[:place], self.offsets[place + 1 :] - (last - first))),
        )


def spans_of(holders: Sequence[tuple[Ints, Ints]]) -> Spans:
    """The (nodes, amounts) of each holder, flat."""
    if not holders:
        nothing = np.zeros(0, dtype=np.int64)
        return Spans(nothing, np.zeros((RESOURCES, 0), dtype=np.int64), np.zeros(1, dtype=np.int64))
    sizes = np.array([nodes.size for nodes, _ in holders], dtype=np.int64)
    return Spans(
        np.concatenate([nodes for nodes, _ in holders]),
        np.concatenate([amounts for _, amounts in holders], axis=1),
        _offsets(sizes),
    )


def summed(nodes: Ints, amounts: Ints) -> tuple[Ints, Ints]:
    """The distinct nodes, ascending, and the (4, nodes) sums of their amounts."""
    if not nodes.size:
        return nodes, amounts
    order = nodes.argsort(kind="stable")
    nodes = nodes[order]
    is_first = np.empty(nodes.size, dtype=np.bool_)
    is_first[0] = True
    np.not_equal(nodes[1:], nodes[:-1], out=is_first[1:])
    firsts = is_first.nonzero()[0]
    return nodes[firsts], np.add.reduceat(amounts[:, order], firsts, axis=1)


def _offsets(sizes: Ints) -> Ints:
    offsets = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets
