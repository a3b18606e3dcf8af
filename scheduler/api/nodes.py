"""Nodes over REST: counts for everyone who is signed in, jobs for those who may see them, cordons for operators."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone
from drf_spectacular.utils import (
    OpenApiParameter,
    PolymorphicProxySerializer,
    extend_schema,
    extend_schema_view,
)
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.idempotency import idempotent
from controlplane.common.parsers import json_object
from queues.api.doors import IDEMPOTENCY_KEY, Door, only_field
from queues.api.shapes import ProblemShape
from queues.models import Cluster
from queues.selectors.answers import time_text
from scheduler.api import shapes, window_shapes
from scheduler.api.windows import PREVIEW, is_preview
from scheduler.models import ForeignPod, Node
from scheduler.selectors.node_facts import NodeFacts, jobs_on_nodes, node_facts
from scheduler.selectors.topology import Counts, Domain, counts_of, tree_of
from scheduler.services.cordons import LONGEST_REASON, cordons_of
from scheduler.services.departures import outlook_answer
from scheduler.services.drains import (
    drain_answer,
    drain_nodes,
    open_drains,
    preview_drain,
    read_drain,
)
from scheduler.services.nodes import cluster_of, cordon_node, node_of, uncordon_node
from tenants.access import Actor, Right, may, require
from tenants.selectors import tenants_visible_to

Json = dict[str, Any]
SCOPES = {"read": "nodes:read", "write": "nodes:write"}


class Nodes(Door):
    """The nodes of all clusters."""

    required_scopes = SCOPES
    serializer_class = shapes.NodeAnswer
    queryset = Node.objects.none()
    seek_order = ("cluster_id", "name")

    @extend_schema(
        operation_id="nodes_list",
        parameters=[
            OpenApiParameter("cluster", str, description="Only nodes of this cluster."),
            OpenApiParameter("state", str, description="Only nodes in this state."),
            OpenApiParameter("flavor", str, description="Only nodes of this flavor."),
            OpenApiParameter("search", str, description="Only nodes whose name contains this."),
        ],
        responses=shapes.NodeAnswer(many=True),
    )
    def get(self, request: Request) -> Response:
        """By cluster, then name."""
        actor = self.actor()
        return self.page(_wanted(request), lambda rows: _answers(actor, rows))


def _wanted(request: Request) -> QuerySet[Node]:
    rows = Node.objects.filter(gone_at__isnull=True).select_related("cluster")
    sent = request.query_params
    if cluster := sent.get("cluster"):
        rows = rows.filter(cluster__name=cluster)
    if flavor := sent.get("flavor"):
        rows = rows.filter(flavor__name=flavor)
    if search := sent.get("search"):
        rows = rows.filter(name__icontains=search)
    if state := sent.get("state"):
        rows = rows.filter(_in_state(state, sent.get("cluster")))
    return rows


def _in_state(state: str, cluster: str | None) -> Q:
    """States are not stored: they follow from causes and seats."""
    clusters = Cluster.objects.filter(name=cluster) if cluster else Cluster.objects.all()
    found = Q(pk__in=())
    for each in clusters:
        names = [facts.name for facts in node_facts(each) if facts.state == state]
        found |= Q(cluster=each, name__in=names)
    return found


def _answers(actor: Actor, rows: Sequence[Node]) -> list[Json]:
    by_cluster: dict[Cluster, list[str]] = {}
    for row in rows:
        by_cluster.setdefault(row.cluster, []).append(row.name)
    answers = []
    for cluster, names in by_cluster.items():
        facts = {each.name: each for each in node_facts(cluster, names)}
        jobs = _job_ids(actor, cluster, names)
        mine = [row for row in rows if row.cluster == cluster]
        cordons, drains = cordon_answers(mine), drain_answers(mine)
        answers += [
            node_answer(facts[n], jobs.get(n, []))
            | {"cordons": cordons.get(n, []), "drain": drains.get(n)}
            for n in names
            if n in facts
        ]
    return answers


def cordon_answers(nodes: Iterable[Node]) -> dict[str, list[Json]]:
    """Who wants each node out, by its name, the weightiest first."""
    names = {node.pk: node.name for node in nodes}
    found: dict[str, list[Json]] = {}
    for cordon in cordons_of(Node(pk=pk) for pk in names):
        answer = {
            "source": cordon.source,
            "reason": cordon.reason,
            "by": cordon.by,
            "since": time_text(cordon.since),
            "taint": cordon.taint,
        }
        found.setdefault(names[cordon.node_id], []).append(answer)
    return found


def _job_ids(actor: Actor, cluster: Cluster, names: Sequence[str]) -> dict[str, list[str]]:
    placements = jobs_on_nodes(actor, cluster, names)
    return {
        node: list(dict.fromkeys(each.attempt.job_id for each in found))
        for node, found in placements.items()
    }


def node_answer(node: NodeFacts, jobs: Sequence[str]) -> Json:
    """The contract's answer."""
    return {
        "name": node.name,
        "cluster": node.cluster,
        "state": node.state,
        "since": time_text(node.since),
        "cause": node.cause or None,
        "by": node.by or None,
        "gpus": {
            "capacity": node.capacity,
            "allocatable": node.allocatable,
            "used": node.used + node.foreign,
            "free": node.free,
            "out": node.out,
        },
        "flavor": node.flavor or None,
        "domains": dict(node.domains),
        "driver": node.driver or None,
        "cuda": node.cuda or None,
        "jobs": list(jobs),
    }


