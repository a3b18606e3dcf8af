"""Where a run's processes die, and how their database fails: what the driver arms, the code runs into.

`CrashPoints` are passed by name on the way (plan, commit, create, bind, observe); `Database` stands
between Django and PostgreSQL. A crash is a BaseException: nothing of the product catches it, and
transactions roll back as they do when a process is killed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections


class Crash(BaseException):
    """The process is dead from here on."""


@dataclass(slots=True)
class CrashPoints:
    """Which step kills whom: `arm("create.after", 2)` kills at the second creation from now."""

    armed: dict[str, int] = field(default_factory=dict)
    actor: str = ""
    """Whose statements those are that run now."""
    died_at: Counter[str] = field(default_factory=Counter)

    def arm(self, step: str, nth: int) -> None:
        """From now on the nth time that `step` is passed is the last."""
        self.armed[step] = nth

    def disarm(self) -> None:
        """Nobody dies any more."""
        self.armed.clear()

    def strikes(self, step: str) -> bool:
        """Count a step; True when it is the one to die at."""
        left = self.armed.get(step)
        if left is None:
            return False
        if left > 1:
            self.armed[step] = left - 1
            return False
        del self.armed[step]
        self.died_at[step] += 1
        return True

    def pass_(self, step: str) -> None:
        """Go by a step. Raises Crash."""
        if self.strikes(step):
            raise Crash(step)


@dataclass(slots=True)
class Database:
    """Cuts the connection, before a statement or after a commit whose answer is lost."""

    points: CrashPoints
    cut_in: int = 0
    """So many statements from now the connection is cut; 0: never."""
    lose_commit_in: int = 0
    away: bool = False
    struck: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def between(self) -> Iterator[None]:
        """Stand between while the block runs."""
        wrapper = connection.execute_wrapper(self._execute)
        wrapped: Any = connections[DEFAULT_DB_ALIAS]
        with wrapper, patch.object(wrapped, "_commit", self._committing(wrapped._commit)):
            yield

    def _execute(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:  # fmt: skip
        if self.away:
            self._cut("database_away")
            raise OperationalError("connection refused")
        self.points.pass_(f"{self.points.actor}.statement")
        if self.cut_in:
            self.cut_in -= 1
            if not self.cut_in:
                self._cut("database_cut")  # and go on: the driver itself says what that means
        return execute(sql, params, many, context)

    def _committing(self, commit: Callable[[], None]) -> Callable[[], None]:
        def committing() -> None:
            commit()
            if self.lose_commit_in:
                self.lose_commit_in -= 1
                if not self.lose_commit_in:
                    self._cut("commit_lost")
                    raise OperationalError("server closed the connection unexpectedly")

        return committing

    def _cut(self, how: str) -> None:
        self.struck[how] += 1
        if connection.connection is not None:
            connection.connection.close()
