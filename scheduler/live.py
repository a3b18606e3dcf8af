"""What pages of the scheduler are told as it happens (docs/live.md): topics `map`, `cluster`, `plan`, `health`,
`windows` and `alerts`. All but the map are nudges: the page fetches its part anew, through its own selectors.

Everyone who is signed in sees each node's counts; the names of jobs only by the job selector.
"""

from collections.abc import Hashable, Iterable

from django.db.models import F
from django.template.loader import render_to_string

from controlplane.common.live import EVERY, Fragment, Heard, Rendered, Topic, Viewer
from queues.models import Cluster, Job, Placement
from scheduler.selectors.alerts import open_alerts
from scheduler.selectors.node_facts import NodeFacts, jobs_on_nodes, node_facts
from scheduler.views.maps import map_class
from tenants.watching import actor_of, may_concern, sight_of

# More nodes than this at once: the table's page loads itself again, the map takes the classes all the same.
MOST_ROWS = 200
JOB_KINDS = ("job.phase", "placement.", "attempt.")


def _changes(heard: Heard) -> Iterable[tuple[str, str]]:
    """Nodes by name; a job stands for the nodes it is on or was on."""
    if not heard.cluster:
        return ()
    if heard.node:
        return ((heard.cluster, f"node:{heard.node}"),)
    if heard.job and heard.kind.startswith(JOB_KINDS):
        return ((heard.cluster, f"job:{heard.job}"),)
    return ((heard.cluster, "all"),) if heard.kind.startswith("cluster.") else ()


def _sight(viewer: Viewer, cluster: str) -> Hashable | None:
    return sight_of(actor_of(viewer)) if Cluster.objects.filter(name=cluster).exists() else None


def _changed_nodes(viewer: Viewer, name: str, rows: frozenset[str]) -> Rendered:
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is None:
        return Rendered()
    nodes = None if "all" in rows else _named(cluster, rows)
    facts = node_facts(cluster, nodes) if nodes is None or nodes else []
    svg = [(f"n-{each.name}", map_class(each)) for each in facts]
    return Rendered(_row_fragments(viewer, cluster, facts), svg=svg)


def _named(cluster: Cluster, rows: frozenset[str]) -> set[str]:
    """The nodes that the rows speak of. A job's last two attempts: one may end while the next is placed."""
    nodes = {row.removeprefix("node:") for row in rows if row.startswith("node:")}
    jobs = [row.removeprefix("job:") for row in rows if row.startswith("job:")]
    if jobs:
        placements = Placement.objects.filter(
            attempt__cluster=cluster,
            attempt__job__in=Job.objects.filter(pk__in=jobs),
            attempt__number__gte=F("attempt__job__attempt_number") - 1,
        )
        nodes.update(placements.values_list("node", flat=True).distinct())
    return nodes


def _row_fragments(viewer: Viewer, cluster: Cluster, facts: list[NodeFacts]) -> list[Fragment]:
    if len(facts) > MOST_ROWS:
        return [Fragment("#nodes-changed")]
    placements = jobs_on_nodes(actor_of(viewer), cluster, [each.name for each in facts])
    return [
        Fragment(
            f"#node-{each.name}",
            render_to_string(
                "scheduler/_node_row.html",
                {"node": each, "jobs": _jobs_of(placements.get(each.name, []))},
            ),
        )
        for each in facts
    ]


def _jobs_of(placements: list[Placement]) -> list[Job]:
    """The different jobs of these placements, in order."""
    return list({p.attempt.job_id: p.attempt.job for p in placements}.values())


def _nudge(name: str, kinds: tuple[str, ...], *, by_cluster: bool) -> Topic:
    """A topic that says only that something of these kinds has happened. The argument is a cluster, or empty."""

    def changes(heard: Heard) -> Iterable[tuple[str, str]]:
        if not heard.kind.startswith(kinds) or heard.kind in QUIET:
            return ()
        return ((heard.cluster if by_cluster and heard.cluster else EVERY, heard.kind),)

    def sight(viewer: Viewer, argument: str) -> Hashable | None:
        if by_cluster and not Cluster.objects.filter(name=argument).exists():
            return None
        return sight_of(actor_of(viewer))

    def nudge(_viewer: Viewer, _argument: str, _rows: frozenset[str]) -> Rendered:
        return Rendered(nudge=True)

    return Topic(name, changes, sight, nudge, may_concern)


def _alert_changes(heard: Heard) -> Iterable[tuple[str, str]]:
    return ((EVERY, heard.kind),) if heard.kind.startswith("alert.") else ()


def _alert_sight(viewer: Viewer, _argument: str) -> Hashable:
    return sight_of(actor_of(viewer))


def _changed_alerts(viewer: Viewer, _argument: str, _rows: frozenset[str]) -> Rendered:
    """The number beside the rail's item; the list fetches itself anew."""
    return Rendered(counts={"alerts": open_alerts(actor_of(viewer))}, nudge=True)


# Happens with every job that comes or goes, and changes nothing that these pages say.
QUIET = frozenset({"node.usage"})

TOPICS = (
    Topic("map", _changes, _sight, _changed_nodes),
    _nudge("cluster", ("cluster.", "node.", "flavor.", "ledger."), by_cluster=True),
    _nudge(
        "plan",
        ("job.phase", "job.reason", "attempt.", "booking.", "hold.", "eviction.", "window."),
        by_cluster=False,
    ),
    _nudge("health", ("gpu.", "health.", "node.", "burn_in.", "rule."), by_cluster=False),
    _nudge("windows", ("window.", "drain.", "node.", "reservation."), by_cluster=False),
    Topic("alerts", _alert_changes, _alert_sight, _changed_alerts, may_concern),
)
