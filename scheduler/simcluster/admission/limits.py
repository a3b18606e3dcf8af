"""Limit ranges: defaults for containers, and the maxima and minima they must keep to."""

from collections.abc import Iterable
from typing import Any

from scheduler.simcluster.api.errors import ApiError, forbidden
from scheduler.simcluster.quantities import milli
from scheduler.simcluster.store.resources import PODS

Json = dict[str, Any]


def apply_limit_defaults(spec: Json, ranges: Iterable[Json]) -> None:
    """Gives containers the `default` and `defaultRequest` of the namespace, in place."""
    for item in _container_items(ranges):
        for container in _containers(spec):
            resources = container.setdefault("resources", {})
            limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
            new_limits, new_requests = dict(limits), dict(requests)
            for name, amount in (item.get("default") or {}).items():
                new_limits.setdefault(name, amount)
            for name, amount in limits.items():
                new_requests.setdefault(name, amount)
            for name, amount in (item.get("defaultRequest") or {}).items():
                new_requests.setdefault(name, amount)
            if new_limits:
                resources["limits"] = new_limits
            if new_requests:
                resources["requests"] = new_requests


def check_limits(name: str, spec: Json, ranges: Iterable[Json]) -> ApiError | None:
    """403 for a container outside a limit range, or None."""
    problems: list[str] = []
    for item in _container_items(ranges):
        for container in _containers(spec):
            problems.extend(_container_problems(container.get("resources") or {}, item))
    if not problems:
        return None
    text = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
    return forbidden(PODS, name, text)


def _container_problems(resources: Json, item: Json) -> list[str]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    problems: list[str] = []
    for name, bound in (item.get("max") or {}).items():
        limit = limits.get(name)
        if limit is None:
            problems.append(
                f"maximum {name} usage per Container is {bound}.  No limit is specified"
            )
        elif milli(limit) > milli(bound):
            problems.append(f"maximum {name} usage per Container is {bound}, but limit is {limit}")
    for name, bound in (item.get("min") or {}).items():
        request = requests.get(name)
        if request is None:
            problems.append(
                f"minimum {name} usage per Container is {bound}.  No request is specified"
            )
        elif milli(request) < milli(bound):
            problems.append(
                f"minimum {name} usage per Container is {bound}, but request is {request}"
            )
    return problems


def _container_items(ranges: Iterable[Json]) -> list[Json]:
    return [
        item
        for limit_range in ranges
        for item in (limit_range.get("spec") or {}).get("limits") or []
        if item.get("type") == "Container"
    ]


def _containers(spec: Json) -> list[Json]:
    return [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