def drain_answers(nodes: Sequence[Node]) -> dict[str, Json]:
    """What empties each node, by its name."""
    names = {node.pk: node.name for node in nodes}
    return {names[pk]: drain_answer(drain) for pk, drain in open_drains(nodes).items()}


class OneNode(Door):
    """One node."""

    required_scopes = SCOPES
    serializer_class = shapes.NodeAnswer

    @extend_schema(operation_id="nodes_retrieve", responses=shapes.NodeAnswer)
    def get(self, request: Request, cluster: str, node: str) -> Response:
        """State and cause, counts, the jobs on it that the caller may see."""
        return Response(_answers(self.actor(), [node_of(cluster, node)])[0])


class _Wish(Door):
    """An operator's wish for one node."""

    required_scopes = SCOPES
    serializer_class = shapes.NodeAnswer
    wanted = True

    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        request=shapes.ReasonRequired,
        responses={200: shapes.NodeAnswer, 403: ProblemShape, 422: ProblemShape},
    )
    @idempotent()
    def post(self, request: Request, cluster: str, node: str) -> Response:
        """The answer is the node after it; Kubernetes follows within seconds."""
        actor = self.actor()
        wish = cordon_node if self.wanted else uncordon_node
        found = node_of(cluster, node)
        reason = only_field(request, "reason", LONGEST_REASON)
        wish(actor, found, reason, timezone.now())
        return Response(_answers(actor, [found])[0])


@extend_schema_view(post=extend_schema(operation_id="nodes_cordon"))
class Cordon(_Wish):
    """Let no new job land on a node; what runs there goes on."""

    wanted = True


@extend_schema_view(post=extend_schema(operation_id="nodes_uncordon"))
class Uncordon(_Wish):
    """Lift the operator's cordon. `cordons` names what still keeps jobs off: windows, health rules."""

    wanted = False


class DrainNode(Door):
    """Empty one node."""

    required_scopes = SCOPES
    serializer_class = shapes.NodeAnswer

    @extend_schema(
        operation_id="nodes_drain",
        parameters=[IDEMPOTENCY_KEY, PREVIEW],
        request=window_shapes.DrainSent,
        responses={
            200: PolymorphicProxySerializer(
                "DrainOutcome", [shapes.NodeAnswer, window_shapes.OutlookAnswer], None
            ),
            403: ProblemShape,
            409: ProblemShape,
            422: ProblemShape,
        },
    )
    @idempotent()
    def post(self, request: Request, cluster: str, node: str) -> Response:
        """Operators: cordon it and let its jobs leave; with `preview`, only say who would leave and what it costs."""
        actor, now, found = self.actor(), timezone.now(), node_of(cluster, node)
        require(actor, Right.OPERATE_NODES)
        ask, _names = read_drain(json_object(request), found.cluster, now, with_nodes=False)
        if is_preview(request):
            plan = preview_drain(actor, found.cluster, [found.name], ask, now)
            return Response(outlook_answer(actor, plan))
        drain_nodes(actor, found.cluster, [found.name], ask, now)
        return Response(_answers(actor, [node_of(cluster, node)])[0])


