"""One consistent view of the database for a group of reads, without keeping writers out.

Called by `scheduler.snapshot.warm`: a snapshot that mixes two states could show a job both waiting and running.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def consistent_reads() -> Iterator[None]:
    """All reads of the block see the same commits. Joins an open transaction, or block, as it is.

    PostgreSQL: a repeatable-read transaction. SQLite: a deferred one, begun by hand, because Django's own are
    immediate here and would hold the only write lock for as long as the reading takes.
    """
    if connection.in_atomic_block or _begun_by_hand():
        yield
    elif connection.vendor == "postgresql":
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield
    else:
        with _deferred():
            yield


def _begun_by_hand() -> bool:
    return connection.vendor == "sqlite" and getattr(connection.connection, "in_transaction", False)


@contextmanager
def _deferred() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN DEFERRED")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ROLLBACK")
