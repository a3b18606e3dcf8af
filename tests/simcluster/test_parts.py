"""The small parts of the simulated cluster: selectors, quantities, clock, protobuf, patches."""

import asyncio

import pytest

from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.api.openapi_wire import encode_document
from scheduler.simcluster.api.patching import json_patch, merge_patch
from scheduler.simcluster.api.protobuf import MAGIC, decode, wire_parts
from scheduler.simcluster.clock import RunningClock, SteppedClock, Timers, moment_of, stamp
from scheduler.simcluster.kubelet.output import Output
from scheduler.simcluster.profiles.model import ProfileError, load_profile, profile_of
from scheduler.simcluster.quantities import canonical, milli, plain
from scheduler.simcluster.store.resources import PODS
from scheduler.simcluster.store.selectors import SelectorError, field_predicate, label_predicate


@pytest.mark.parametrize(
    ("selector", "labels", "taken"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a in (b,c),d notin (e)", {"a": "c"}, True),
        ("a in (b, c)", {"a": "d"}, False),
        ("n>5", {"n": "6"}, True),
        ("n<5", {"n": "x"}, False),
        ("muster.dev/job=j1,rank in (0,1)", {"muster.dev/job": "j1", "rank": "1"}, True),
        ("a=", {"a": ""}, True),
        ("x=1,y", {"x": "1"}, False),
    ],
)
def test_label_selector_takes_what_it_says(
    selector: str, labels: dict[str, str], taken: bool
) -> None:
    predicate = label_predicate(selector)
    assert predicate is not None
    assert predicate({"metadata": {"labels": labels}}) is taken


@pytest.mark.parametrize("selector", ["a in (", "a in b", "a=b,", "a ~ b", "n>x"])
def test_bad_label_selector_is_refused(selector: str) -> None:
    with pytest.raises(SelectorError):
        label_predicate(selector)


def test_field_selector_knows_the_fields_of_pods_only() -> None:
    predicate = field_predicate("spec.nodeName=n1,status.phase!=Failed", PODS)
    assert predicate is not None
    body = {"metadata": {}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    assert predicate(body) is True
    assert predicate({**body, "status": {"phase": "Failed"}}) is False
    with pytest.raises(SelectorError, match=r"field label not supported: spec\.image"):
        field_predicate("spec.image=x", PODS)


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("1", 1000, "1"), ("0.5", 500, "500m"), ("1500m", 1500, "1500m"), ("64Gi", 64 * 2**30 * 1000, "64Gi"),
        ("1e3", 10**6, "1k"), ("2048Mi", 2**31 * 1000, "2Gi"), ("100M", 10**11, "100M"), ("0", 0, "0"),
    ],
)  # fmt: skip
def test_quantities_are_read_and_written_as_kubernetes_does(
    text: str, value: int, shown: str
) -> None:
    assert milli(text) == value
    assert canonical(text) == shown
    assert milli(plain(value, text)) == value


