"""What new events of the log mean for a snapshot: which jobs and nodes to read again. Pure but for one query.

Called by `scheduler.snapshot.warm` and the pacemaker. An event of a kind that is not known here makes the
policy be read again: a few small queries are cheaper than a snapshot that is wrong.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from controlplane.common.models import Event

# More than this is not worth reading one by one.
MOST_EVENTS = 20_000
# So many at once are news, whatever they say.
FEW_EVENTS = 20

# Events that change nothing which the planner reads. The first two are the loop's own.
WITHOUT_EFFECT = frozenset({"job.reason", "jobs.reason"})
WITHOUT_EFFECT_PREFIXES = (
    "audit.",
    "token.",
    "secret.",
    "member.",
    "user.",
    "quota_request.",
    "log.",
)

# Events of maintenance windows and reservations.
WINDOW_PREFIX = "window."


@dataclass(slots=True)
class Changes:
    """What has to be read again. `seq` is the number of the newest event that was looked at."""

    seq: int
    jobs: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    all_nodes: bool = False
    policy: bool = False
    windows: bool = False
    everything: bool = False

    def __bool__(self) -> bool:
        some = self.jobs or self.nodes or self.all_nodes or self.policy
        return bool(some or self.windows or self.everything)


@dataclass(frozen=True, slots=True)
class Line:
    """The part of an event that is looked at."""

    seq: int
    kind: str
    job: str
    cluster: str
    node: str


def changes_since(seq: int, cluster: str) -> Changes:
    """Read the log after `seq` and say what it means for `cluster`."""
    rows = Event.objects.filter(seq__gt=seq).order_by("seq")
    lines = [
        Line(*row)
        for row in rows.values_list("seq", "kind", "job", "cluster", "node")[: MOST_EVENTS + 1]
    ]
    if len(lines) > MOST_EVENTS:
        newest = Event.objects.order_by("-seq").values_list("seq", flat=True)[0]
        return Changes(seq=newest, everything=True)
    return meaning_of(lines, seq, cluster)


def is_news_after(seq: int, cluster: str) -> bool:
    """Whether the log has anything after `seq` that means something for `cluster`. One query, of few rows."""
    rows = Event.objects.filter(seq__gt=seq).exclude(kind__in=WITHOUT_EFFECT).order_by("seq")
    found = rows.values_list("seq", "kind", "job", "cluster", "node")[:FEW_EVENTS]
    return len(found) == FEW_EVENTS or any(_concerns(Line(*row), cluster) for row in found)


def meaning_of(lines: Iterable[Line], seq: int, cluster: str) -> Changes:
    """The changes that `lines`, in order, make to the snapshot of `cluster`."""
    changes = Changes(seq=seq)
    for line in lines:
        changes.seq = line.seq
        if _concerns(line, cluster):
            _note(line, changes)
    return changes


def _concerns(line: Line, cluster: str) -> bool:
    # A job may have come from another cluster, or wait for one there.
    if not line.job and line.cluster not in ("", cluster):
        return False
    return line.kind not in WITHOUT_EFFECT and not line.kind.startswith(WITHOUT_EFFECT_PREFIXES)


def _note(line: Line, changes: Changes) -> None:
    if line.kind.startswith(WINDOW_PREFIX):
        changes.windows = True
        return
    if line.job:
        changes.jobs.add(line.job)
    if line.node:
        changes.nodes.add(line.node)
    if not line.job and not line.node:
        if line.kind.startswith("node"):
            changes.all_nodes = True
        else:
            changes.policy = True
