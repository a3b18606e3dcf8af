"""How well start estimates come true, over REST."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from queues.api.doors import Door
from queues.selectors.answers import time_text
from scheduler.api.plan_shapes import AccuracyAnswer
from scheduler.selectors.forecasts import Accuracy, accuracy_of
from scheduler.services.nodes import cluster_of


class EstimateAccuracy(Door):
    """Estimates of one cluster against what came."""

    required_scopes = {"read": "nodes:read"}
    serializer_class = AccuracyAnswer

    @extend_schema(operation_id="clusters_estimates", responses=AccuracyAnswer)
    def get(self, request: Request, cluster: str) -> Response:
        """Of the last 1,000 jobs that had to wait, how many started before their p50 and their p90."""
        self.actor()
        return Response(accuracy_answer(accuracy_of(cluster_of(cluster))))


def accuracy_answer(found: Accuracy) -> dict[str, object]:
    """Shares from 0 to 1."""
    return {
        "starts": found.starts,
        "before_p50": _share(found.before_p50),
        "before_p90": _share(found.before_p90),
        "since": time_text(found.since),
    }


def _share(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