@pytest.mark.parametrize("text", ["", "abc", "1X", "--1", "1 Gi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        milli(text)


def test_stepped_clock_runs_timers_in_order_at_their_own_time() -> None:
    clock = SteppedClock(start=1000.0)
    timers = Timers(clock)
    seen: list[tuple[str, float]] = []

    def again() -> None:
        seen.append(("first", clock.now()))
        timers.after(2, lambda: seen.append(("second", clock.now())))

    timers.after(5, again)
    cancelled = timers.after(6, lambda: seen.append(("never", clock.now())))
    cancelled.cancel()
    timers.advance(10)
    assert seen == [("first", 1005.0), ("second", 1007.0)]
    assert clock.now() == 1010.0


def test_running_clock_cannot_be_advanced_and_runs_ahead_by_its_speed() -> None:
    clock = RunningClock(speed=1000.0, start=0.0)
    with pytest.raises(TypeError):
        Timers(clock).advance(1)
    with pytest.raises(ValueError, match="speed"):
        RunningClock(speed=0)


async def test_attached_timers_run_by_themselves_and_earlier_ones_come_first() -> None:
    timers = Timers(RunningClock(speed=100.0))
    timers.attach(asyncio.get_running_loop())
    seen: list[str] = []
    done = asyncio.Event()
    timers.after(5, lambda: (seen.append("late"), done.set())[0])  # type: ignore[func-returns-value]
    timers.after(1, lambda: seen.append("early"))
    async with asyncio.timeout(10):
        await done.wait()
    timers.detach()
    assert seen == ["early", "late"]


def test_stamps_are_rfc_3339_in_utc() -> None:
    assert stamp(1767225600.9) == "2026-01-01T00:00:00Z"
    assert moment_of("2026-01-01T00:00:00Z") == 1767225600.0


def test_protobuf_eviction_of_kubectl_is_read() -> None:
    meta = b"\x0a\x09policy/v1\x12\x08Eviction"
    options = b"\x08\x1e\x12\x04\x0a\x02u1"
    inner = b"\x0a\x06\x0a\x01a\x1a\x01n" + b"\x12" + bytes([len(options)]) + options
    raw = MAGIC + b"\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(inner)]) + inner
    assert decode(raw) == {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "n"},
        "deleteOptions": {"gracePeriodSeconds": 30, "preconditions": {"uid": "u1"}},
    }  # fmt: skip
    with pytest.raises(ValueError, match="prefix"):
        decode(b"{}")


def test_patches_leave_the_old_object_alone() -> None:
    old = {"a": {"b": [1, 2], "c": 1}}
    assert merge_patch(old, {"a": {"c": None, "d": 2}}) == {"a": {"b": [1, 2], "d": 2}}
    operations = [
        {"op": "test", "path": "/a/c", "value": 1}, {"op": "add", "path": "/a/b/-", "value": 3},
        {"op": "move", "from": "/a/c", "path": "/e~1f"}, {"op": "copy", "from": "/a/b", "path": "/g"},
        {"op": "replace", "path": "/a/b/0", "value": 9},
    ]  # fmt: skip
    assert json_patch(old, operations) == {"a": {"b": [9, 2, 3]}, "e/f": 1, "g": [1, 2, 3]}
    assert old == {"a": {"b": [1, 2], "c": 1}}
    for wrong in (
        {"op": "remove", "path": "/x"},
        {"op": "test", "path": "/a/c", "value": 2},
        {"op": "jump", "path": "/a"},
    ):
        with pytest.raises(ApiError) as caught:
            json_patch(old, [wrong])
        assert caught.value.code == 422


def test_output_has_exactly_its_lines_spread_over_the_run() -> None:
    output = Output(1, 3, 8, "gpu-1", 8, started_at=100.0, run_seconds=30.0, lines=4, exit_code=0)
    assert [output.planned_until(moment) for moment in (99, 100, 109, 110, 129, 130, 500)] == [
        0,
        1,
        1,
        2,
        3,
        4,
        4,
    ]
    lines = [text for _, text in output.between(0, 500)]
    assert len(lines) == 4
    assert all(line.startswith("rank=3 ") for line in lines)
    assert lines[-1].endswith("training finished")
    losses = [output.loss(step) for step in (0, 100, 1000, 5000)]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"groups": [{"name": "a", "count": 1, "color": "red"}]}, "unknown field 'color'"),
        ({"groups": [{"name": "a", "count": 1, "conventions": ["x"]}]}, "unknown label convention"),
        ({"groups": [{"name": "a", "count": -1}]}, "must not be negative"),
        ({"nodes": 4}, "unknown field 'nodes'"),
    ],
)
def test_wrong_profile_is_refused_with_the_field(values: dict[str, object], text: str) -> None:
    with pytest.raises(ProfileError, match=text):
        profile_of({"name": "x", **values})


def test_missing_profile_names_the_shipped_ones() -> None:
    with pytest.raises(ProfileError, match="shipped: demo, h100-1024, mixed-4000, nvl72, shared"):
        load_profile("nope")


def fields_of(raw: bytes) -> dict[int, list[bytes]]:
    """The fields of a protobuf message that are bytes, by number, in order."""
    found: dict[int, list[bytes]] = {}
    for number, value in wire_parts(raw):
        assert isinstance(value, bytes)
        found.setdefault(number, []).append(value)
    return found


def test_openapi_document_in_protobuf_has_paths_definitions_and_extensions() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/definitions/A"}}, "x-k": [1]}
    operation = {
        "consumes": ["c"], "produces": ["p"], "x-k": {"kind": "K"},
        "parameters": [{"name": "dryRun", "in": "query", "type": "string"}],
        "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/A"}}},
    }  # fmt: skip
    whole = {
        "swagger": "2.0", "info": {"title": "t" * 200, "version": "v"},
        "paths": {"/p": {"patch": operation}}, "definitions": {"A": schema},
    }  # fmt: skip
    document = fields_of(encode_document(whole))
    assert document[1] == [b"2.0"]
    assert fields_of(document[2][0]) == {1: [b"t" * 200], 2: [b"v"]}
    path = fields_of(fields_of(document[8][0])[2][0])
    patch = fields_of(fields_of(path[2][0])[8][0])
    assert path[1] == [b"/p"]
    assert (patch[6], patch[7]) == ([b"p"], [b"c"])
    assert fields_of(patch[13][0])[1] == [b"x-k"]
    assert fields_of(fields_of(patch[13][0])[2][0])[2] == [b'{"kind": "K"}']
    query = patch[8][0]
    for number in (1, 2, 3):  # parameter, not in the body, in the query
        query = fields_of(query)[number][0]
    assert fields_of(query)[4] == [b"dryRun"]
    definition = fields_of(fields_of(document[9][0])[1][0])
    inner = fields_of(definition[2][0])
    assert (definition[1], inner[22]) == ([b"A"], [b"\n\x06object"])
    held = fields_of(fields_of(inner[25][0])[1][0])
    assert (held[1], fields_of(held[2][0])) == ([b"a"], {1: [b"#/definitions/A"]})
