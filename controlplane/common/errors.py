"""Errors that services raise and doors show: as a problem document (API) or beside the field (forms)."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one field.

    pointer: JSON Pointer into what was sent ("/roles/0/replicas"); empty for the whole body.
    """

    pointer: str
    code: str
    message: str


class ApplicationError(Exception):
    """A refusal that a person can act on. Subclasses fix the HTTP status."""

    status = 400
    default_code = "refused"

    def __init__(
        self,
        detail: str,
        *,
        code: str = "",
        hint: str = "",
        errors: tuple[FieldError, ...] = (),
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.default_code
        self.hint = hint
        self.errors = errors
        self.extra = extra or {}

    @property
    def sentence(self) -> str:
        """What was refused, and what to do about it: for a page that has no field to put it beside."""
        return f"{self.detail} {self.hint}".strip()

    @property
    def lines(self) -> str:
        """As `sentence`, but what is wrong with each field where that is known."""
        told = [found.message for found in self.errors] or [self.detail]
        return " ".join([*told, self.hint]).strip()


class InvalidError(ApplicationError):
    """What was sent does not hold; `errors` names each field. Nothing was changed."""

    status = 422
    default_code = "invalid"


class ForbiddenError(ApplicationError):
    """The user may see the thing but not do this to it."""

    status = 403
    default_code = "forbidden"


class NotVisibleError(ApplicationError):
    """Unknown, or another tenant's: the answer is the same."""

    status = 404
    default_code = "not_found"


class ConflictError(ApplicationError):
    """The state does not allow it, or somebody else was first."""

    status = 409
    default_code = "conflict"


class GoneError(ApplicationError):
    """Events older than what is kept were asked for."""

    status = 410
    default_code = "resync"


class StaleError(ApplicationError):
    """`If-Match` names a version that is no longer the current one."""

    status = 412
    default_code = "stale"


class PreconditionRequiredError(ApplicationError):
    """`If-Match` is missing where two writers could overwrite each other."""

    status = 428
    default_code = "precondition_required"


class LimitedError(ApplicationError):
    """Too often; `extra["retry_after_seconds"]` says when again."""

    status = 429
    default_code = "limited"


class UnavailableError(ApplicationError):
    """Something this answer needs is away; try again after `retry_after_seconds`."""

    status = 503
    default_code = "unavailable"
    retry_after_seconds = 2


@dataclass(slots=True)
class ErrorCollector:
    """Gathers field errors so that a person sees all of them at once.

    errors = ErrorCollector()
    errors.add("/replicas", "too_small", _("must be at least 1"))
    errors.raise_if_any()
    """

    found: list[FieldError] = field(default_factory=list)

    def add(self, pointer: str, code: str, message: str) -> None:
        """Note one more error."""
        self.found.append(FieldError(pointer, code, str(message)))

    def raise_if_any(self, detail: str = "") -> None:
        """Raise InvalidError with all that was noted."""
        if self.found:
            first = self.found[0]
            raise InvalidError(
                detail or f"{first.pointer}: {first.message}", errors=tuple(self.found)
            )
