"""What a rule has found: about which GPU or node, how grave, on what evidence. Made here, acted on by services."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Grade(StrEnum):
    """How grave, in rising order."""

    NOTE = "note"  # written on the timeline
    ALERT = "alert"  # people are told; the GPU stays as it is
    SUSPECT = "suspect"  # no new multi-node gang
    UNHEALTHY = "unhealthy"  # takes no new pod; taken out where the rule may act


RANK = {grade: place for place, grade in enumerate(Grade)}


class Source(StrEnum):
    """Where the signal came from."""

    EXPORTER = "exporter"
    CONDITION = "condition"
    KERNEL = "kernel"
    LABEL = "label"
    ALLOCATABLE = "allocatable"
    REPORT = "report"
    OPERATOR = "operator"
    BURN_IN = "burn_in"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. uuid empty: about the node, or a GPU nobody could name (`index` may still say which).

    at: when the fault became visible to Muster, or when the source says that it happened (never later than now).
    spares_job: a job that dies of it is innocent. node_wide: resetting needs the whole node.
    """

    rule: str
    grade: Grade
    cause: str
    evidence: str
    source: Source
    at: datetime
    uuid: str = ""
    index: int | None = None
    xid: int | None = None
    action: str = ""
    spares_job: bool = False
    numbers: tuple[tuple[str, float | str], ...] = ()
