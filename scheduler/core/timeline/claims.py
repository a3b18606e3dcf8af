"""Nodes that are kept for booked jobs over a time, all claims of one field at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.core.roster import Floats
from scheduler.core.topology.grid import Ints
from scheduler.core.topology.spans import Spans, spans_of, summed

_CLAIMS_EXACT = 8


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """Nodes kept for a booked job over [start, until)."""

    job: str
    start: float
    until: float
    nodes: Ints
    amounts: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """Claims as arrays, in the order in which they were made."""

    starts: Floats
    untils: Floats
    spans: Spans

    def followed_by(self, claim: Claim) -> Claims:
        """With one more claim."""
        return Claims(
            np.append(self.starts, claim.start),
            np.append(self.untils, claim.until),
            self.spans.followed_by(spans_of([(claim.nodes, claim.amounts)])),
        )

    def beside(
        self, start: float, until: float, free_on: Callable[[Ints, float], Ints]
    ) -> tuple[Ints, Ints]:
        """Nodes that are claimed at any time in [start, until), and the least (4, nodes) that is
        free on them meanwhile; `free_on` gives what is free at a moment without claims.

        Releases inside the interval only add, so the least is at its start or where a claim begins
        inside it. With many claims all are counted as if at once: less than there is, never more.
        """
        if not self.starts.size:
            return self.spans.nodes, self.spans.amounts
        overlapping = ((self.starts < until) & (self.untils > start)).nonzero()[0]
        every = overlapping.size == self.starts.size
        spans = self.spans if every else self.spans.picked(overlapping)
        starts = self.starts[overlapping]
        nodes, claimed = summed(spans.nodes, spans.amounts)
        later = starts[starts > start]
        if overlapping.size > _CLAIMS_EXACT or not later.size:
            return nodes, free_on(nodes, start) - claimed
        least: Ints | None = None
        for moment in sorted({start, *later.tolist()}):
            active = (starts <= moment) & (self.untils[overlapping] > moment)
            free = free_on(nodes, moment)
            mine = spans.picked(np.flatnonzero(active))
            touched, amounts = summed(mine.nodes, mine.amounts)
            free[:, np.searchsorted(nodes, touched)] -= amounts
            least = free if least is None else np.minimum(least, free)
        return nodes, free_on(nodes, start) if least is None else least


def claims_of(claims: Sequence[Claim]) -> Claims:
    """These claims as arrays."""
    if not claims:
        return _NO_CLAIMS
    return Claims(
        np.array([claim.start for claim in claims], dtype=np.float64),
        np.array([claim.until for claim in claims], dtype=np.float64),
        spans_of([(claim.nodes, claim.amounts) for claim in claims]),
    )


_NO_CLAIMS = Claims(np.zeros(0), np.zeros(0), spans_of(()))
