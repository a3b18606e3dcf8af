"""How long a request took and how much of that in the database (`Server-Timing`), and its number in the log.

One wrapper per database connection adds to the meter of whatever request its thread works for; context
variables follow a request from the event loop into its thread.
"""

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(slots=True)
class Meter:
    """One request's time, in seconds of a monotonic clock."""

    request_id: str = ""
    started: float = field(default_factory=time.perf_counter)
    queries: int = 0
    database_seconds: float = 0.0

    @property
    def total_seconds(self) -> float:
        """Since the request came in."""
        return time.perf_counter() - self.started

    def header(self) -> str:
        """The value of `Server-Timing`; durations in ms, as the header has it."""
        return (
            f"total;dur={self.total_seconds * 1000:.1f}, "
            f'db;dur={self.database_seconds * 1000:.1f};desc="{self.queries} queries"'
        )


class RequestIdFilter(logging.Filter):
    """Puts the number of the request at hand into each log line, "-" where there is none.

    A person who reports an error quotes the number; here is where it leads.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every line."""
        meter = current_meter.get()
        record.request_id = meter.request_id if meter else "-"
        return True


current_meter: ContextVar[Meter | None] = ContextVar("current_meter", default=None)


def measure(
    execute: Callable[..., Any],
    sql: str,
    params: Any,
    many: bool,  # noqa: FBT001  Django calls it so
    context: dict[str, Any],
) -> Any:
    """Django's hook around each statement."""
    meter = current_meter.get()
    if meter is None:
        return execute(sql, params, many, context)
    began = time.perf_counter()
    try:
        return execute(sql, params, many, context)
    finally:
        meter.queries += 1
        meter.database_seconds += time.perf_counter() - began


def watch_connection(connection: BaseDatabaseWrapper, **_kwargs: object) -> None:
    """Receiver of `connection_created`."""
    if measure not in connection.execute_wrappers:
        connection.execute_wrappers.append(measure)
