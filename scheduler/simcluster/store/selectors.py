"""Label and field selectors, compiled into predicates over bodies."""

import re
from collections.abc import Callable
from typing import Any

from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]
Predicate = Callable[[Json], bool]
_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s=!,()<>]+)")


class SelectorError(ValueError):
    """A selector that cannot be read; the text is what the API server says."""


def label_predicate(text: str) -> Predicate | None:
    """Compiles `a=b,c in (d,e),!f`; None selects everything. Raises SelectorError."""
    tokens = _tokens(text)
    if not tokens:
        return None
    checks: list[Callable[[dict[str, str]], bool]] = []
    position = 0
    while position < len(tokens):
        check, position = _requirement(tokens, position)
        checks.append(check)
        if position < len(tokens):
            if tokens[position] != "," or position + 1 == len(tokens):
                raise SelectorError(
                    f"unable to parse requirement: found '{tokens[position]}', "
                    "expected: ',' or 'end of string'"
                )
            position += 1
    if len(checks) == 1:
        only = checks[0]
        return lambda body: only(body["metadata"].get("labels") or {})
    return lambda body: _all(checks, body["metadata"].get("labels") or {})


def _all(checks: list[Callable[[dict[str, str]], bool]], labels: dict[str, str]) -> bool:
    return all(check(labels) for check in checks)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise SelectorError(f"unable to parse requirement: invalid selector '{text}'")
        tokens.append(match.group(1))
        position = match.end()
    return tokens


def _at(tokens: list[str], position: int) -> str:
    return tokens[position] if position < len(tokens) else ""


def _requirement(tokens: list[str], position: int) -> tuple[Callable[[dict[str, str]], bool], int]:
    key = _at(tokens, position)
    if key == "!":
        absent = _at(tokens, position + 1)
        return (lambda labels: absent not in labels), position + 2
    operator = _at(tokens, position + 1)
    if operator in ("", ","):
        return (lambda labels: key in labels), position + 1
    if operator in ("=", "==", "!="):
        return _equality(key, operator, tokens, position + 2)
    if operator in ("in", "notin"):
        values, after = _values(tokens, position + 2)
        if operator == "in":
            return (lambda labels: labels.get(key) in values), after
        return (lambda labels: labels.get(key) not in values), after
    if operator in ("<", ">"):
        return _comparison(key, operator, _at(tokens, position + 2)), position + 3
    raise SelectorError(
        f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, gt, lt"
    )


def _equality(
    key: str, operator: str, tokens: list[str], position: int
) -> tuple[Callable[[dict[str, str]], bool], int]:
    value = _at(tokens, position)
    after = position + 1
    if value in ("", ","):
        value, after = "", position
    if operator == "!=":
        return (lambda labels: labels.get(key) != value), after
    return (lambda labels: labels.get(key) == value), after


def _values(tokens: list[str], position: int) -> tuple[frozenset[str], int]:
    if _at(tokens, position) != "(":
        found = _at(tokens, position)
        raise SelectorError(f"unable to parse requirement: found '{found}', expected: '('")
    values: list[str] = []
    position += 1
    while True:
        part = _at(tokens, position)
        if part == ")":
            return frozenset(values), position + 1
        if part == "":
            raise SelectorError(
                "unable to parse requirement: found '', expected: ',', ')' or identifier"
            )
        if part != ",":
            values.append(part)
        position += 1


def _comparison(key: str, operator: str, text: str) -> Callable[[dict[str, str]], bool]:
    try:
        bound = int(text)
    except ValueError:
        raise SelectorError(
            f'unable to parse requirement: values[0][{key}]: Invalid value: "{text}": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        ) from None

    def holds(labels: dict[str, str]) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?\d+", value):
            return False
        return int(value) > bound if operator == ">" else int(value) < bound

    return holds


def selector_predicate(selector: Json | None) -> Predicate:
    """A `LabelSelector` object (matchLabels, matchExpressions) as a predicate.

    An absent selector matches nothing, an empty one everything.
    """
    if selector is None:
        return lambda body: False
    wanted: dict[str, str] = selector.get("matchLabels") or {}
    expressions: list[Json] = selector.get("matchExpressions") or []

    def matches(body: Json) -> bool:
        labels = body["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in wanted.items()):
            return False
        return all(expression_holds(item, labels) for item in expressions)

    return matches


def expression_holds(expression: Json, labels: dict[str, str]) -> bool:
    """One `{key, operator, values}` of a label selector or node selector term."""
    key, operator = expression["key"], expression["operator"]
    values = expression.get("values") or []
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    value = labels.get(key, "")
    if not (re.fullmatch(r"-?\d+", value) and values and re.fullmatch(r"-?\d+", values[0])):
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def field_predicate(text: str, resource: ResourceType) -> Predicate | None:
    """Compiles `spec.nodeName=x,status.phase!=y`; None selects everything.

    Raises SelectorError for a field that the kind does not select by.
    """
    checks: list[Predicate] = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([^=!]+)(!=|==|=)(.*)", term)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = match.groups()
        allowed = ("metadata.name", "metadata.namespace", *resource.field_labels)
        if path not in allowed:
            raise SelectorError(f"field label not supported: {path}")
        checks.append(_field_check(tuple(path.split(".")), value, equal=operator != "!="))
    if not checks:
        return None
    if len(checks) == 1:
        return checks[0]
    return lambda body: all(check(body) for check in checks)


def _field_check(path: tuple[str, ...], value: str, *, equal: bool) -> Predicate:
    def matches(body: Json) -> bool:
        return (field_text(body, path) == value) is equal

    return matches


def field_text(body: Json, path: tuple[str, ...]) -> str:
    """The value of a selectable field as text; an absent one is empty."""
    found: Any = body
    for part in path:
        if not isinstance(found, dict):
            return ""
        found = found.get(part)
        if found is None:
            return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    if path == ("source",):
        return str(found.get("component", "")) if isinstance(found, dict) else ""
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found)
