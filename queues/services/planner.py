"""Where `scheduler` plugs in what only a planner can answer. This app may not import it, so it is told at start.

`scheduler.apps` registers one; without it (a process that has no planner) what needs an answer is refused with
503 rather than guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from django.utils.translation import gettext as _

from controlplane.common.errors import UnavailableError
from queues.models import Job
from queues.specs import JobSpec
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Never:
    """A job can never run as things are: the reason's code and numbers, as in a verdict."""

    code: str
    numbers: dict[str, Any] = field(default_factory=dict)


class Planner(Protocol):
    """What a planner answers. Each may raise UnavailableError."""

    def never(self, specs: Sequence[JobSpec], user: str, now: datetime) -> list[Never | None]:
        """For each job why it can never run, None where it can (or may have to wait)."""

    def refuses_longer_run(
        self, job: Job, max_runtime_seconds: int | None, now: datetime
    ) -> str | None:
        """A sentence that says why a running job's limit may not become so long, None where it may."""

    def check_quota_plan(
        self, tenant: Tenant, sent: Mapping[str, Any], plan_id: str, now: datetime
    ) -> None:
        """Raise ConflictError `plan_changed`, with the new plan, unless these quotas still lead to `plan_id`."""


class NoPlanner:
    """Stands in until one is registered."""

    def never(self, specs: Sequence[JobSpec], user: str, now: datetime) -> list[Never | None]:
        """Nobody knows."""
        raise UnavailableError(_("Nobody can say at the moment whether the job can ever run."))

    def refuses_longer_run(
        self, job: Job, max_runtime_seconds: int | None, now: datetime
    ) -> str | None:
        """Nobody knows."""
        raise UnavailableError(_("Nobody can say at the moment whether the job may run longer."))

    def check_quota_plan(
        self, tenant: Tenant, sent: Mapping[str, Any], plan_id: str, now: datetime
    ) -> None:
        """Nobody knows."""
        raise UnavailableError(_("Nobody can say at the moment whether the plan still holds."))


_registered: list[Planner] = [NoPlanner()]


def register(planner: Planner) -> Planner:
    """Make `planner` the one that answers; returns the one before (tests put it back)."""
    before = _registered[0]
    _registered[0] = planner
    return before


def planner() -> Planner:
    """The one that answers."""
    return _registered[0]
