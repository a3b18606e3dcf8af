"""Maintenance windows and reservations as people make, change, end and cancel them. The only writer of their rows.

Called by the REST doors and the calendar page. Each change brings the occurrences ahead in step, in the same
transaction; what then happens at its time is `services.occurrences`' work.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import (
    ConflictError,
    FieldError,
    InvalidError,
    NotVisibleError,
    StaleError,
)
from queues.models import Cluster
from queues.selectors.answers import time_text
from scheduler.maintenance.life import Runner, departure
from scheduler.maintenance.recurrence import Span
from scheduler.maintenance.selection import selector_of
from scheduler.models import (
    CordonSource,
    Eviction,
    EvictionRule,
    MaintenanceWindow,
    Node,
    Occurrence,
    OccurrenceState,
)
from scheduler.selectors.overlaps import overlaps_of
from scheduler.selectors.windows import (
    BEFORE_DRAINING,
    ENDED,
    HORIZON,
    latest_of,
    node_looks,
    recurrence_of,
    spans_of,
    windows_visible_to,
)
from scheduler.services.cordons import lift_cordons
from scheduler.services.departures import Outlook, leavers, outlook, plan_changed
from scheduler.services.evictions import withdraw_eviction
from scheduler.services.window_fields import SENT, WindowFields, fields_of, read_window
from scheduler.services.window_notices import post_called_off
from tenants.access import Actor, Right, require
from tenants.services.audit import Change, write_audit

# Rows exist for what comes within so long, and for the next two in any case.
ROWS_AHEAD = timedelta(days=35)
LEAST_AHEAD = 2


def create_window(
    actor: Actor, sent: Mapping[str, Any], now: datetime, plan_id: str | None = None
) -> MaintenanceWindow:
    """A new window. Raises InvalidError with pointers.

    ConflictError `plan_changed`: the preview of that id no longer holds.
    """
    require(actor, Right.OPERATE_WINDOWS)
    cluster = _cluster(sent)
    fields = read_window(sent, cluster, now)
    with log.writing():
        _check_plan(plan_id, _outlook(cluster, fields, now))
        row = MaintenanceWindow.objects.create(
            cluster=cluster,
            created_by=actor.name,
            created_at=now,
            changed_by=actor.name,
            changed_at=now,
            **asdict(fields),
        )
        sync_occurrences(row, now)
        _note(actor, row, "window.created", None, fields, now)
    return row


def preview_window(actor: Actor, sent: Mapping[str, Any], now: datetime) -> Outlook:
    """Which jobs the first occurrence of such a window would send away, and at what cost; what it overlaps with.

    Nothing is stored.
    """
    require(actor, Right.OPERATE_WINDOWS)
    cluster = _cluster(sent)
    fields = read_window(sent, cluster, now)
    beside = overlaps_of(MaintenanceWindow(cluster=cluster, **asdict(fields)), now)
    return replace(_outlook(cluster, fields, now), overlaps=tuple(beside))


def change_window(
    actor: Actor,
    window_id: int,
    sent: Mapping[str, Any],
    version: int | None,
    now: datetime,
) -> MaintenanceWindow:
    """Other fields for what has not begun; the times of what is open. version: the one seen, None for any.

    Raises StaleError, InvalidError, and ConflictError for a window that was cancelled.
    """
    require(actor, Right.OPERATE_WINDOWS)
    with log.writing():
        row = locked_window(window_id, version)
        if "cluster" in sent and sent["cluster"] != row.cluster.name:
            raise _invalid("/cluster", "fixed", _("cannot be changed: make another window"))
        before = fields_of(row)
        after = read_window(sent, row.cluster, now, before)
        if after == before:
            return row
        for name in SENT:
            setattr(row, name, getattr(after, name))
        row.version += 1
        row.changed_by, row.changed_at = actor.name, now
        if _times(after) != _times(before):
            # A time that was given up may be wanted again.
            row.occurrences.filter(state=OccurrenceState.CANCELLED, starts_at__gt=now).delete()
            _forget_strays(row)
        row.save()
        sync_occurrences(row, now)
        _note(actor, row, "window.changed", before, after, now)
    return row


def cancel_window(
    actor: Actor, window_id: int, version: int | None, reason: str, now: datetime
) -> MaintenanceWindow:
    """No more of it: what drains goes back to work, what is open is checked and comes back."""
    require(actor, Right.OPERATE_WINDOWS)
    with log.writing():
        row = locked_window(window_id, version)
        row.cancelled_by, row.cancelled_at = actor.name, now
        row.version += 1
        row.save(update_fields=["cancelled_by", "cancelled_at", "version"])
        for each in _live(row):
            _call_off(each, now)
        _note(actor, row, "window.cancelled", None, None, now, reason)
    return row


def finish_window(
    actor: Actor, window_id: int, version: int | None, now: datetime
) -> MaintenanceWindow:
    """The work is done before its time: the occurrence that is open (or drains) ends now.

    Raises ConflictError when none is.
    """
    require(actor, Right.OPERATE_WINDOWS)
    with log.writing():
        row = locked_window(window_id, version)
        going = _live(row).exclude(state__in=[*BEFORE_DRAINING, OccurrenceState.CHECKING])
        each = going.order_by("starts_at").first()
        if each is None:
            raise ConflictError(_("No occurrence of this window is going on."), code="not_open")
        _call_off(each, now)
        row.version += 1
        row.save(update_fields=["version"])
        _note(actor, row, "window.finished", None, None, now)
    return row


def window_of(actor: Actor, window_id: int) -> MaintenanceWindow:
    """The window with that number. Raises NotVisibleError."""
    found = windows_visible_to(actor).filter(pk=window_id).first()
    if found is None:
        raise NotVisibleError(_("There is no such maintenance window."))
    return found


def cordon_key(each: Occurrence) -> str:
    """What tells this occurrence's cordons from all others."""
    return f"{each.window_id}@{each.starts_at:%Y%m%dT%H%M%SZ}"


