"""One occurrence of a recurring window is skipped, moved or put back. Called by REST and by the page of the window.

An exception is kept under the start that the rule gives; it still counts for a rule's COUNT (RFC 5545: EXDATE and
RECURRENCE-ID). What had begun to drain at the old time is called off; those who had been told hear of the new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import ConflictError, ErrorCollector, NotVisibleError
from queues.contract.reading import Reader
from queues.selectors.answers import time_text
from scheduler.maintenance.recurrence import Span
from scheduler.models import MaintenanceWindow, OccurrenceState
from scheduler.selectors.windows import ENDED, recurrence_of, spans_of
from scheduler.services.window_fields import FURTHEST, LONGEST, SHORTEST
from scheduler.services.windows import locked_window, sync_occurrences, window_event
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit

LONGEST_REASON = 1000
# Times a series may have that differ from its rule; older ones are forgotten.
MOST_EXCEPTIONS = 400


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of one occurrence. Neither skipped nor a time: as the rule says."""

    skipped: bool
    starts_at: datetime | None
    ends_at: datetime | None
    reason: str


def change_occurrence(
    actor: Actor,
    window_id: int,
    at: datetime,
    sent: Mapping[str, Any],
    version: int | None,
    now: datetime,
) -> MaintenanceWindow:
    """Skip, move or put back the occurrence that the rule has at `at`. version: the window's that was seen.

    sent: {"skipped", "starts_at", "ends_at", "reason"}; a start alone keeps the length, an end alone the start.
    Raises InvalidError with pointers, StaleError, NotVisibleError, and ConflictError for a window that happens once,
    an occurrence that is over, or one that is open and shall begin at another time.
    """
    require(actor, Right.OPERATE_WINDOWS)
    wish = _read(sent)
    with log.writing():
        row = locked_window(window_id, version)
        by_rule, before = _occurrence(row, at, now)
        after = None if wish.skipped else _wanted(wish, by_rule, before)
        if after == before:
            return row
        _check(row, by_rule, before, after, wish, now)
        _store(row, by_rule, after, wish, actor, now)
        # A time that was given up may be wanted again.
        if after is not None and (before is None or after.starts_at != before.starts_at):
            row.occurrences.filter(
                state=OccurrenceState.CANCELLED, starts_at=after.starts_at
            ).delete()
        given_up = {before.starts_at: after} if before else {}
        sync_occurrences(row, now, given_up)
        _note(actor, row, by_rule, before, after, wish, now)
    return row


def _read(sent: Mapping[str, Any]) -> Wish:
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    wish = Wish(
        skipped=reader.flag("skipped", default=False),
        starts_at=_second(reader, "starts_at"),
        ends_at=_second(reader, "ends_at"),
        reason=reader.text("reason", longest=LONGEST_REASON).strip(),
    )
    for name in ("starts_at", "ends_at"):
        if wish.skipped and getattr(wish, name) is not None:
            reader.fault(name, "skipped", _("cannot be given for a time that is skipped"))
    if not any(reader.has(name) for name in ("skipped", "starts_at", "ends_at")):
        reader.fault("skipped", "required", _("is required, or a time"))
    reader.finish()
    errors.raise_if_any()
    return wish


def _second(reader: Reader, key: str) -> datetime | None:
    at = reader.moment(key)
    return None if at is None else at.replace(microsecond=0)


def _occurrence(row: MaintenanceWindow, at: datetime, now: datetime) -> tuple[Span, Span | None]:
    """As the rule has it, and as it is now (None: skipped)."""
    if not row.rrule:
        raise ConflictError(
            _("This window happens once: change or cancel the window."), code="not_recurring"
        )
    recurrence = recurrence_of(row)
    by_rule = recurrence.by_rule(at)
    if by_rule is None:
        raise NotVisibleError(_("The window has no occurrence that begins then by its rule."))
    before = recurrence.exceptions.get(at, by_rule)
    if (before or by_rule).ends_at <= now or _state(row, before) in _PAST:
        raise ConflictError(_("This occurrence is over."), code="occurrence_over")
    return by_rule, before


_PAST = frozenset({OccurrenceState.CHECKING, *ENDED} - {OccurrenceState.CANCELLED})


