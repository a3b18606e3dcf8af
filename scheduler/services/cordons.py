"""Who wants which node to take no new pods: the only writer of `Cordon` rows and of a node's cordon columns.

Called by the operator's doors (`services.nodes`), by maintenance windows and by health rules. Each party sets and
lifts its own cordon; the node goes back to work when the last is gone. The `cluster` process makes Kubernetes agree,
and the planner obeys from its next cycle.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from controlplane.common import log
from scheduler.models import Cordon, CordonSource, Node

# The one that speaks for a node that several want out.
WEIGHT = {CordonSource.OPERATOR: 0, CordonSource.HEALTH: 1, CordonSource.WINDOW: 2}
DRAIN_KEY = "drain"
LONGEST_REASON = 1000
COLUMNS = ("cordon_wanted", "cordon_reason", "cordon_by", "cordon_since", "cordon_source")


def set_cordon(  # noqa: PLR0913  who, why and when are all kept
    node: Node,
    *,
    source: CordonSource,
    key: str = "",
    reason: str,
    by: str,
    now: datetime,
    taint: bool = False,
) -> Cordon:
    """One party's cordon of one node. Again with other words replaces the words; the same again writes nothing."""
    set_cordons([node], source=source, key=key, reason=reason, by=by, now=now, taint=taint)
    return Cordon.objects.get(node=node, source=source, key=key)


def set_cordons(  # noqa: PLR0913  as set_cordon
    nodes: Iterable[Node],
    *,
    source: CordonSource,
    key: str = "",
    reason: str,
    by: str,
    now: datetime,
    taint: bool = False,
) -> list[Node]:
    """The same cordon on many nodes, all or none. Returns those that changed, as they are now."""
    with log.writing():
        rows = _locked(nodes)
        known = {c.node_id: c for c in _cordons(rows) if c.source == source and c.key == key}
        wanted = {"reason": reason, "by": by, "taint": taint}
        changed = [row for row in rows if _says(known.get(row.pk)) != wanted]
        Cordon.objects.bulk_create(
            [
                Cordon(
                    node=row,
                    source=source,
                    key=key,
                    since=known[row.pk].since if row.pk in known else now,
                    found_cordoned=_found_cordoned(row),
                    **wanted,
                )
                for row in changed
            ],
            batch_size=500,
            update_conflicts=True,
            unique_fields=["node", "source", "key"],
            update_fields=["reason", "by", "taint"],
        )
        _speak(changed)
        _record("node.cordoned", changed, source, key, by, reason, now)
    return changed


def lift_cordon(
    node: Node,
    *,
    source: CordonSource,
    key: str = "",
    now: datetime,
    by: str = "",
    reason: str = "",
) -> list[Cordon]:
    """Take back this party's cordon of one node; absent is done. Returns the cordons that remain."""
    lift_cordons([node], source=source, key=key, now=now, by=by, reason=reason)
    return cordons_of([node])


def lift_cordons(
    nodes: Iterable[Node],
    *,
    source: CordonSource,
    key: str = "",
    now: datetime,
    by: str = "",
    reason: str = "",
) -> list[Node]:
    """Take back this party's cordon of many nodes. Returns those that had it, as they are now.

    A node that somebody had cordoned outside Muster before is left cordoned.
    """
    with log.writing():
        rows = _locked(nodes)
        gone = {c.node_id: c for c in _cordons(rows) if c.source == source and c.key == key}
        changed = [row for row in rows if row.pk in gone]
        Cordon.objects.filter(pk__in=[c.pk for c in gone.values()]).delete()
        found = {pk for pk, cordon in gone.items() if cordon.found_cordoned}
        Cordon.objects.filter(node_id__in=found).update(found_cordoned=True)
        _speak(changed, found)
        _record("node.uncordoned", changed, source, key, by or source, reason, now)
    return changed


def free_by_operator(node: Node, *, reason: str, by: str, now: datetime) -> list[Cordon]:
    """A person wants the node back: the operator's cordons go, and what was set outside Muster too.

    Windows and health rules keep theirs, which are returned.
    """
    with log.writing():
        (row,) = _locked([node])
        Cordon.objects.filter(node=row, source=CordonSource.OPERATOR).delete()
        Cordon.objects.filter(node=row).update(found_cordoned=False)
        _speak([row])
        _record("node.uncordoned", [row], CordonSource.OPERATOR, "", by, reason, now)
    return cordons_of([row])


def cordons_of(nodes: Iterable[Node]) -> list[Cordon]:
    """The cordons of these nodes, the weightiest first."""
    return sorted(_cordons(nodes), key=_weight)


def _locked(nodes: Iterable[Node]) -> list[Node]:
    """The nodes as they are now, locked in one order, so that two parties take turns."""
    rows = Node.objects.select_for_update(of=("self",)).select_related("cluster")
    return list(rows.filter(pk__in=[node.pk for node in nodes]).order_by("pk"))


def _cordons(nodes: Iterable[Node]) -> list[Cordon]:
    return list(Cordon.objects.filter(node__in=[node.pk for node in nodes]))


def _weight(cordon: Cordon) -> tuple[int, bool, datetime, str]:
    is_drain = cordon.key == DRAIN_KEY
    return WEIGHT[CordonSource(cordon.source)], not is_drain, cordon.since, cordon.key


def _spoken(cordon: Cordon) -> str:
    """Whose cordon it is, as the node's column says it: a drain is an operator's, and more than a cordon."""
    is_drain = cordon.source == CordonSource.OPERATOR and cordon.key == DRAIN_KEY
    return DRAIN_KEY if is_drain else cordon.source


def _says(cordon: Cordon | None) -> dict[str, object] | None:
    if cordon is None:
        return None
    return {"reason": cordon.reason, "by": cordon.by, "taint": cordon.taint}


def _found_cordoned(node: Node) -> bool:
    """Whether Kubernetes has it cordoned while Muster wants nothing of it."""
    return node.unschedulable and node.cordon_wanted is None


def _speak(nodes: Sequence[Node], found: Iterable[int] = ()) -> None:
    """Keep the nodes' own columns in step with their cordons. `found`: pks that were cordoned before us."""
    by_node: dict[int, list[Cordon]] = defaultdict(list)
    for cordon in _cordons(nodes):
        by_node[cordon.node_id].append(cordon)
    for node in nodes:
        speaker = min(by_node[node.pk], key=_weight, default=None)
        if speaker is None:
            node.cordon_wanted = None if node.pk in set(found) else False
            node.cordon_reason = node.cordon_by = node.cordon_source = ""
            node.cordon_since = None
        else:
            node.cordon_wanted, node.cordon_source = True, _spoken(speaker)
            node.cordon_reason, node.cordon_by = speaker.reason, speaker.by
            node.cordon_since = speaker.since
    Node.objects.bulk_update(nodes, COLUMNS, batch_size=500)


def _record(  # noqa: PLR0913  the parts of an event
    kind: str,
    nodes: Iterable[Node],
    source: CordonSource,
    key: str,
    by: str,
    reason: str,
    now: datetime,
) -> None:
    log.record(
        *(
            log.NewEvent(
                kind=kind,
                at=now,
                cluster=node.cluster.name,
                node=node.name,
                actor=by,
                message=reason,
                numbers={"source": str(source), "key": key},
            )
            for node in nodes
        )
    )
