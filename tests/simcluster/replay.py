"""Replays recorded exchanges of a real API server: maps its uids, versions, names and times to
those of the server under test, and compares answers field by field."""

import copy
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

Json = dict[str, Any]
FIXTURE = Path(__file__).parents[1] / "fixtures" / "kube" / "exchanges.json"
TIMES = {"creationTimestamp", "deletionTimestamp", "lastTransitionTime"}
OWN_VERSION = re.compile(r"^\d+$")


def load_exchanges() -> list[Json]:
    """The recorded pairs, in order."""
    exchanges: list[Json] = json.loads(FIXTURE.read_text(encoding="utf-8"))["exchanges"]
    return exchanges


@dataclass
class Names:
    """What the recording calls things, and what they are called here."""

    texts: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def learn(self, recorded: Any, actual: Any) -> None:
        """Takes uids, resource versions, generated names and continue tokens from a pair."""
        if isinstance(recorded, dict) and isinstance(actual, dict):
            metadata, ours = recorded.get("metadata"), actual.get("metadata")
            if isinstance(metadata, dict) and isinstance(ours, dict):
                self._learn_metadata(metadata, ours)
            for name in recorded.keys() & actual.keys():
                self.learn(recorded[name], actual[name])
        elif isinstance(recorded, list) and isinstance(actual, list):
            for one, other in zip(recorded, actual, strict=False):
                self.learn(one, other)

    def _learn_metadata(self, recorded: Json, actual: Json) -> None:
        for name in ("uid", "name", "continue"):
            if recorded.get(name) and actual.get(name) and recorded[name] != actual[name]:
                self.texts[recorded[name]] = actual[name]
        if recorded.get("resourceVersion") and actual.get("resourceVersion"):
            self.versions[recorded["resourceVersion"]] = actual["resourceVersion"]

    def ours(self, value: Any, key: str = "") -> Any:
        """A recorded value in our names."""
        if isinstance(value, dict):
            return {name: self.ours(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.ours(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key == "resourceVersion":
            return self.versions.get(value, value)
        for recorded, actual in self.texts.items():
            value = value.replace(recorded, actual)
        return value


def normal(value: Any, key: str = "") -> Any:
    """A value with what no two servers share blanked: times of the server, versions."""
    if isinstance(value, dict):
        return {
            name: normal(inner, name)
            for name, inner in value.items()
            if name not in ("managedFields", "selfLink")
        }
    if isinstance(value, list):
        return [normal(item, key) for item in value]
    if key in TIMES and value is not None:
        return "<time>"
    if key in ("resourceVersion", "serverAddress"):
        return "<differs>"
    if key == "message" and isinstance(value, str):
        return re.sub(r"(too old resource version: \d+) \(\d+\)", r"\1 (now)", value)
    return value


async def send(session: aiohttp.ClientSession, url: str, request: Json, token: str) -> "Answer":
    """Sends a recorded request as it was sent."""
    headers = {"User-Agent": "controlplane-test/1.0"}
    headers["Content-Type"] = request.get("contentType", "application/json")
    who = request.get("auth")
    if who is None:
        headers["Authorization"] = f"Bearer {token}"
    elif who != "none":
        headers["Authorization"] = "Bearer sched-token"
    body = request.get("raw")
    if body is None and request.get("body") is not None:
        body = json.dumps(request["body"])
    query = {name: str(value) for name, value in (request.get("query") or {}).items()}
    async with session.request(
        request["method"], url + request["path"], params=query, data=body, headers=headers
    ) as response:
        text = await response.text()
        return Answer(
            response.status, response.content_type, response.headers.getall("Warning", []), text
        )


@dataclass
class Answer:
    """What came back."""

    status: int
    content_type: str
    warnings: list[str]
    text: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)

    @property
    def lines(self) -> list[Json]:
        """The body as watch events."""
        return [json.loads(line) for line in self.text.splitlines() if line]


def differences(recorded: Json, answer: Answer, names: Names) -> list[str]:
    """Where an answer is not what the real server answered."""
    found: list[str] = []
    if recorded["status"] != answer.status:
        return [f"status {answer.status}, not {recorded['status']}: {answer.text[:300]}"]
    headers = recorded.get("headers", {})
    kind = headers.get("Content-Type", "").partition(";")[0]
    if kind and kind != answer.content_type:
        found.append(f"Content-Type {answer.content_type}, not {kind}")
    if "lines" in recorded:
        names.learn(recorded["lines"], answer.lines)
        return found + compare(normal(names.ours(recorded["lines"])), normal(answer.lines), "")
    body = recorded.get("body")
    if isinstance(body, str) or body is None:
        return found + (
            [] if (body or "") == answer.text else [f"body {answer.text!r}, not {body!r}"]
        )
    actual = answer.json
    if body.get("kind") == "APIResourceList":
        # The recording is cut to the kinds that the project uses.
        kept = {entry["name"] for entry in body["resources"]}
        actual["resources"] = [item for item in actual["resources"] if item["name"] in kept]
    names.learn(body, actual)
    found += compare(normal(names.ours(copy.deepcopy(body))), normal(actual), "")
    warning = headers.get("Warning")
    if warning and [warning] != answer.warnings:
        found.append(f"Warning {answer.warnings}, not {warning!r}")
    return found


def compare(wanted: Any, found: Any, path: str) -> list[str]:
    """Every place where two values differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        result: list[str] = []
        for name in sorted({*wanted, *found}):
            here = f"{path}.{name}"
            if name not in found:
                result.append(f"{here} is missing (recorded {json.dumps(wanted[name])[:120]})")
            elif name not in wanted:
                result.append(f"{here} is new: {json.dumps(found[name])[:120]}")
            else:
                result += compare(wanted[name], found[name], here)
        return result
    if isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            return [f"{path} has {len(found)} items, not {len(wanted)}"]
        return [
            line
            for index, (one, other) in enumerate(zip(wanted, found, strict=True))
            for line in compare(one, other, f"{path}[{index}]")
        ]
    return (
        []
        if wanted == found
        else [f"{path} is {json.dumps(found)[:300]}, not {json.dumps(wanted)[:300]}"]
    )
