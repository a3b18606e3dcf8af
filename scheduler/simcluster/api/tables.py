"""`as=Table`: lists and watch events in the form that kubectl prints."""

from typing import Any

from scheduler.simcluster.api.columns import BY_KIND, PLAIN, Cells, Column
from scheduler.simcluster.api.request import whole_body
from scheduler.simcluster.clock import Clock
from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]


def wants_table(accept: str) -> bool:
    """Whether an Accept header asks for a table before anything else that we can give."""
    for part in accept.split(","):
        if "as=Table" in part and "g=meta.k8s.io" in part and "application/json" in part:
            return True
        if part.strip() in ("application/json", "*/*"):
            return False
    return False


def wants_metadata(accept: str) -> bool:
    """Whether an Accept header asks for metadata alone before anything else that we can give."""
    for part in accept.split(","):
        if "as=PartialObjectMetadata" in part and "application/json" in part:
            return True
        if part.strip() in ("application/json", "*/*"):
            return False
    return False


def metadata_of(body: Json) -> Json:
    """An object's metadata as a PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"],
    }  # fmt: skip


def metadata_list(bodies: list[Json], metadata: Json) -> Json:
    """A list of them."""
    return {
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "items": [{"metadata": body["metadata"]} for body in bodies],
    }  # fmt: skip


class MetadataMaker:
    """Makes the events of a watch on metadata alone."""

    def event(self, resource: ResourceType, body: Json) -> Json:
        """The object of one event."""
        del resource
        return metadata_of(body)

    def bookmark(self, metadata: Json) -> Json:
        """A bookmark."""
        return metadata_of({"metadata": metadata})


def _columns(resource: ResourceType) -> tuple[tuple[Column, ...], Cells]:
    return PLAIN if resource.custom else BY_KIND.get(resource.kind, PLAIN)


class TableMaker:
    """Makes tables; for a watch only the first one carries the column definitions."""

    def __init__(self, clock: Clock, include: str) -> None:
        self._clock = clock
        self._include = include or "Metadata"
        self._headed = False

    def table(self, resource: ResourceType, bodies: list[Json], metadata: Json) -> Json:
        """A table of objects (without kind), with the list's metadata."""
        columns, cells = _columns(resource)
        now = self._clock.now()
        rows = [self._row(resource, body, cells, now) for body in bodies]
        return {
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": [column.definition() for column in columns], "rows": rows,
        }  # fmt: skip

    def event(self, resource: ResourceType, body: Json) -> Json:
        """The table of one watch event."""
        version = body["metadata"].get("resourceVersion", "")
        made = self.table(resource, [body], {"resourceVersion": version})
        if self._headed:
            made["columnDefinitions"] = None
        self._headed = True
        return made

    def bookmark(self, metadata: Json) -> Json:
        """A bookmark in table form."""
        row = {"cells": [], "object": {
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        }}  # fmt: skip
        return {
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": None, "rows": [row],
        }  # fmt: skip

    def _row(self, resource: ResourceType, body: Json, cells: Cells, now: float) -> Json:
        row: Json = {"cells": cells(body, now)}
        if self._include == "Object":
            row["object"] = whole_body(resource, body)
        elif self._include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": body["metadata"],
            }  # fmt: skip
        return row