class DrainMany(Door):
    """Empty many nodes together."""

    required_scopes = SCOPES
    serializer_class = window_shapes.DrainsAnswer

    @extend_schema(
        operation_id="clusters_drain",
        parameters=[IDEMPOTENCY_KEY, PREVIEW],
        request=window_shapes.DrainManySent,
        responses={
            200: PolymorphicProxySerializer(
                "DrainsOutcome", [window_shapes.DrainsAnswer, window_shapes.OutlookAnswer], None
            ),
            403: ProblemShape,
            409: ProblemShape,
            422: ProblemShape,
        },
    )
    @idempotent()
    def post(self, request: Request, cluster: str) -> Response:
        """Operators: as for one node. A gang on several of them leaves once, and is counted once."""
        actor, now, found = self.actor(), timezone.now(), cluster_of(cluster)
        require(actor, Right.OPERATE_NODES)
        ask, names = read_drain(json_object(request), found, now, with_nodes=True)
        if is_preview(request):
            return Response(outlook_answer(actor, preview_drain(actor, found, names, ask, now)))
        drain_nodes(actor, found, names, ask, now)
        rows = Node.objects.filter(cluster=found, name__in=names).select_related("cluster")
        return Response({"nodes": _answers(actor, list(rows.order_by("name")))})


class Topology(Door):
    """A cluster as a tree of domains."""

    required_scopes = SCOPES
    serializer_class = shapes.TopologyAnswer

    @extend_schema(operation_id="clusters_topology", responses=shapes.TopologyAnswer)
    def get(self, request: Request, cluster: str) -> Response:
        """Levels from widest to narrowest, counts in every domain, nodes with the jobs the caller may see."""
        actor, found = self.actor(), cluster_of(cluster)
        facts = node_facts(found)
        levels = list(found.levels.order_by("position").values_list("name", flat=True))
        jobs = _job_ids(actor, found, [node.name for node in facts])
        return Response(
            {
                "cluster": found.name,
                "levels": levels,
                "counts": _counts(counts_of(facts)),
                "domains": [_domain(domain, jobs) for domain in tree_of(facts, levels)],
            }
        )


def _domain(domain: Domain, jobs: dict[str, list[str]]) -> Json:
    answer: Json = {
        "level": domain.level,
        "name": domain.name or None,
        "counts": _counts(domain.counts),
    }
    if domain.domains:
        return answer | {"domains": [_domain(below, jobs) for below in domain.domains]}
    return answer | {"nodes": [node_answer(n, jobs.get(n.name, ())) for n in domain.nodes]}


def _counts(counts: Counts) -> Json:
    return {
        "capacity": counts.capacity,
        "used": counts.used,
        "free": counts.free,
        "out": counts.out,
        "nodes": counts.nodes,
        "nodes_out": counts.nodes_out,
    }


class Unclaimed(Door):
    """Pods that bear Muster's labels, but have no row."""

    required_scopes = SCOPES
    serializer_class = shapes.UnclaimedAnswer
    queryset = ForeignPod.objects.none()
    seek_order = ("pk",)

    @extend_schema(operation_id="unclaimed_list", responses=shapes.UnclaimedAnswer(many=True))
    def get(self, request: Request) -> Response:
        """All for operators; for others those in their tenants' namespaces."""
        actor = self.actor()
        rows = ForeignPod.objects.filter(unclaimed=True).select_related("cluster", "tenant")
        if not may(actor, Right.OPERATE_NODES):
            rows = rows.filter(tenant__in=tenants_visible_to(actor))
        return self.page(rows, lambda found: [_unclaimed(pod) for pod in found])


def _unclaimed(pod: ForeignPod) -> Json:
    return {
        "cluster": pod.cluster.name,
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "node": pod.node,
        "tenant": pod.tenant.slug if pod.tenant else None,
        "job": pod.labels.get("muster.dev/job"),
        "attempt": pod.labels.get("muster.dev/attempt"),
        "gpus": pod.gpus,
        "terminating": pod.terminating,
        "seen_at": time_text(pod.seen_at),
    }
