"""A tenant's quotas as they are sent (CONTRACT, "Quotas"): read against what is known, merged with what is. Pure.

Called by `services.quotas`. A section or a field that was not sent stays as it is; a flavor, a queue's or a user's
limit that is missing from a section that was sent is taken away.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common.errors import ErrorCollector
from queues.contract.reading import BIGGEST_WHOLE, Reader, listed

MOST_ENTRIES = 1000
HEAVIEST = Decimal("10000")
LIGHTEST = Decimal("0.001")


@dataclass(frozen=True, slots=True)
class FlavorQuota:
    """A tenant's share of one flavor, in GPUs. None: no limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None
    weight: Decimal = Decimal(1)
    headroom: int = 0


@dataclass(frozen=True, slots=True)
class Quotas:
    """All of a tenant's quotas. Flavors by id, queue limits by (queue id, flavor id), users' likewise."""

    flavors: Mapping[int, FlavorQuota] = field(default_factory=dict)
    queues: Mapping[tuple[int, int], int] = field(default_factory=dict)
    users: Mapping[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """Names that may be used, and what they stand for.

    flavors: by name and by "cluster/name"; a name that several clusters have is in `ambiguous` instead.
    queues: by name. allowed: flavor ids by queue id. users: members' ids by name.
    """

    flavors: Mapping[str, int]
    ambiguous: frozenset[str]
    queues: Mapping[str, int]
    allowed: Mapping[int, frozenset[int]]
    users: Mapping[str, int]


@dataclass(slots=True)
class Read:
    """What was sent, merged; and at which pointer each flavor stands, for refusals that come later."""

    quotas: Quotas
    pointers: dict[int, str] = field(default_factory=dict)


def read_quotas(sent: Mapping[str, Any], now: Quotas, known: Known, errors: ErrorCollector) -> Read:
    """The quotas that are wanted. Errors are noted; then the result is not to be used."""
    reader = Reader(sent, "", errors)
    read = Read(now)
    # What GET answers may be sent back whole.
    for key in ("version", "cohort", "tenant"):
        reader.take(key)
    flavors, queues, users = now.flavors, now.queues, now.users
    if reader.has("flavors"):
        flavors = _read_flavors(reader, now, known, read)
    if reader.has("queues"):
        queues = _read_limits(reader, "queues", "queue", known.queues, known)
    if reader.has("users"):
        users = _read_limits(reader, "users", "user", known.users, known)
    for key in ("flavors", "queues", "users"):
        reader.take(key)
    reader.finish()
    read.quotas = Quotas(flavors, queues, users)
    return read


def _read_flavors(reader: Reader, now: Quotas, known: Known, read: Read) -> dict[int, FlavorQuota]:
    found: dict[int, FlavorQuota] = {}
    for entry in reader.objects("flavors", most=MOST_ENTRIES):
        flavor_id = _read_flavor(entry, known)
        before = now.flavors.get(flavor_id) if flavor_id is not None else None
        quota = _read_quota(entry, before)
        if flavor_id is None:
            continue
        if flavor_id in found:
            entry.fault("flavor", "duplicate", _("stands twice"))
        found[flavor_id] = quota
        read.pointers[flavor_id] = entry.pointer
    return found


def _read_flavor(entry: Reader, known: Known) -> int | None:
    entry.required("flavor")
    entry.take("cluster")
    name = entry.text("flavor", longest=100)
    if not name:
        return None
    if name in known.flavors:
        return known.flavors[name]
    if name in known.ambiguous:
        message = _("is a flavor of several clusters; write it as cluster/flavor")
        entry.fault("flavor", "ambiguous_flavor", message)
        return None
    names = [name for name in known.flavors if "/" not in name]
    entry.fault(
        "flavor",
        "unknown_flavor",
        _("is not a flavor; there are {flavors}").format(flavors=listed(sorted(names))),
    )
    return None


def _read_quota(entry: Reader, before: FlavorQuota | None) -> FlavorQuota:
    if before is None:
        entry.required("nominal")
    was = before or FlavorQuota()
    quota = FlavorQuota(
        nominal=entry.whole("nominal", was.nominal),
        borrowing_limit=_limit(entry, "borrowing_limit", was.borrowing_limit),
        lending_limit=_limit(entry, "lending_limit", was.lending_limit),
        weight=_weight(entry, was.weight),
        headroom=entry.whole("headroom", was.headroom),
    )
    for key in ("used", "borrowed", "lent", "outside"):
        entry.take(key)
    entry.finish()
    return _within_nominal(entry, quota)


def _within_nominal(entry: Reader, quota: FlavorQuota) -> FlavorQuota:
    """What is lent or kept is part of what one has."""
    message = _("must be at most nominal, which is {nominal}").format(nominal=quota.nominal)
    if quota.lending_limit is not None and quota.lending_limit > quota.nominal:
        entry.fault("lending_limit", "too_large", message)
        quota = replace(quota, lending_limit=quota.nominal)
    if quota.headroom > quota.nominal:
        entry.fault("headroom", "too_large", message)
        quota = replace(quota, headroom=quota.nominal)
    return quota


def _limit(entry: Reader, key: str, before: int | None) -> int | None:
    """null is a value here: no limit."""
    if key not in entry.sent:
        entry.take(key)
        return before
    return entry.optional_whole(key, most=BIGGEST_WHOLE)


def _weight(entry: Reader, before: Decimal) -> Decimal:
    value = entry.take("weight")
    if value is None:
        return before
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InvalidOperation
        weight = Decimal(str(value))
        fits = LIGHTEST <= weight <= HEAVIEST and weight == weight.quantize(LIGHTEST)
    except InvalidOperation:
        fits = False
    if not fits:
        message = _("must be a number from 0.001 to 10000 with at most three decimals")
        entry.fault("weight", "invalid_weight", message)
        return before
    return weight


def _read_limits(
    reader: Reader, section: str, name_key: str, names: Mapping[str, int], known: Known
) -> dict[tuple[int, int], int]:
    """The limits of queues, or of users."""
    found: dict[tuple[int, int], int] = {}
    for entry in reader.objects(section, most=MOST_ENTRIES):
        entry.required(name_key, "limit")
        flavor_id = _read_flavor(entry, known)
        name = entry.text(name_key, longest=150)
        limit = entry.whole("limit", 0)
        entry.finish()
        owner_id = names.get(name)
        if name and owner_id is None:
            entry.fault(name_key, f"unknown_{name_key}", _unknown(name_key, names))
        if owner_id is None or flavor_id is None:
            continue
        if name_key == "queue" and flavor_id not in known.allowed.get(owner_id, frozenset()):
            entry.fault("flavor", "not_allowed_by_queue", _("is not allowed by the queue"))
        if (owner_id, flavor_id) in found:
            entry.fault(name_key, "duplicate", _("stands twice with this flavor"))
        found[owner_id, flavor_id] = limit
    return found


def _unknown(name_key: str, names: Mapping[str, int]) -> str:
    shown = listed(sorted(names)) or "–"
    if name_key == "queue":
        return _("is not a queue of the tenant; there are {names}").format(names=shown)
    return _("is not a member of the tenant; there are {names}").format(names=shown)
