"""Bodies that are not what they should be: each refusal says what and where."""

import json

import pytest
from rest_framework.test import APIClient

from controlplane.common.errors import ApplicationError
from controlplane.common.parsers import read_json

PATH = "/api/v1/tenants/research/members/"


@pytest.mark.parametrize(
    ("body", "line", "column", "position"),
    [
        (b"", 1, 1, 0),
        (b"{", 1, 2, 1),
        (b'{"a": 1,}', 1, 9, 8),
        (b'{\n  "a": 1\n  "b": 2\n}', 3, 3, 13),
        (b'{"a": NaN}', 1, 7, 6),
        (b'{"a": "NaN",\n "b": [-Infinity]}', 2, 8, 20),
        (b'{"a": "caf\xe9"}', 1, 11, 10),
        (b'{"a": "x"}\n{"b": 1}', 2, 1, 11),
    ],
)
def test_broken_json_is_refused_with_its_place(body, line, column, position):
    with pytest.raises(ApplicationError) as refused:
        read_json(body)
    error = refused.value
    assert (error.status, error.code) == (400, "malformed_json")
    assert error.extra == {"line": line, "column": column, "position": position}
    assert f"line {line}, column {column}" in error.detail


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"[" * 100_000, "too deeply"),
        (b"1" * 5000, "too many digits"),
        (b'{"a": 1e999}', "too many digits"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "“b”"),
    ],
)
def test_json_that_python_would_bend_is_refused(body, says):
    with pytest.raises(ApplicationError, match=says) as refused:
        read_json(body)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"a": "x\x00"}, "/a"),
        ({"a": ["fine", "\ud800"]}, "/a/1"),
        ({"a/b": {"c": "\udfff"}}, "/a~1b/c"),
        ({"\x00": 1}, "/\ufffd"),
    ],
)
def test_characters_that_no_database_takes_are_refused_at_their_field(value, pointer):
    with pytest.raises(ApplicationError) as refused:
        read_json(json.dumps(value).encode())
    assert refused.value.status == 422
    assert [(e.pointer, e.code) for e in refused.value.errors] == [(pointer, "invalid_character")]


def test_good_json_comes_through_unchanged():
    value = {"name": "训练 🚀", "n": [1, -2.5, 0, 1e30, True, None], "": {"a": "\\u0000 as text"}}
    assert read_json(json.dumps(value).encode()) == value
    assert read_json(json.dumps(value, ensure_ascii=False).encode()) == value


def test_body_over_the_limit_is_413_and_names_it(world, settings):
    settings.MAX_BODY_BYTES = 1000
    answer = world.client("olivia").post(
        PATH, b'{"user": "' + b"x" * 1000 + b'"}', content_type="application/json"
    )
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["limit_bytes"]) == (413, "too_large", 1000)
    assert "1000" in problem["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "image/png"])
def test_other_types_are_415(world, kind):
    answer = world.client("olivia").post(PATH, b"{}", content_type=kind)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert "application/json" in answer.json()["hint"]


def test_malformed_body_over_http_is_a_problem_document(world):
    answer = world.client("olivia").post(PATH, b'{"user": }', content_type="application/json")
    problem = answer.json()
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"
    assert (problem["code"], problem["line"], problem["column"]) == ("malformed_json", 1, 10)


def test_nobodys_body_is_not_even_read():
    answer = APIClient().post(PATH, b"{", content_type="application/json")
    assert answer.status_code == 401
