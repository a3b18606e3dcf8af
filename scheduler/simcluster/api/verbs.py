"""From a call to the verb that answers it."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from scheduler.simcluster.api.access import Access
from scheduler.simcluster.api.errors import ApiError, method_not_allowed
from scheduler.simcluster.api.logs import LogReader
from scheduler.simcluster.api.podcalls import PodCalls
from scheduler.simcluster.api.reading import Reader
from scheduler.simcluster.api.request import (
    NOT_A_PATH,
    Call,
    Reply,
    json_reply,
)
from scheduler.simcluster.api.tables import (
    MetadataMaker,
    TableMaker,
    metadata_list,
    metadata_of,
    wants_metadata,
    wants_table,
)
from scheduler.simcluster.api.watching import Watch, error_line, open_watch
from scheduler.simcluster.api.writing import Writer
from scheduler.simcluster.controllers.definitions import CustomTypes
from scheduler.simcluster.exporter.page import MetricsPage
from scheduler.simcluster.kubelet.fleet import Fleet
from scheduler.simcluster.store.resources import BINDINGS, NODES, PODS
from scheduler.simcluster.world import World

Json = dict[str, Any]
_WORDS = {"PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create", "GET": "get"}


@dataclass(slots=True)
class Stream:
    """An answer that goes on."""

    lines: AsyncGenerator[bytes, None]
    content_type: str
    aborts: Callable[[], bool] | None = None
    watch: Watch | None = None

    async def aclose(self) -> None:
        """Stops the source, however far it is."""
        await self.lines.aclose()
        if self.watch is not None:
            self.watch.close()


class Verbs:
    """All verbs of all kinds."""

    def __init__(self, world: World, fleet: Fleet, access: Access) -> None:
        self.world, self._fleet, self._access = world, fleet, access
        self.custom = CustomTypes(world)
        self.reader = Reader(world.store)
        self.writer = Writer(world, self.custom)
        self.pods = PodCalls(world)
        self.metrics = MetricsPage(world, fleet)
        self.watches: dict[Watch, None] = {}
        """All that are open, oldest first: faults strike them in that order."""

    def run(self, call: Call) -> Reply | Stream:
        """Answers a call. Raises ApiError."""
        if not call.resource.stored:
            return self._unstored(call)
        if call.subresource:
            return self._subresource(call)
        if call.name:
            return self._object(call)
        return self._collection(call)

    def _unstored(self, call: Call) -> Reply:
        if call.method != "POST" or call.name:
            raise method_not_allowed()
        if call.resource is BINDINGS:
            call.resource = PODS
            return self.pods.bind(call)
        return self._access.review(call)

    def _collection(self, call: Call) -> Reply | Stream:
        if call.method == "GET":
            if call.query.get("watch") in ("true", "1"):
                return self._watch(call)
            return self._list(call)
        if call.method == "POST":
            return self.writer.create(call)
        if call.method == "DELETE" and "deletecollection" in call.resource.verbs:
            return self.writer.delete_collection(call, self.reader.select(call))
        raise method_not_allowed()

    def _object(self, call: Call) -> Reply | Stream:
        if call.method == "GET":
            if call.query.get("watch") in ("true", "1"):
                return self._watch(call)
            return self._get(call)
        if call.method == "PUT":
            return self.writer.update(call)
        if call.method == "PATCH":
            return self.writer.patch(call)
        if call.method == "DELETE":
            return self.writer.delete(call)
        raise method_not_allowed()

    def _get(self, call: Call) -> Reply:
        maker = self._table_maker(call)
        if wants_metadata(call.headers.get("Accept", "")):
            return json_reply(200, metadata_of(self.reader.get(call).body))
        if maker is None:
            return self.reader.get_reply(call)
        body = self.reader.get(call).body
        version = {"resourceVersion": body["metadata"]["resourceVersion"]}
        return json_reply(200, maker.table(call.resource, [body], version))

    def _list(self, call: Call) -> Reply:
        maker = self._table_maker(call)
        only_metadata = wants_metadata(call.headers.get("Accept", ""))
        if maker is None and not only_metadata:
            return self.reader.list_reply(call)
        page = self.reader.page(call)
        bodies = [item.body for item in page.items]
        if maker is None:
            return json_reply(200, metadata_list(bodies, page.metadata))
        return json_reply(200, maker.table(call.resource, bodies, page.metadata))

    def _table_maker(self, call: Call) -> TableMaker | None:
        if wants_table(call.headers.get("Accept", "")):
            return TableMaker(self.world.clock, call.query.get("includeObject", ""))
        return None

    def _watch(self, call: Call) -> Stream:
        speed = self.world.clock.speed
        maker: TableMaker | MetadataMaker | None = self._table_maker(call)
        if maker is None and wants_metadata(call.headers.get("Accept", "")):
            maker = MetadataMaker()
        opened = open_watch(call, self.world.store, speed, maker)
        if isinstance(opened, ApiError):
            return Stream(_one(error_line(opened)), "application/json")
        self.watches[opened] = None
        return Stream(self._watched(opened), "application/json", lambda: opened.aborted, opened)

    async def _watched(self, watch: Watch) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in watch.lines():
                yield chunk
        finally:
            self.watches.pop(watch, None)

    def _subresource(self, call: Call) -> Reply | Stream:
        known = {item.name: item for item in call.resource.subresources}
        found = known.get(call.subresource)
        if found is None:
            return NOT_A_PATH
        if call.subresource != "proxy" and _WORDS.get(call.method) not in found.verbs:
            raise method_not_allowed()
        if call.subresource in ("status", "resize", "ephemeralcontainers", "finalize"):
            return self._part(call)
        if call.resource is PODS:
            return self._pod_part(call)
        if call.resource is NODES:
            return self.metrics.proxy(call)
        raise _refused(call)

    def _part(self, call: Call) -> Reply:
        if call.method == "GET":
            return self.reader.get_reply(call)
        if call.method == "PATCH":
            return self.writer.patch(call)
        return self.writer.update(call)

    def _pod_part(self, call: Call) -> Reply | Stream:
        if call.subresource == "binding":
            return self.pods.bind(call)
        if call.subresource == "eviction":
            return self.pods.evict(call)
        if call.subresource == "log":
            return self._log(call)
        raise _refused(call)

    def _log(self, call: Call) -> Reply | Stream:
        reader = LogReader(call, self.world, self._fleet)
        if reader.empty:
            return Reply(204, b"")
        reader.check()
        return Stream(reader.lines(), "text/plain")


async def _one(line: bytes) -> AsyncGenerator[bytes, None]:
    yield line


def _refused(call: Call) -> ApiError:
    return ApiError(
        501, "NotImplemented",
        f"the simulated cluster has no {call.subresource} on {call.resource.plural}: its containers "
        "run no programs (read their output with logs)",
    )  # fmt: skip
