"""Clusters, flavors and presets over REST: everyone reads, platform admins change."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.idempotency import idempotent
from controlplane.common.parsers import json_object
from controlplane.common.preconditions import wanted_version
from queues.api import shapes
from queues.api.doors import IDEMPOTENCY_KEY, IF_MATCH, Door, versioned
from queues.models import Cluster
from queues.selectors.catalogue import (
    cluster_answers,
    cluster_named,
    clusters_visible_to,
    flavor_answer,
    flavor_named,
    flavors_visible_to,
    preset_answer,
    preset_named,
    presets_visible_to,
)
from queues.services import catalogue

SCOPES = {"read": (), "write": "nodes:write"}


class Clusters(Door):
    """All clusters."""

    required_scopes = SCOPES
    serializer_class = shapes.ClusterAnswer
    seek_order = ("name",)

    @extend_schema(operation_id="clusters_list", responses=shapes.ClusterAnswer(many=True))
    def get(self, request: Request) -> Response:
        """By name."""
        rows = clusters_visible_to(self.actor()).select_related("state").prefetch_related("levels")
        return self.page(rows, cluster_answers)


class OneCluster(Door):
    """One cluster."""

    required_scopes = SCOPES
    serializer_class = shapes.ClusterAnswer

    @extend_schema(operation_id="clusters_retrieve", responses=shapes.ClusterAnswer)
    def get(self, request: Request, cluster: str) -> Response:
        """Mode, node selector, levels, and how fresh what is known of it is."""
        return _answered(cluster_named(self.actor(), cluster))

    @extend_schema(
        operation_id="clusters_change",
        parameters=[IF_MATCH],
        request=shapes.ClusterChanges,
        responses={
            200: shapes.ClusterAnswer,
            412: shapes.ProblemShape,
            422: shapes.ProblemShape,
            428: shapes.ProblemShape,
        },
    )
    def patch(self, request: Request, cluster: str) -> Response:
        """Platform admins: set mode, node selector or levels."""
        actor = self.actor()
        found = cluster_named(actor, cluster)
        version = wanted_version(request)
        sent = json_object(request)
        return _answered(catalogue.change_cluster(actor, found, sent, version, timezone.now()))


def _answered(cluster: Cluster) -> Response:
    return versioned(cluster_answers([cluster])[0])


class Flavors(Door):
    """All flavors."""

    required_scopes = SCOPES
    serializer_class = shapes.FlavorAnswer
    seek_order = ("pk",)

    @extend_schema(operation_id="flavors_list", responses=shapes.FlavorAnswer(many=True))
    def get(self, request: Request) -> Response:
        """Kinds of accelerator capacity."""
        rows = flavors_visible_to(self.actor()).select_related("cluster")
        return self.page(rows, lambda found: [flavor_answer(each) for each in found])

    @extend_schema(
        operation_id="flavors_create",
        parameters=[IDEMPOTENCY_KEY],
        request=shapes.FlavorSent,
        responses={201: shapes.FlavorAnswer, 422: shapes.ProblemShape},
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Platform admins: a new flavor."""
        flavor = catalogue.create_flavor(self.actor(), json_object(request), timezone.now())
        return _created(request, flavor_answer(flavor), "id")


class OneFlavor(Door):
    """One flavor: `cluster.flavor`, or its name where one cluster has it."""

    required_scopes = SCOPES
    serializer_class = shapes.FlavorAnswer

    @extend_schema(operation_id="flavors_retrieve", responses=shapes.FlavorAnswer)
    def get(self, request: Request, flavor: str) -> Response:
        """The flavor."""
        return Response(flavor_answer(flavor_named(self.actor(), flavor)))

    @extend_schema(
        operation_id="flavors_change",
        request=shapes.FlavorChanges,
        responses={200: shapes.FlavorAnswer, 422: shapes.ProblemShape},
    )
    def patch(self, request: Request, flavor: str) -> Response:
        """Platform admins: change it."""
        found = flavor_named(self.actor(), flavor)
        changed = catalogue.change_flavor(self.actor(), found, json_object(request), timezone.now())
        return Response(flavor_answer(changed))


class Presets(Door):
    """All presets."""

    required_scopes = SCOPES
    serializer_class = shapes.PresetAnswer
    seek_order = ("name",)

    @extend_schema(operation_id="presets_list", responses=shapes.PresetAnswer(many=True))
    def get(self, request: Request) -> Response:
        """What may be merged into pods."""
        rows = presets_visible_to(self.actor()).select_related("flavor__cluster")
        return self.page(rows, lambda found: [preset_answer(each) for each in found])

    @extend_schema(
        operation_id="presets_create",
        parameters=[IDEMPOTENCY_KEY],
        request=shapes.PresetSent,
        responses={201: shapes.PresetAnswer, 422: shapes.ProblemShape},
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Platform admins: a new preset."""
        preset = catalogue.create_preset(self.actor(), json_object(request), timezone.now())
        return _created(request, preset_answer(preset), "name")


class OnePreset(Door):
    """One preset."""

    required_scopes = SCOPES
    serializer_class = shapes.PresetAnswer

    @extend_schema(operation_id="presets_retrieve", responses=shapes.PresetAnswer)
    def get(self, request: Request, preset: str) -> Response:
        """The preset."""
        return Response(preset_answer(preset_named(self.actor(), preset)))

    @extend_schema(
        operation_id="presets_change",
        request=shapes.PresetChanges,
        responses={200: shapes.PresetAnswer, 422: shapes.ProblemShape},
    )
    def patch(self, request: Request, preset: str) -> Response:
        """Platform admins: change it, for pods that are made from now on."""
        found = preset_named(self.actor(), preset)
        changed = catalogue.change_preset(self.actor(), found, json_object(request), timezone.now())
        return Response(preset_answer(changed))

    @extend_schema(operation_id="presets_delete", responses={204: None, 409: shapes.ProblemShape})
    def delete(self, request: Request, preset: str) -> Response:
        """Platform admins: take it away, unless a job names it."""
        found = preset_named(self.actor(), preset)
        catalogue.delete_preset(self.actor(), found, timezone.now())
        return Response(status=204)


def _created(request: Request, answer: dict[str, Any], key: str) -> Response:
    address = request.build_absolute_uri(f"{answer[key]}/")
    return Response(answer, status=201, headers={"Location": address})
