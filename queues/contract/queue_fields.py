"""A queue as it is sent: read, and merged with what it is. Pure. Called by `services.queues`."""

from dataclasses import dataclass, replace

from django.utils.translation import gettext as _

from queues.contract.course import MOST_SECONDS
from queues.contract.names import dns_label
from queues.contract.reading import Fault, Reader, Rule, listed
from queues.specs import HIGHEST_PRIORITY

STATES = ("open", "closed", "held")
BACKFILL_ORDERS = ("shortest_limit", "order", "none")
MOST_BOOKINGS = 1000
# However well a queue protects its jobs: what others lend to its tenant comes back within a day.
LONGEST_PROTECTION_SECONDS = 86_400
ON_WASTE = ("alert", "lower", "stop")


@dataclass(frozen=True, slots=True)
class QueueFields:
    """All that a queue says of itself but its tenant, name and cluster. Flavors in order of preference.

    presets: names, platform admins' business.
    """

    state: str = "closed"
    flavors: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    default_max_runtime_seconds: int | None = None
    longest_max_runtime_seconds: int | None = None
    highest_priority_submitter: int = 500
    highest_priority_admin: int = HIGHEST_PRIORITY
    user_fair_share: bool = True
    bookings: int = 1
    booking_after_seconds: int = 43_200
    backfill_order: str = "shortest_limit"
    min_runtime_seconds: int = 600
    on_waste: str = "alert"


@dataclass(frozen=True, slots=True)
class Choices:
    """What a queue may name: the cluster's flavors, all presets; and the tenant's highest priority."""

    flavors: tuple[str, ...]
    presets: tuple[str, ...] = ()
    highest_priority: int = HIGHEST_PRIORITY


def read_name_and_cluster(reader: Reader, clusters: tuple[str, ...]) -> tuple[str, str]:
    """The parts of a new queue that never change. The only cluster is the default."""
    reader.required("name")
    name = reader.text("name", longest=40, rule=_queue_name)
    if len(clusters) > 1:
        reader.required("cluster")
    default = clusters[0] if len(clusters) == 1 else ""
    cluster = reader.text("cluster", default, longest=40, rule=_one_of(clusters, "unknown_cluster"))
    return name, cluster


def read_fields(reader: Reader, now: QueueFields, choices: Choices) -> QueueFields:
    """The fields that are wanted: those sent, the others as they are."""
    wanted = replace(
        now,
        state=reader.choice("state", now.state, STATES),
        flavors=_names(reader, "flavors", now.flavors, choices.flavors),
        presets=_names(reader, "presets", now.presets, choices.presets),
        default_max_runtime_seconds=_seconds(
            reader, "default_max_runtime_seconds", now.default_max_runtime_seconds
        ),
        longest_max_runtime_seconds=_seconds(
            reader, "longest_max_runtime_seconds", now.longest_max_runtime_seconds
        ),
        highest_priority_submitter=_priority(
            reader, "highest_priority_submitter", now.highest_priority_submitter, choices
        ),
        highest_priority_admin=_priority(
            reader, "highest_priority_admin", now.highest_priority_admin, choices
        ),
        user_fair_share=reader.flag("user_fair_share", now.user_fair_share),
        bookings=reader.whole("bookings", now.bookings, most=MOST_BOOKINGS),
        booking_after_seconds=reader.whole(
            "booking_after_seconds", now.booking_after_seconds, most=MOST_SECONDS
        ),
        backfill_order=reader.choice("backfill_order", now.backfill_order, BACKFILL_ORDERS),
        min_runtime_seconds=reader.whole(
            "min_runtime_seconds", now.min_runtime_seconds, most=LONGEST_PROTECTION_SECONDS
        ),
        on_waste=reader.choice("on_waste", now.on_waste, ON_WASTE),
    )
    _check_together(reader, wanted)
    return wanted


def _check_together(reader: Reader, wanted: QueueFields) -> None:
    default, longest = wanted.default_max_runtime_seconds, wanted.longest_max_runtime_seconds
    if default is not None and longest is not None and default > longest:
        reader.fault(
            "default_max_runtime_seconds",
            "too_large",
            _("must be at most longest_max_runtime_seconds, which is {longest}").format(
                longest=longest
            ),
        )
    if not wanted.flavors and not reader.has("flavors"):
        reader.fault("flavors", "required", _("is required"))
    elif not wanted.flavors and reader.sent.get("flavors") == []:
        reader.fault("flavors", "too_few", _("must name at least one flavor"))


def _names(
    reader: Reader, key: str, now: tuple[str, ...], known: tuple[str, ...]
) -> tuple[str, ...]:
    rule = _one_of(known, f"unknown_{key.removesuffix('s')}")
    found = reader.texts(key, most=100, longest=63, rule=rule)
    return tuple(dict.fromkeys(found)) if reader.has(key) else now


def _one_of(known: tuple[str, ...], code: str) -> Rule:
    def rule(value: str) -> Fault | None:
        if value in known:
            return None
        return Fault(code, _("is not known; there are {names}").format(names=listed(known) or "–"))

    return rule


def _queue_name(value: str) -> Fault | None:
    """As a job's name, and beginning with a letter: it becomes part of addresses."""
    if value[:1].isalpha():
        return dns_label(value)
    return Fault("invalid_name", _("must begin with a letter"))


def _seconds(reader: Reader, key: str, now: int | None) -> int | None:
    """null is a value here: no limit."""
    found = reader.optional_whole(key, least=1, most=MOST_SECONDS)
    return found if key in reader.sent else now


def _priority(reader: Reader, key: str, now: int, choices: Choices) -> int:
    return reader.whole(key, min(now, choices.highest_priority), most=choices.highest_priority)
