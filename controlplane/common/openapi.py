"""What every operation of the OpenAPI document shares: refusals are problem documents (problems.py)."""

from typing import Any

from controlplane.common.problems import CONTENT_TYPE

METHODS = frozenset({"get", "post", "put", "patch", "delete"})
PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457. `errors` names each field; a pointer that begins with ? is a query parameter.",
    "required": ["type", "title", "status", "detail", "code", "hint", "errors"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "hint": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "message"],
                "properties": {
                    "pointer": {"type": "string"},
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                },
            },
        },
        "request_id": {"type": "string"},
    },
}


def add_problems(result: dict[str, Any], **_kwargs: object) -> dict[str, Any]:
    """drf-spectacular's hook: give every operation the answer that all refusals have."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas["ProblemDocument"] = PROBLEM
    answer = {
        "description": "A refusal.",
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
    }
    for path in result.get("paths", {}).values():
        for method, operation in path.items():
            if method in METHODS:
                operation["responses"].setdefault("default", answer)
    return result
