"""The OpenAPI document, and requests made up from it: no crash, and every refusal a problem document."""

import json
import logging
import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from django.db import transaction
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from hypothesis import HealthCheck, Phase, given, settings
from rest_framework.test import APIClient

from tenants.models import Tenant
from tenants.throttling import buckets
from tests.factories import make_job, run_job
from tests.world import World, make_world

pytestmark = [pytest.mark.django_db]
EXAMPLES = 3


def document() -> dict[str, Any]:
    """The OpenAPI document, as scripts get it."""
    generator: Any = SchemaGenerator()
    found: dict[str, Any] = generator.get_schema(request=None, public=True)
    return found


@pytest.fixture
def world(db: None) -> World:
    """CONTRACT's people, with full rate limits."""
    buckets.clear()
    return make_world()


@pytest.fixture
def research(world: World) -> Tenant:
    """Their tenant."""
    return world.tenants["research"]


@pytest.fixture
def ravi(world: World) -> Any:
    """A submitter in research."""
    return world.users["ravi"]


def test_the_document_is_valid_and_names_every_operation_once() -> None:
    found = document()
    validate_schema(found)
    names = [
        operation["operationId"]
        for path in found["paths"].values()
        for method, operation in path.items()
        if method in {"get", "post", "put", "patch", "delete"}
    ]
    assert len(names) == len(set(names))
    assert {"jobs_submit", "jobs_submit_batch", "jobs_cancel", "quotas_replace"} <= set(names)


def test_every_refusal_of_the_contract_is_documented() -> None:
    submit = document()["paths"]["/api/v1/jobs/"]["post"]
    assert {"201", "409", "422"} <= set(submit["responses"])
    assert "application/json" in submit["requestBody"]["content"]


def test_a_method_that_an_address_lacks_is_answered_405_with_those_it_has(
    world: World, quiet: None
) -> None:
    client = world.client("admin")
    for path, operations in document()["paths"].items():
        if "/attempts/me/" in path:
            continue  # opened by an attempt's token alone
        address = re.sub(r"{\w+}", "1", path)
        for method in {"get", "head", "options", "post", "put", "patch", "delete"} - set(
            operations
        ):
            if method == "head" and "get" in operations:
                continue
            answer = client.generic(method.upper(), address)
            assert answer.status_code in (404, 405), (method, path, answer.status_code)
            if answer.status_code == 405:
                assert answer["Allow"], (method, path)


@pytest.mark.parametrize(
    "query",
    [
        "alerts/?severity=nope",
        "evictions/?rule=nope",
        "evictions/?open=nope",
        "maintenance-windows/?kind=nope",
        "maintenance-windows/?all=nope",
    ],
)
def test_a_filter_that_means_nothing_is_refused_rather_than_ignored(
    world: World, query: str
) -> None:
    answer = world.client("admin").get(f"/api/v1/{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "?" + query.partition("?")[2].partition("=")[0]


@pytest.fixture
def quiet() -> Iterator[None]:
    """Thousands of refusals are not worth a line each."""
    logger = logging.getLogger("django.request")
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)


@pytest.mark.slow
def test_requests_made_up_from_the_document_never_crash(
    world: World, shop: Tenant, ravi: Any, quiet: None
) -> None:
    queue = shop.queues.get(name="train")
    run_job(make_job(queue, ravi))
    known = {
        "tenant": ["research", "vision"],
        "job_id": [make_job(queue, ravi).pk],
        "queue": ["train"],
        "cluster": ["demo"],
        "flavor": ["h100"],
        "preset": ["infiniband"],
        "user": ["ravi"],
        "name": ["wandb"],
        "node": ["gpu-00000"],
    }
    clients = [world.bearer(name) for name in ("ravi", "admin")]
    wrong: list[Any] = []
    asked = 0
    for result in schemathesis.openapi.from_dict(document()).get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]
        asked += _ask(operation, known, clients, wrong)
    assert asked > 150
    assert wrong == []


def _ask(
    operation: Any, known: dict[str, list[str]], clients: list[APIClient], wrong: list[Any]
) -> int:
    """Send made-up requests of one operation; each leaves no trace. Returns how many."""
    dice = random.Random(operation.path)
    asked = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        nonlocal asked
        request = _request(operation, case, known, dice)
        if request is None:
            return
        for client in clients:
            buckets.clear()
            with transaction.atomic():
                mark = transaction.savepoint()
                response = client.generic(*request[:3], "application/json", headers=request[3])
                transaction.savepoint_rollback(mark)
            asked += 1
            if not _is_fine(response):
                wrong.append((*request, response.status_code, response.content[:300]))

    send()
    return asked


def _request(
    operation: Any, case: Any, known: dict[str, list[str]], dice: random.Random
) -> tuple[str, str, str, dict[str, str]] | None:
    """Method, address, body and headers; real names in the address as often as made-up ones."""
    path = case.formatted_path
    if dice.random() < 0.7:
        path = operation.path
        for name, values in known.items():
            path = path.replace(f"{{{name}}}", dice.choice(values))
        path = path.format_map(_Ones())
    has_body = case.body is not None and type(case.body).__name__ != "NotSet"
    try:
        body = json.dumps(case.body) if has_body else ""
    except (TypeError, ValueError):
        return None  # a body that is no JSON
    headers = {
        name: value
        for name, value in (case.headers or {}).items()
        if isinstance(value, str) and value.isascii() and value.isprintable()
    }
    headers.pop("Authorization", None)
    query = urlencode(case.query or {}, doseq=True, errors="replace")
    return operation.method.upper(), f"{path}?{query}" if query else path, body, headers


class _Ones(dict[str, str]):
    """What is not known by name is a number."""

    def __missing__(self, _key: str) -> str:
        return "1"


def _is_fine(response: Any) -> bool:
    if response.status_code < 400:
        return True
    # 503: nobody plans in this test. Anything else from 500 on is a crash.
    if response.status_code >= 500 and response.status_code != 503:
        return False
    kind = response["Content-Type"].partition(";")[0]
    return kind == "application/problem+json" and bool(json.loads(response.content)["detail"])
