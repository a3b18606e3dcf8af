"""The quota editor's grid: what is posted → what the contract reads, and each refusal back to its cell.

Cells are named `f:<flavor>:<field>`, `q:<queue>:<flavor>` and `u:<user>:<flavor>`; an empty limit is
no limit, an empty queue's or user's cell is no entry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controlplane.common.errors import ApplicationError

FLAVOR_FIELDS = ("nominal", "borrowing_limit", "lending_limit", "weight", "headroom")
MAY_BE_EMPTY = frozenset({"borrowing_limit", "lending_limit"})


@dataclass(slots=True)
class QuotaGrid:
    """Values by cell name, as text, and what is wrong with them. `general` belongs to no cell."""

    values: dict[str, str]
    wrong: dict[str, str] = field(default_factory=dict)
    general: list[str] = field(default_factory=list)
    beyond: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether nothing was refused."""
        return not self.wrong and not self.general


def grid_of(answer: Mapping[str, Any]) -> QuotaGrid:
    """The grid that shows a tenant's quotas as they are (`selectors.quotas.quota_answer`)."""
    values: dict[str, str] = {}
    for row in answer["flavors"]:
        for name in FLAVOR_FIELDS:
            values[f"f:{row['flavor']}:{name}"] = _text(row[name])
    for kind, section, owner in (("q", "queues", "queue"), ("u", "users", "user")):
        for row in answer[section]:
            values[f"{kind}:{row[owner]}:{row['flavor']}"] = _text(row["limit"])
    return QuotaGrid(values)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def posted_grid(
    sent: Mapping[str, str], flavors: Sequence[str]
) -> tuple[QuotaGrid, dict[str, Any]]:
    """The grid as posted, and the change set that it asks for (the body of a quota PUT)."""
    values = {key: text.strip()[:40] for key, text in sent.items() if key[:2] in ("f:", "q:", "u:")}
    new_user, new_flavor = sent.get("new_user", "").strip(), sent.get("new_flavor", "").strip()
    if new_user and sent.get("new_limit", "").strip():
        values[f"u:{new_user[:150]}:{new_flavor}"] = sent["new_limit"].strip()[:40]
    added = sent.get("add_flavor", "").strip()[:100]
    if added and added not in flavors:
        flavors = [*flavors, added]
        values[f"f:{added}:nominal"] = sent.get("add_nominal", "").strip()[:40]
    wanted = {
        "flavors": [
            {"flavor": flavor}
            | {
                name: _value(values.get(f"f:{flavor}:{name}", ""), name)
                for name in FLAVOR_FIELDS
                if f"f:{flavor}:{name}" in values
            }
            for flavor in flavors
        ],
        "queues": _limits(values, "q", "queue"),
        "users": _limits(values, "u", "user"),
    }
    return QuotaGrid(values), wanted


def _value(text: str, name: str) -> Any:
    """A number where it is one; other text goes on as it is, so that the contract says what is wrong."""
    if not text:
        return None if name in MAY_BE_EMPTY else ""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return float(text) if name == "weight" else text
    except ValueError:
        return text


def _limits(values: Mapping[str, str], kind: str, owner: str) -> list[dict[str, Any]]:
    rows = []
    for key, text in values.items():
        mark, _colon, rest = key.partition(":")
        name, _last, flavor = rest.rpartition(":")
        if mark == kind and text:
            rows.append({owner: name, "flavor": flavor, "limit": _value(text, "limit")})
    return rows


def add_refusal(grid: QuotaGrid, wanted: Mapping[str, Any], error: ApplicationError) -> None:
    """Each error beside the cell that its pointer means: `/flavors/0/nominal`, `/queues/1/limit`."""
    for found in error.errors:
        cell = _cell(wanted, found.pointer)
        if cell in grid.values:
            grid.wrong[cell] = found.message
        else:
            grid.general.append(f"{found.pointer}: {found.message}".strip(": "))
    grid.beyond = grid.beyond or error.code == "beyond_tenant_admin"
    if not error.errors:
        grid.general.append(error.sentence)


def _cell(wanted: Mapping[str, Any], pointer: str) -> str:
    parts = pointer.strip("/").split("/")
    if len(parts) < 2 or not parts[1].isdecimal() or parts[0] not in wanted:
        return ""
    rows = wanted[parts[0]]
    row = rows[int(parts[1])] if int(parts[1]) < len(rows) else {}
    if parts[0] == "flavors":
        return f"f:{row.get('flavor')}:{parts[2] if len(parts) > 2 else 'nominal'}"
    owner = "queue" if parts[0] == "queues" else "user"
    return f"{parts[0][0]}:{row.get(owner)}:{row.get('flavor')}"
