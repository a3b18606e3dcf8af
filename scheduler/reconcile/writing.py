"""Few statements for many rows: only the columns that changed, one UPDATE per set of them and some hundred rows.

Called by `tick`. `bulk_update` of Django builds one huge CASE for all rows; hundreds of pods that each got a uid of
their own are written ten times faster as a join with a list of values (PostgreSQL), or as one prepared statement that
is executed for each (SQLite).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, models

Changes = Mapping[int, Mapping[str, Any]]
ROWS_PER_STATEMENT = 500


def write_rows(model: type[models.Model], changes: Changes) -> int:
    """UPDATE the rows by primary key; `changes` maps it to {column attribute: value}."""
    by_columns: dict[tuple[str, ...], list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
    for key, values in changes.items():
        if values:
            by_columns[tuple(sorted(values))].append((key, values))
    for columns, rows in by_columns.items():
        _write(model, columns, rows)
    return sum(len(rows) for rows in by_columns.values())


def _write(
    model: type[models.Model],
    columns: tuple[str, ...],
    rows: list[tuple[int, Mapping[str, Any]]],
) -> None:
    fields = [_field(model, name) for name in columns]
    parameters = [
        (pk, *(_stored(field, values[field.attname]) for field in fields)) for pk, values in rows
    ]
    if connection.vendor != "postgresql":
        _write_each(model, fields, parameters)
        return
    for start in range(0, len(parameters), ROWS_PER_STATEMENT):
        _write_joined(model, fields, parameters[start : start + ROWS_PER_STATEMENT])


def _write_each(
    model: type[models.Model],
    fields: Sequence[models.Field[Any, Any]],
    parameters: Sequence[tuple[Any, ...]],
) -> None:
    # Names come from the model's own fields; every value is a parameter.
    assignments = ", ".join(f"{_quoted(field)} = %s" for field in fields)
    statement = f"UPDATE {_table(model)} SET {assignments} WHERE {_key(model)} = %s"
    with connection.cursor() as cursor:
        cursor.executemany(statement, [(*values, pk) for pk, *values in parameters])


def _write_joined(
    model: type[models.Model],
    fields: Sequence[models.Field[Any, Any]],
    parameters: Sequence[tuple[Any, ...]],
) -> None:
    """The first row of the list says what types its columns have."""
    columns = ", ".join(_quoted(field) for field in fields)
    assignments = ", ".join(f"{_quoted(field)} = new.{_quoted(field)}" for field in fields)
    key = _key(model)
    typed = ", ".join(("%s::bigint", *(f"%s::{field.db_type(connection)}" for field in fields)))
    plain = ", ".join(["%s"] * (len(fields) + 1))
    values = ", ".join((f"({typed})", *[f"({plain})"] * (len(parameters) - 1)))
    statement = (
        f"UPDATE {_table(model)} AS old SET {assignments} "
        f"FROM (VALUES {values}) AS new ({key}, {columns}) WHERE old.{key} = new.{key}"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [value for row in parameters for value in row])


def _table(model: type[models.Model]) -> str:
    return connection.ops.quote_name(model._meta.db_table)


def _key(model: type[models.Model]) -> str:
    return connection.ops.quote_name(str(model._meta.pk.column))


def _quoted(field: models.Field[Any, Any]) -> str:
    return connection.ops.quote_name(str(field.column))


def _field(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)
    return field


def _stored(field: models.Field[Any, Any], value: Any) -> Any:
    return field.get_db_prep_save(value, connection=connection)
