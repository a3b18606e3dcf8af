"""Whatever JSON is sent as a job: it is read or refused with pointers, never a crash, never a row by mistake."""

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.common.errors import InvalidError
from queues.contract.context import Context
from queues.contract.jobs import read_job
from queues.services.validation import validate_batch, validate_job
from queues.specs import FlavorOffer, JobSpec, QueueOffer
from tenants.models import Tenant, User
from tests.factories import H100, NOW, actor_of
from tests.queues.payloads import FULL, ROLES

OFFER = QueueOffer(
    tenant_id=1,
    tenant="research",
    queue_id=1,
    queue="train",
    cluster="demo",
    flavors=(FlavorOffer(1, "h100", H100, 8, 8, 192_000, 2_097_152),),
    levels=("spine", "leaf"),
    presets={"infiniband": (1, None)},
    secrets=frozenset({"wandb"}),
    pull_secrets=frozenset({"regcred"}),
)
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    2**63,
    1.5,
    1e308,
    "",
    " ",
    "leaf",
    "\x00",
    "\ud800",
    "🚀",
    "9" * 5000,
    "2026-13-45T99:99:99Z",
    "0001-01-01T00:00:00-23:59",
    "9999-12-31T23:59:59-23:59",
    [],
    [None],
    [[[]]],
    {},
    {"a": {"b": []}},
    {"": ""},
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)


def read(payload: Any) -> tuple[JobSpec | None, list[Any]]:
    """Spec and errors, without a database."""
    context = Context(NOW, OFFER, ("sim.muster.dev",))
    return read_job(payload, context), context.errors.found


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a payload."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


def replaced(payload: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with one value exchanged."""
    changed = copy.deepcopy(payload)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def resolves(payload: Any, pointer: str) -> bool:
    """Whether the pointer names a value of the payload, or a key that is missing from one."""
    inner = payload
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    for number, part in enumerate(parts):
        if isinstance(inner, list) and part.isdecimal() and int(part) < len(inner):
            inner = inner[int(part)]
        elif isinstance(inner, dict) and part in inner:
            inner = inner[part]
        else:
            return isinstance(inner, dict) and number == len(parts) - 1
    return True


@pytest.mark.parametrize("base", [FULL, ROLES], ids=["full", "roles"])
def test_every_odd_value_at_every_place_is_read_or_refused_where_it_stands(
    base: dict[str, Any],
) -> None:
    """Each value of a good job is exchanged for each odd one: no crash, and pointers that lead somewhere."""
    full = copy.deepcopy(base) | {"depends_on": [{"job": "job_a", "on": "finished"}]}
    for path in places(full)[1:]:
        for odd in ODD:
            sent = replaced(full, path, odd)
            spec, errors = read(sent)
            assert spec is not None
            for error in errors:
                assert error.message
                shown = "\ud800" in str(path)
                assert shown or resolves(sent, error.pointer), (path, odd, error)


@given(st.dictionaries(st.sampled_from([*FULL, "roles", "decides", "typo"]), json_values))
@settings(max_examples=300, deadline=None)
def test_any_json_object_is_read_or_refused(payload: dict[str, Any]) -> None:
    spec, errors = read(payload)
    assert spec is not None
    assert errors, "name, tenant, queue, image and GPUs cannot all be right by chance"


def test_a_good_job_stays_good_whatever_the_order_of_its_keys() -> None:
    expected, errors = read(FULL)
    assert errors == []
    keys = list(FULL)
    for seed in range(20):
        random.Random(seed).shuffle(keys)
        assert read({key: FULL[key] for key in keys}) == (expected, [])


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.sqlite
def test_odd_values_in_names_that_are_looked_up_reach_no_database_error(
    shop: Tenant, ravi: User
) -> None:
    actor = actor_of(ravi)
    for key in ("tenant", "queue", "depends_on", "external_id", "preset", "secret_env"):
        for odd in ODD:
            for value in (odd, [odd], {"A": odd}, [{"job": odd}], [{"external_id": odd}]):
                sent = FULL | {key: value}
                try:
                    validate_job(actor, sent, NOW)
                except InvalidError as refusal:
                    json.dumps([error.pointer + error.message for error in refusal.errors])
                validate_batch(actor, [sent, value], NOW)