def _state(row: MaintenanceWindow, span: Span | None) -> str:
    if span is None:
        return ""
    found = row.occurrences.filter(starts_at=span.starts_at).values_list("state", flat=True)
    return found.first() or ""


def _wanted(wish: Wish, by_rule: Span, before: Span | None) -> Span:
    """Where it is to be. One moved to where the rule has it is no exception any more."""
    if wish.starts_at is None and wish.ends_at is None:
        return by_rule
    base = before or by_rule
    starts_at = wish.starts_at or base.starts_at
    ends_at = wish.ends_at or starts_at + (base.ends_at - base.starts_at)
    if (starts_at, ends_at) == (by_rule.starts_at, by_rule.ends_at):
        return by_rule
    return Span(starts_at, ends_at, by_rule.starts_at)


def _check(
    row: MaintenanceWindow,
    by_rule: Span,
    before: Span | None,
    after: Span | None,
    wish: Wish,
    now: datetime,
) -> None:
    """Raises for what cannot be. One that is open keeps its start, and ends at the earliest now."""
    is_open = _state(row, before) == OccurrenceState.OPEN
    if is_open and (after is None or before is None or after.starts_at != before.starts_at):
        raise ConflictError(
            _("This occurrence is open."),
            code="occurrence_open",
            hint=_("End it early, or change when it ends."),
        )
    if after is None:
        return
    errors = ErrorCollector()
    length = after.ends_at - after.starts_at
    if length < SHORTEST:
        errors.add("/ends_at", "too_early", _("must be after starts_at"))
    elif length > LONGEST:
        errors.add("/ends_at", "too_late", _("must be within a year of starts_at"))
    if after.ends_at <= now:
        errors.add("/ends_at", "in_the_past", _("must not be in the past"))
    if not is_open and wish.starts_at is not None and after.starts_at < now:
        errors.add("/starts_at", "in_the_past", _("must not be in the past"))
    if after.starts_at > now + FURTHEST:
        errors.add("/starts_at", "too_late", _("must be within two years"))
    others = (
        span
        for span in spans_of(row, after.starts_at, after.ends_at)
        if span.by_rule != by_rule.starts_at
    )
    if not errors.found and any(others):
        message = _("another occurrence of this window is on at that time")
        errors.add("/starts_at", "overlap", message)
    errors.raise_if_any()


def _store(
    row: MaintenanceWindow,
    by_rule: Span,
    after: Span | None,
    wish: Wish,
    actor: Actor,
    now: datetime,
) -> None:
    kept = dict(row.exceptions)
    key = time_text(by_rule.starts_at)
    assert key is not None
    kept.pop(key, None)
    if after != by_rule:
        kept[key] = {
            "starts_at": time_text(after.starts_at) if after else None,
            "ends_at": time_text(after.ends_at) if after else None,
            "reason": wish.reason,
            "by": actor.name,
            "since": time_text(now),
        }
    row.exceptions = {name: kept[name] for name in sorted(kept)[-MOST_EXCEPTIONS:]}
    row.version += 1
    row.changed_by, row.changed_at = actor.name, now
    row.save(update_fields=["exceptions", "version", "changed_by", "changed_at"])


def _note(  # noqa: PLR0913  who, what, from when to when, why and when
    actor: Actor,
    row: MaintenanceWindow,
    by_rule: Span,
    before: Span | None,
    after: Span | None,
    wish: Wish,
    now: datetime,
) -> None:
    kind = "window.skipped" if after is None else "window.moved"
    if after == by_rule:
        kind = "window.restored"
    subject = f"{row.pk} {row.title}"[:200]
    write_audit(
        actor,
        Change(kind, "window", subject, _said(before), _said(after)),
        now=now,
        reason=wish.reason,
    )
    numbers = {"occurrence": time_text(by_rule.starts_at), **_said(after)}
    log.record(window_event(row, kind, now, actor=actor.name, numbers=numbers))


def _said(span: Span | None) -> dict[str, Any]:
    if span is None:
        return {"skipped": True}
    return {"starts_at": time_text(span.starts_at), "ends_at": time_text(span.ends_at)}
