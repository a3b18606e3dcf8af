"""When a window would cost least: "12 nodes of leaf-02, 2 hours, within 7 days". Nothing is stored.

Every quarter-hour is priced by what running jobs would lose; the cheapest few are then tried by the planner, which
says whose starts they would delay. The price is in GPU seconds: work thrown away, machines that stand idle before
the start, and starts delayed times their GPUs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common.errors import ErrorCollector
from queues.contract.reading import Reader
from queues.models import Cluster
from queues.selectors.answers import time_text
from scheduler.maintenance.life import Departure, Way, departure
from scheduler.maintenance.selection import selector_of
from scheduler.models import RunningJobs
from scheduler.selectors.windows import node_looks, windows_of
from scheduler.services.departures import Leaver, leavers
from scheduler.services.whatif import delays_by_windows
from scheduler.services.window_fields import read_nodes
from tenants.access import Actor, Right, require

Json = dict[str, Any]
SHOWN = 3
TRIED = 8
STEP = timedelta(minutes=15)
# Times that lie closer together are one proposal.
APART = timedelta(hours=1)
# People need so long to hear of it.
SOONEST = timedelta(minutes=15)
MOST_DAYS = 31
MOST_MINUTES = 14 * 24 * 60


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody needs. names: nodes that would do; count: how many of them."""

    cluster: Cluster
    names: frozenset[str]
    count: int
    length: timedelta
    since: datetime
    until: datetime
    running_jobs: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A time with its nodes and what running jobs would lose, in GPU seconds."""

    starts_at: datetime
    nodes: frozenset[str]
    stopped: int
    lost: float
    idle: float
    delay: Mapping[str, int] | None = None

    @property
    def price(self) -> float:
        """All of it in GPU seconds."""
        return self.lost + self.idle + (self.delay["gpu_seconds"] if self.delay else 0)


def propose(actor: Actor, sent: Mapping[str, Any], now: datetime) -> list[Json]:
    """The best times, the best first. Raises InvalidError, and UnavailableError when the planner is away."""
    require(actor, Right.OPERATE_WINDOWS)
    wish = read_wish(sent, now)
    return [_answer(each, wish.length) for each in best_times(wish, now)]


def read_wish(sent: Mapping[str, Any], now: datetime) -> Wish:
    """What was asked. Raises InvalidError with pointers."""
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    reader.required("cluster", "nodes", "duration_minutes")
    cluster = Cluster.objects.filter(name=reader.text("cluster", longest=40)).first()
    if cluster is None and reader.has("cluster"):
        reader.fault("cluster", "unknown_cluster", _("is not a cluster"))
    nodes = read_nodes(reader, cluster) if cluster else reader.take("nodes")
    count = reader.optional_whole("count", least=1)
    minutes = reader.whole("duration_minutes", 1, least=1, most=MOST_MINUTES)
    days = reader.whole("within_days", 7, least=1, most=MOST_DAYS)
    since = max(reader.moment("not_before") or now, now + SOONEST)
    running_jobs = reader.choice("running_jobs", RunningJobs.CHECKPOINT, RunningJobs.values)
    reader.finish()
    names: frozenset[str] = frozenset()
    if not errors.found and cluster is not None:
        names = selector_of(nodes).of(node_looks(cluster))
        if count is not None and count > len(names):
            message = _("only {n} nodes are meant").format(n=len(names))
            reader.fault("count", "too_large", message)
        if since >= now + timedelta(days=days):
            reader.fault("not_before", "too_late", _("must be within within_days"))
    errors.raise_if_any()
    assert cluster is not None  # an unknown one is an error
    return Wish(
        cluster=cluster,
        names=names,
        count=count or len(names),
        length=timedelta(minutes=minutes),
        since=since,
        until=now + timedelta(days=days),
        running_jobs=running_jobs,
    )


def best_times(
    wish: Wish,
    now: datetime,
    delays: Callable[[str, Sequence[Json]], Sequence[Json | None]] = delays_by_windows,
) -> list[Candidate]:
    """At most three candidates by price, an hour apart. delays: the planner's word on each window."""
    priced = sorted(_candidates(wish, now), key=lambda each: (each.price, each.starts_at))
    chosen = list(_apart(priced, TRIED))
    if not chosen:
        return []
    asked = [_window_json(each, wish) for each in chosen]
    told = delays(wish.cluster.name, asked)
    tried = [
        replace(each, delay=delay)
        for each, delay in zip(chosen, told, strict=True)
        if delay is not None
    ]
    return sorted(tried, key=lambda each: (each.price, each.starts_at))[:SHOWN]