def sync_occurrences(
    row: MaintenanceWindow, now: datetime, given_up: Mapping[datetime, Span | None] | None = None
) -> None:
    """Rows for the occurrences ahead as the window now says. One that drains or is open keeps its nodes.

    given_up: starts that were given up → what is in their place, for those who had been told; elsewhere the next time.
    """
    wanted = {span.starts_at: span for span in _ahead(row, now)}
    known = {each.starts_at: each for each in row.occurrences.all()}
    following = next((span for at, span in sorted(wanted.items()) if at >= now), None)
    for at, each in known.items():
        if each.state in ENDED or at in wanted:
            continue
        if each.state == OccurrenceState.PLANNED:
            each.delete()
        elif each.ends_at > now:
            _call_off(each, now, (given_up or {}).get(at, following))
    for at, span in wanted.items():
        if at not in known:
            row.occurrences.create(
                starts_at=at, ends_at=span.ends_at, latest_at=latest_of(row, span)
            )
        elif known[at].state not in ENDED:
            row.occurrences.filter(starts_at=at).update(
                ends_at=span.ends_at, latest_at=latest_of(row, span)
            )


def _forget_strays(row: MaintenanceWindow) -> None:
    """Drop exceptions of times that the rule no longer has. Saves nothing."""
    recurrence = recurrence_of(row)
    kept = recurrence.exceptions if row.rrule else ()
    held = {time_text(at) for at in kept if recurrence.by_rule(at) is not None}
    row.exceptions = {key: what for key, what in row.exceptions.items() if key in held}


def _times(fields: WindowFields) -> tuple[object, ...]:
    return fields.starts_at, fields.ends_at, fields.time_zone, fields.rrule


def _ahead(row: MaintenanceWindow, now: datetime) -> Iterable[Span]:
    spans = spans_of(row, now, now + 2 * HORIZON)
    near = [span for span in spans if span.starts_at < now + ROWS_AHEAD]
    return near if len(near) >= LEAST_AHEAD else islice(spans, LEAST_AHEAD)


def _call_off(each: Occurrence, now: datetime, instead: Span | None = None) -> None:
    """It ends now: before its start as if it had never been, afterwards as if its time were over.

    instead: when it is now, for those who had been told.
    """
    withdraw_orders(each, "the window was called off", now)
    if each.state == OccurrenceState.OPEN:
        Occurrence.objects.filter(pk=each.pk).update(
            state=OccurrenceState.CHECKING, checking_at=now, ends_at=now
        )
        return
    if each.state == OccurrenceState.CHECKING:
        return
    nodes = Node.objects.filter(cluster=each.window.cluster, name__in=each.nodes)
    lift_cordons(
        nodes,
        source=CordonSource.WINDOW,
        key=cordon_key(each),
        now=now,
        reason="the window was called off",
    )
    Occurrence.objects.filter(pk=each.pk).update(state=OccurrenceState.CANCELLED, over_at=now)
    post_called_off(each, instead, now)


