"""Many seats at once → rows. Called by `scheduler.apply.starts`.

A gang of 512 nodes takes 4,096 seats: as three arrays in one statement they cost a tenth of as many model objects.
"""

from collections.abc import Sequence

from django.db import connection

from scheduler.models import Seat

# SQLite takes 32,766 variables in a statement.
ROWS_PER_INSERT = 1_000
# Node's id, index of the seat, placement's id.
SeatRow = tuple[int, int, int]


def insert_seats(rows: Sequence[SeatRow]) -> None:
    """Insert them all. IntegrityError where one of them is taken: the unique index has the last word."""
    if not rows:
        return
    if connection.vendor != "postgresql":
        seats = [Seat(node_id=node, index=at, placement_id=of) for node, at, of in rows]
        Seat.objects.bulk_create(seats, batch_size=ROWS_PER_INSERT)
        return
    quote = connection.ops.quote_name
    columns = ", ".join(quote(name) for name in ("node_id", "index", "placement_id"))
    # Names come from the model; every value is a parameter.
    statement = (
        f"INSERT INTO {quote(Seat._meta.db_table)} ({columns}) "
        "SELECT * FROM unnest(%s::bigint[], %s::smallint[], %s::bigint[])"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(column) for column in zip(*rows, strict=True)])
