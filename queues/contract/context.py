"""What the readers of the contract share: the queue's offer, the moment, the errors, the defaults used. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.common.errors import ErrorCollector
from queues.specs import FlavorOffer, QueueOffer


@dataclass(slots=True)
class Context:
    """One job being read. `offer` is None when tenant or queue are unknown: what depends on it is not checked.

    flavors: the candidates, once `gpu_model` has been read. prefixes: allowed in labels and annotations.
    """

    now: datetime
    offer: QueueOffer | None
    prefixes: tuple[str, ...]
    errors: ErrorCollector = field(default_factory=ErrorCollector)
    defaults: dict[str, str] = field(default_factory=dict)
    flavors: tuple[FlavorOffer, ...] = ()

    def note_default(self, pointer: str, source: str) -> None:
        """Remember where a value that nobody sent came from."""
        self.defaults[pointer] = source

    @property
    def levels(self) -> tuple[str, ...]:
        """The cluster's levels, widest first."""
        return self.offer.levels if self.offer else ()

    @property
    def presets(self) -> Mapping[str, tuple[int, int | None]]:
        """The queue's presets by name."""
        return self.offer.presets if self.offer else {}
