"""What a page may subscribe to. Other apps register their topics; nothing here knows what they show.

A topic is named `name` or `name:argument` ("jobs", "jobs:research"). Its functions are given the viewer, whose
`actor` is whatever the app that opened the socket put there.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.common.live.feed import Heard


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who watches. key: identity for fragments that differ by person (a user's id).

    language, zone: in which fragments are rendered for this page.
    """

    key: Hashable
    actor: Any
    language: str
    zone: str


@dataclass(frozen=True, slots=True)
class Fragment:
    """One change of a page, as in docs/live.md. mode: "replace", "append" or "remove".

    variants: other HTML for single viewers, by `Viewer.key` (a row is one's own to cancel).
    """

    target: str
    html: str = ""
    mode: str = "replace"
    variants: Mapping[Hashable, str] = field(default_factory=dict)

    def encoded(self, viewer: Viewer | None = None) -> str:
        """As JSON; for one viewer where it differs."""
        html = self.html if viewer is None else self.variants.get(viewer.key, self.html)
        return json.dumps({"target": self.target, "html": html, "mode": self.mode})


@dataclass(slots=True)
class Rendered:
    """What one topic has to say to one scope. nudge: tell the page that something happened, without HTML.

    resync: too much has changed to be told in pieces.
    """

    fragments: list[Fragment] = field(default_factory=list)
    svg: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    nudge: bool = False
    resync: bool = False


@dataclass(frozen=True, slots=True)
class Topic:
    """A kind of topic.

    changes: which (argument, row) an event changes: ("research", "job_01…"). Cheap, no database. The argument
        may be EVERY.
    concerns: whether an event may show to a viewer at all; cheap, no database; render decides in the end.
    scope_of: viewers with the same scope are shown the same; None when the viewer may not see the topic.
    render: what to push when these rows have changed. Reads by the selector that renders the page.
    scope_of and render run in the hub's own thread and may use the database.
    """

    name: str
    changes: Callable[[Heard], Iterable[tuple[str, str]]]
    scope_of: Callable[[Viewer, str], Hashable | None]
    render: Callable[[Viewer, str, frozenset[str]], Rendered]
    concerns: Callable[[Viewer, Heard], bool] = lambda _viewer, _heard: True


# As an argument: the event changes the topic whatever its argument, for all whom it concerns.
EVERY = "*"

topics: dict[str, Topic] = {}


def register(topic: Topic) -> None:
    """Offer a topic to pages. Called at start (controlplane/asgi.py); another of the same name is a defect."""
    if topic.name in topics and topics[topic.name] is not topic:
        raise ValueError(f"there is a topic {topic.name} already")
    topics[topic.name] = topic


def split(name: str) -> tuple[Topic, str] | None:
    """Topic and argument of a subscription; None when there is no such topic."""
    head, _colon, argument = name.partition(":")
    topic = topics.get(head)
    return None if topic is None else (topic, argument)