def _candidates(wish: Wish, now: datetime) -> Iterator[Candidate]:
    found = leavers(wish.cluster, wish.names)
    taken = [
        (window.starts_at, window.ends_at, window.nodes)
        for window in windows_of(wish.cluster, now, wish.until - now + wish.length)
    ]
    for starts_at in _starts(wish):
        begin, end = starts_at.timestamp(), (starts_at + wish.length).timestamp()
        busy = [nodes for since, until, nodes in taken if since < end and until > begin]
        names = wish.names.difference(*busy)
        if len(names) >= wish.count:
            yield _priced(wish, starts_at, names, found, now)


def _starts(wish: Wish) -> Iterator[datetime]:
    """Quarter-hours from `since` to `until`."""
    step = STEP.total_seconds()
    at = datetime.fromtimestamp(-(-wish.since.timestamp() // step) * step, UTC)
    while at <= wish.until:
        yield at
        at += STEP


def _priced(
    wish: Wish,
    starts_at: datetime,
    names: frozenset[str],
    found: Iterable[Leaver],
    now: datetime,
) -> Candidate:
    """The nodes whose jobs lose least then, gang by gang, until there are enough."""
    parts = [
        (each, departure(each.runner, wish.running_jobs, starts_at, None, now)) for each in found
    ]
    held = frozenset().union(*(each.nodes for each, _part in parts))
    nodes = set(sorted(names - held)[: wish.count])
    for each, _part in sorted(parts, key=lambda pair: _price_a_node(pair, names, starts_at)):
        if len(nodes) >= wish.count:
            break
        more = sorted((each.nodes & names) - nodes)[: wish.count - len(nodes)]
        nodes.update(more)
    chosen = [pair for pair in parts if pair[0].nodes & nodes]
    return Candidate(
        starts_at,
        frozenset(nodes),
        stopped=sum(part.way is not Way.ENDS for _each, part in chosen),
        lost=sum(part.lost_seconds * each.runner.gpus for each, part in chosen),
        idle=sum(_idle(each, part, starts_at) for each, part in chosen),
    )


def _price_a_node(
    pair: tuple[Leaver, Departure], names: frozenset[str], starts_at: datetime
) -> tuple[float, int]:
    each, part = pair
    price = part.lost_seconds * each.runner.gpus + _idle(each, part, starts_at)
    return price / max(1, len(each.nodes & names)), each.attempt.pk


def _idle(each: Leaver, part: Departure, starts_at: datetime) -> float:
    """GPU seconds between the gang's end and the start. One that ends by itself leaves room for others."""
    if part.way is Way.ENDS or part.leaves_at is None or part.leaves_at >= starts_at:
        return 0.0
    return (starts_at - part.leaves_at).total_seconds() * each.runner.gpus


def _apart(candidates: Iterable[Candidate], most: int) -> Iterator[Candidate]:
    taken: list[datetime] = []
    for each in candidates:
        if len(taken) == most:
            return
        if all(abs(each.starts_at - at) >= APART for at in taken):
            taken.append(each.starts_at)
            yield each


def _window_json(each: Candidate, wish: Wish) -> Json:
    return {
        "starts_at": each.starts_at.timestamp(),
        "ends_at": (each.starts_at + wish.length).timestamp(),
        "nodes": sorted(each.nodes),
    }


def _answer(each: Candidate, length: timedelta) -> Json:
    delay = each.delay or {"jobs": 0, "seconds": 0, "gpu_seconds": 0}
    return {
        "starts_at": time_text(each.starts_at),
        "ends_at": time_text(each.starts_at + length),
        "nodes": sorted(each.nodes),
        "jobs_stopped": each.stopped,
        "lost_gpu_seconds": round(each.lost),
        "idle_gpu_seconds": round(each.idle),
        "delayed_starts": delay["jobs"],
        "delayed_seconds": delay["seconds"],
    }