def withdraw_orders(each: Occurrence, message: str, now: datetime) -> None:
    """Let those run on that this occurrence has ordered to leave and that were not told yet."""
    rows = Eviction.objects.filter(
        Eviction.OPEN,
        cluster=each.window.cluster,
        rule=EvictionRule.MAINTENANCE,
        ordered_by=ordered_by(each),
        signalled_at__isnull=True,
    )
    for eviction in rows:
        try:
            withdraw_eviction(eviction, message=message, now=now)
        except ConflictError:
            continue  # told in this very moment: it completes


def ordered_by(each: Occurrence) -> str:
    """Who orders the evictions of an occurrence."""
    return f"window {cordon_key(each)}"


def _live(row: MaintenanceWindow) -> Any:
    return row.occurrences.filter(Occurrence.LIVE).select_related("window__cluster")


def _cluster(sent: Mapping[str, Any]) -> Cluster:
    name = sent.get("cluster")
    if name is None:
        raise _invalid("/cluster", "required", _("is required"))
    found = Cluster.objects.filter(name=name).first() if isinstance(name, str) else None
    if found is None:
        raise _invalid("/cluster", "unknown_cluster", _("is not a cluster"))
    return found


def _outlook(cluster: Cluster, fields: WindowFields, now: datetime) -> Outlook:
    """What the first occurrence ahead would do to the jobs that run now."""
    row = MaintenanceWindow(cluster=cluster, **asdict(fields))
    span = next(iter(spans_of(row, now, now + 2 * HORIZON)), Span(row.starts_at, row.ends_at))
    names = selector_of(fields.nodes).of(node_looks(cluster))

    def leaves(runner: Runner) -> Any:
        return departure(runner, fields.running_jobs, span.starts_at, latest_of(row, span), now)

    return outlook(names, leavers(cluster, names, fields.admits), leaves, now)


def _check_plan(plan_id: str | None, found: Outlook) -> None:
    if plan_id is not None and plan_id != found.plan_id:
        raise plan_changed(found)


def locked_window(window_id: int, version: int | None) -> MaintenanceWindow:
    """The row, locked. Raises NotVisibleError, StaleError, and ConflictError for one that was cancelled."""
    row = (
        MaintenanceWindow.objects.select_for_update(of=("self",))
        .select_related("cluster")
        .filter(pk=window_id)
        .first()
    )
    if row is None:
        raise NotVisibleError(_("There is no such maintenance window."))
    if version is not None and version != row.version:
        raise StaleError(
            _("The window was changed after you read it."), extra={"current_version": row.version}
        )
    if row.cancelled_at is not None:
        raise ConflictError(_("This window was cancelled."), code="window_cancelled")
    return row


def _note(  # noqa: PLR0913  what, by whom, from what to what, when and why
    actor: Actor,
    row: MaintenanceWindow,
    kind: str,
    before: WindowFields | None,
    after: WindowFields | None,
    now: datetime,
    reason: str = "",
) -> None:
    was, is_now = _said(before), _said(after)
    changed = {name for name in {*was, *is_now} if was.get(name) != is_now.get(name)}
    write_audit(
        actor,
        Change(
            kind,
            "window",
            f"{row.pk} {row.title}"[:200],
            {name: was.get(name) for name in sorted(changed)} if before else None,
            {name: is_now.get(name) for name in sorted(changed)} if after else None,
        ),
        now=now,
        reason=reason,
    )
    log.record(window_event(row, kind, now, actor=actor.name))


def _said(fields: WindowFields | None) -> dict[str, Any]:
    if fields is None:
        return {}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(fields).items()
    }


def window_event(
    row: MaintenanceWindow,
    kind: str,
    now: datetime,
    *,
    actor: str = "scheduler",
    numbers: Mapping[str, Any] | None = None,
) -> log.NewEvent:
    """An event about a window, which everyone may read: it names nobody whom it admits."""
    return log.NewEvent(
        kind=kind,
        at=now,
        cluster=row.cluster.name,
        actor=actor,
        message=row.title,
        numbers={"window": row.pk, "version": row.version, **(numbers or {})},
    )


def _invalid(pointer: str, code: str, message: str) -> InvalidError:
    return InvalidError(f"{pointer}: {message}", errors=(FieldError(pointer, code, message),))
