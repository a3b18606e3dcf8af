"""One call to the API: its path taken apart, and the reply to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.store.resources import Registry, ResourceType
from scheduler.simcluster.store.store import encode

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class User:
    """Who calls."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


@dataclass(slots=True)
class Call:
    """A request for a resource."""

    method: str
    resource: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes = b""
    user: User = ADMIN
    warnings: list[str] = field(default_factory=list)

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored."""
        return self.query.get("dryRun") == "All"

    @property
    def content_type(self) -> str:
        """The body's type as sent."""
        return self.headers.get("Content-Type", "")

    @property
    def manager(self) -> str:
        """The field manager: as named, else the program in User-Agent."""
        named = self.query.get("fieldManager")
        return named or self.headers.get("User-Agent", "unknown").partition("/")[0] or "unknown"


@dataclass(slots=True)
class Reply:
    """A whole answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def json_reply(status: int, value: object) -> Reply:
    """An answer in JSON."""
    return Reply(status, encode(value))


def error_reply(error: ApiError) -> Reply:
    """A refusal as an answer."""
    return Reply(error.code, encode(error.status()), headers=dict(error.headers))


NOT_A_PATH = Reply(404, b"404 page not found\n", "text/plain; charset=utf-8")


def parse_path(parts: list[str], registry: Registry) -> Call | None:
    """The call that a path names, with an empty method; None when there is no such kind.

    `parts` are the path's segments: `api/v1/…` or `apis/GROUP/VERSION/…`.
    """
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = registry.find(group, version, rest[0])
    if resource is None:
        return None
    if (namespace and not resource.namespaced) or (
        not namespace and len(rest) > 1 and resource.namespaced
    ):
        return None
    return Call(
        "", resource, namespace, rest[1] if len(rest) > 1 else "",
        rest[2] if len(rest) > 2 else "", "/".join(rest[3:]),
    )  # fmt: skip


def whole_raw(resource: ResourceType, raw: bytes) -> bytes:
    """A stored body's JSON with `kind` and `apiVersion` in front."""
    if resource.custom:
        return raw
    return b'{"kind":"%b","apiVersion":"%b",%b' % (
        resource.kind.encode(), resource.api_version.encode(), raw[1:],
    )  # fmt: skip


def whole_body(resource: ResourceType, body: Json) -> Json:
    """A stored body with `kind` and `apiVersion`."""
    if resource.custom:
        return body
    return {"kind": resource.kind, "apiVersion": resource.api_version, **body}
