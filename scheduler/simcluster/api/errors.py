"""Refusals of the API server, as the `Status` objects that a real one sends."""

from typing import Any

from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]


class ApiError(Exception):
    """A refusal: HTTP status, machine-readable reason, message, details, extra headers."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self) -> Json:
        """The `Status` object of this refusal."""
        body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def success(details: Json | None = None, code: int | None = None) -> Json:
    """The `Status` object of a call that worked."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = details
    if code is not None:
        body["code"] = code
    return body


def details_of(resource: ResourceType, name: str, causes: list[Json] | None = None) -> Json:
    """`details` with name, group and kind (the plural, as the server has it)."""
    details: Json = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    if causes:
        details["causes"] = causes
    return details


def not_found(resource: ResourceType, name: str) -> ApiError:
    """404 for an object that is not there."""
    message = f'{resource.qualified} "{name}" not found'
    return ApiError(404, "NotFound", message, details_of(resource, name))


def already_exists(resource: ResourceType, name: str, *, leaving: bool = False) -> ApiError:
    """409 for a create under a name that is taken; `leaving` when its holder is being deleted."""
    message = f'{resource.qualified} "{name}" already exists'
    if leaving:
        message = "object is being deleted: " + message
    return ApiError(409, "AlreadyExists", message, details_of(resource, name))


def conflict(resource: ResourceType, name: str, text: str, subresource: str = "") -> ApiError:
    """409 for a write that lost against the state of the object."""
    plural = resource.qualified + (f"/{subresource}" if subresource else "")
    details = details_of(resource, name)
    if subresource:
        details["kind"] += f"/{subresource}"
    message = f'Operation cannot be fulfilled on {plural} "{name}": {text}'
    return ApiError(409, "Conflict", message, details)


def stale(resource: ResourceType, name: str) -> ApiError:
    """409 for a resourceVersion that is no longer the object's."""
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version "
        "and try again",
    )


def forbidden(
    resource: ResourceType, name: str, text: str, causes: list[Json] | None = None
) -> ApiError:
    """403 from admission."""
    shown = f'{resource.qualified} "{name}"' if name else resource.qualified
    return ApiError(
        403, "Forbidden", f"{shown} is forbidden: {text}", details_of(resource, name, causes)
    )


def bad_request(message: str) -> ApiError:
    """400: the request itself cannot be read."""
    return ApiError(400, "BadRequest", message)


def cause(reason: str, message: str, field: str) -> Json:
    """One entry of `details.causes`."""
    return {"reason": reason, "message": message, "field": field}


def invalid_value(field: str, value: str, why: str) -> Json:
    """A cause: the value is wrong."""
    return cause("FieldValueInvalid", f"Invalid value: {value}: {why}", field)


def required(field: str, why: str = "") -> Json:
    """A cause: the field must be set."""
    return cause("FieldValueRequired", "Required value" + (f": {why}" if why else ""), field)


def forbidden_field(field: str, why: str) -> Json:
    """A cause: the field must not be so."""
    return cause("FieldValueForbidden", f"Forbidden: {why}", field)


def unsupported(field: str, value: str, choices: tuple[str, ...]) -> Json:
    """A cause: not one of the values that exist."""
    listed = ", ".join(f'"{choice}"' for choice in choices)
    message = f'Unsupported value: "{value}": supported values: {listed}'
    return cause("FieldValueNotSupported", message, field)


def invalid(resource: ResourceType, name: str, causes: list[Json]) -> ApiError:
    """422: the object can be read and is wrong; the message joins all causes."""
    parts = list(dict.fromkeys(f"{item['field']}: {item['message']}" for item in causes))
    joined = parts[0] if len(parts) == 1 else "[" + ", ".join(parts) + "]"
    kind = resource.kind + (f".{resource.group}" if resource.group else "")
    details: Json = {"name": name}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.kind
    details["causes"] = causes
    if not name:
        details.pop("name")
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {joined}', details)


def method_not_allowed() -> ApiError:
    """405: the verb does not exist here."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def expired(asked: int, oldest: int) -> ApiError:
    """410: the version asked for is no longer kept."""
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")
