"""Alerts: raised by judges, answered by people, told once. The only writer of `Alert`.

    raise_alert(AlertFacts("gpu_fault", cluster=cluster, node=node, gpu=uuid, numbers={"cause": "XID 79"}), now)
    resolve_alert(facts.key, now)
    settle_alerts("gpu_hot", cluster, [facts of all that are hot now], now)   # and resolves the others

A judge may say the same every second: nothing is written unless something changed, or a minute has passed.
People are told when an alert opens, when it grows graver, and when it comes back after it was over for a while.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import override

from controlplane.common import log
from controlplane.common.errors import ConflictError, FieldError, InvalidError
from queues.models import Cluster, Job
from scheduler.alert_kinds import KINDS
from scheduler.models import Alert, AlertState, Severity
from scheduler.selectors.alerts import UNRESOLVED, alert_answer, runbook, sentence, title
from tenants.access import Actor, Right, require
from tenants.models import PlatformRole, Tenant, TenantRole, User
from tenants.services.audit import Change, write_audit
from tenants.services.outbox import Letter, post_mail, post_webhooks

SAID_AGAIN_AFTER = timedelta(minutes=1)
# One that comes back sooner was never over: the same row opens again, and nobody is told twice.
FLAPPING = timedelta(minutes=10)
LONGEST_SILENCE = timedelta(days=30)
LONGEST_REASON = 1000
KEPT = timedelta(days=90)
GRAVITY = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


@dataclass(frozen=True, slots=True)
class AlertFacts:
    """What a judge found. severity: the kind's own when empty. detail: evidence in the source's words."""

    kind: str
    cluster: Cluster | None = None
    node: str = ""
    gpu: str = ""
    job: Job | None = None
    tenant: Tenant | None = None
    severity: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    detail: str = ""

    @property
    def key(self) -> str:
        """Who it is about: alerts of one key are one alert."""
        parts = {
            "cluster": self.cluster.name if self.cluster else "",
            "node": self.node,
            "gpu": self.gpu,
            "job": self.job.pk if self.job else "",
            "tenant": self.whose.slug if self.whose and not self.job else "",
        }
        return "/".join([self.kind, *(f"{name}={value}" for name, value in parts.items() if value)])

    @property
    def whose(self) -> Tenant | None:
        """The tenant that may see it."""
        return self.job.tenant if self.job else self.tenant

    @property
    def gravity(self) -> str:
        """The severity in force."""
        return self.severity or KINDS[self.kind].severity


def raise_alert(facts: AlertFacts, now: datetime) -> Alert:
    """Say that this is so now. Raises LookupError for a kind that is not in `scheduler.alert_kinds`."""
    if facts.kind not in KINDS:
        raise LookupError(f"no such kind of alert: {facts.kind}")
    known = _unresolved(facts.key).first()
    if known is not None and not _says_more(known, facts, now):
        return known
    try:
        with log.writing():
            return _raise(facts, now)
    except IntegrityError:  # another judge was first: it is one alert
        with log.writing():
            return _raise(facts, now)


def resolve_alert(key: str, now: datetime, by: str = "") -> bool:
    """Say that it is over. False where nothing was open. by: a person's name; empty for the judge itself."""
    if not _unresolved(key).exists():
        return False
    with log.writing():
        alert = _unresolved(key).select_for_update(of=("self",)).first()
        if alert is None:
            return False
        _resolve(alert, now, by)
    return True


def settle_alerts(
    kind: str, cluster: Cluster | None, facts: Sequence[AlertFacts], now: datetime
) -> None:
    """Raise all of these and resolve every other alert of that kind and cluster: for a judge that sees all."""
    found = {each.key: each for each in facts}
    rows = Alert.objects.filter(kind=kind, cluster=cluster, state__in=UNRESOLVED)
    known = {row.key: row for row in rows.select_related("tenant", "cluster")}
    for key, each in found.items():
        if key not in known or _says_more(known[key], each, now):
            raise_alert(each, now)
    for key in known.keys() - found.keys():
        resolve_alert(key, now)


def acknowledge(actor: Actor, alert: Alert, note: str, now: datetime) -> Alert:
    """Somebody has seen it and works on it. Raises ForbiddenError, ConflictError once it is resolved."""
    note = _text("/note", note, required=False)
    with log.writing():
        row = _answerable(actor, alert)
        row.state = AlertState.ACKNOWLEDGED
        row.acknowledged_by, row.acknowledged_at, row.note = actor.name, now, note
        row.save(update_fields=["state", "acknowledged_by", "acknowledged_at", "note"])
        _answered(actor, row, "alert.acknowledged", note, now)
    return row


def silence(actor: Actor, alert: Alert, until: datetime, reason: str, now: datetime) -> Alert:
    """Tell nobody until then, also when it is over and comes back meanwhile.

    Raises InvalidError for a moment in the past or more than 30 days away, and for an empty reason.
    """
    reason = _text("/reason", reason, required=True)
    if not now < until <= now + LONGEST_SILENCE:
        message = _("must be in the future, at most {days} days away").format(
            days=LONGEST_SILENCE.days
        )
        raise _invalid("/until", "out_of_range", message)
    with log.writing():
        row = _answerable(actor, alert)
        row.state, row.note = AlertState.SILENCED, reason
        row.silenced_by, row.silenced_until = actor.name, until
        row.save(update_fields=["state", "note", "silenced_by", "silenced_until"])
        _answered(actor, row, "alert.silenced", reason, now)
    return row


def resolve(actor: Actor, alert: Alert, reason: str, now: datetime) -> Alert:
    """A person says that it is over. What still finds it will raise it again."""
    reason = _text("/reason", reason, required=True)
    with log.writing():
        row = _answerable(actor, alert)
        row.note = reason
        _resolve(row, now, actor.name)
        write_audit(
            actor, _change(row, "alert.resolved"), now=now, tenant=row.tenant, reason=reason
        )
    return row


def wake_silenced(now: datetime) -> int:
    """Open what was silenced until now and is still so; people are told. Returns how many."""
    due = Alert.objects.filter(state=AlertState.SILENCED, silenced_until__lte=now)
    woken = 0
    for pk in due.values_list("pk", flat=True)[:200]:
        with log.writing():
            alert = due.select_for_update(of=("self",)).filter(pk=pk).first()
            if alert is None:
                continue
            alert.state, alert.silenced_until = AlertState.OPEN, None
            alert.save(update_fields=["state", "silenced_until"])
            _tell(alert, "alert.opened", now)
        woken += 1
    return woken


def prune_alerts(now: datetime) -> int:
    """Forget what was over KEPT ago. Returns how many."""
    gone, _by_model = Alert.objects.filter(resolved_at__lt=now - KEPT).delete()
    return gone


def _unresolved(key: str) -> QuerySet[Alert]:
    return Alert.objects.filter(key=key, state__in=UNRESOLVED).select_related("cluster", "tenant")


def _says_more(known: Alert, facts: AlertFacts, now: datetime) -> bool:
    """Whether a row must be written: something differs and some seconds have passed, or a minute has."""
    woke = known.state == AlertState.SILENCED and (known.silenced_until or now) <= now
    graver = GRAVITY[Severity(facts.gravity)] > GRAVITY[Severity(known.severity)]
    return woke or graver or now - known.last_seen >= SAID_AGAIN_AFTER


def _raise(facts: AlertFacts, now: datetime) -> Alert:
    known = _unresolved(facts.key).select_for_update(of=("self",)).first()
    if known is not None:
        return _again(known, facts, now)
    last = Alert.objects.filter(key=facts.key).order_by("-pk").first()
    if last is not None and last.resolved_at and now - last.resolved_at < FLAPPING:
        return _reopened(last, facts, now)
    return _opened(facts, last, now)


def _again(alert: Alert, facts: AlertFacts, now: datetime) -> Alert:
    """It is still so: newer numbers, perhaps graver."""
    graver = GRAVITY[Severity(facts.gravity)] > GRAVITY[Severity(alert.severity)]
    woke = alert.state == AlertState.SILENCED and (alert.silenced_until or now) <= now
    alert.count += 1
    _see(alert, facts, now)
    if woke or (graver and alert.state == AlertState.ACKNOWLEDGED):
        alert.state, alert.silenced_until = AlertState.OPEN, None
    alert.save()
    if woke or (graver and alert.state != AlertState.SILENCED):
        _tell(alert, "alert.opened", now)
    return alert


def _reopened(alert: Alert, facts: AlertFacts, now: datetime) -> Alert:
    """It came back soon: the same alert, as it was left; nobody is told twice."""
    alert.count += 1
    _see(alert, facts, now)
    silenced = alert.silenced_until is not None and alert.silenced_until > now
    acknowledged = AlertState.ACKNOWLEDGED if alert.acknowledged_at else AlertState.OPEN
    alert.state = AlertState.SILENCED if silenced else acknowledged
    alert.resolved_at, alert.resolved_by = None, ""
    alert.save()
    _record(alert, "alert.opened", now)
    return alert


def _opened(facts: AlertFacts, last: Alert | None, now: datetime) -> Alert:
    silenced = last is not None and last.silenced_until is not None and last.silenced_until > now
    alert = Alert(
        key=facts.key,
        kind=facts.kind,
        cluster=facts.cluster,
        tenant=facts.whose,
        node=facts.node,
        gpu=facts.gpu,
        job=facts.job.pk if facts.job else "",
        first_seen=now,
    )
    if silenced and last is not None:
        alert.state, alert.note = AlertState.SILENCED, last.note
        alert.silenced_by, alert.silenced_until = last.silenced_by, last.silenced_until
    _see(alert, facts, now)
    with transaction.atomic():
        alert.save(force_insert=True)
    if silenced:
        _record(alert, "alert.opened", now)
    else:
        _tell(alert, "alert.opened", now)
    return alert


def _see(alert: Alert, facts: AlertFacts, now: datetime) -> None:
    alert.severity, alert.numbers = facts.gravity, dict(facts.numbers)
    alert.detail, alert.last_seen = facts.detail, now


def _resolve(alert: Alert, now: datetime, by: str) -> None:
    silenced = alert.state == AlertState.SILENCED
    alert.state, alert.resolved_at, alert.resolved_by = AlertState.RESOLVED, now, by
    alert.save(update_fields=["state", "resolved_at", "resolved_by", "note"])
    if silenced:
        _record(alert, "alert.resolved", now)
    else:
        _tell(alert, "alert.resolved", now)


def _answerable(actor: Actor, alert: Alert) -> Alert:
    """The row, locked, if this actor may answer it and there is still something to answer."""
    row = (
        Alert.objects.select_for_update(of=("self",))
        .select_related("cluster", "tenant")
        .get(pk=alert.pk)
    )
    require(actor, Right.ANSWER_ALERTS, row.tenant)
    if row.state == AlertState.RESOLVED:
        raise ConflictError(_("This alert is over."), code="alert_resolved")
    return row


def _answered(actor: Actor, alert: Alert, kind: str, reason: str, now: datetime) -> None:
    write_audit(actor, _change(alert, kind), now=now, tenant=alert.tenant, reason=reason)
    _record(alert, kind, now, actor.name)


def _change(alert: Alert, action: str) -> Change:
    return Change(action, "alert", f"{alert.pk} {alert.key}"[:200], after={"state": alert.state})


def _record(alert: Alert, kind: str, now: datetime, actor: str = "") -> None:
    """An event. One of nobody's tenant is read by everyone: it says what and where, no evidence."""
    log.record(
        log.NewEvent(
            kind=kind,
            at=now,
            tenant=alert.tenant.slug if alert.tenant else "",
            job=alert.job,
            cluster=alert.cluster.name if alert.cluster else "",
            node=alert.node,
            actor=actor,
            numbers={"alert": alert.pk, "kind": alert.kind, "severity": alert.severity},
        )
    )


def _tell(alert: Alert, kind: str, now: datetime) -> None:
    """An event, and a message to all who want to hear of it."""
    _record(alert, kind, now)
    Alert.objects.filter(pk=alert.pk).update(tellings=alert.tellings + 1)
    alert.tellings += 1
    key = f"{kind}/{alert.pk}/{alert.tellings}"
    with override(settings.LANGUAGE_CODE):
        post_webhooks(alert.tenant, kind, key, alert_answer(alert), now)
        if kind == "alert.opened":
            post_mail(_readers(alert), _letter(alert, key), tenant=alert.tenant, now=now)


def _readers(alert: Alert) -> Iterable[User]:
    """Operators; of a tenant's alert its admins, of a job's its owner too; those who chose to get mail."""
    wanted = [level for level in ("info", "warning", "critical") if _reaches(level, alert.severity)]
    whose = Q(platform_role__in=[PlatformRole.ADMIN, PlatformRole.OPERATOR])
    if alert.tenant is not None:
        whose |= Q(memberships__tenant=alert.tenant, memberships__role=TenantRole.ADMIN)
    if alert.job:
        owner = Job.objects.filter(pk=alert.job).values("user_id")
        whose |= Q(pk__in=owner)
    return User.objects.filter(whose, mail_choice__alerts__in=wanted).distinct().order_by("pk")


def _reaches(level: str, severity: str) -> bool:
    return GRAVITY[Severity(severity)] >= GRAVITY[Severity(level)]


def _letter(alert: Alert, key: str) -> Letter:
    lines = [sentence(alert), ""]
    if alert.detail:
        lines += [alert.detail, ""]
    lines.append(_("Alert: {url}").format(url=f"{settings.PUBLIC_URL}/alerts/{alert.pk}/"))
    if slug := runbook(alert):
        lines.append(_("What to do: {url}").format(url=f"{settings.PUBLIC_URL}/runbooks/{slug}/"))
    where = alert.node or (alert.cluster.name if alert.cluster else alert.job)
    subject = f"[Muster] {alert.get_severity_display()}: {title(alert)} {where}".rstrip()
    return Letter("alert.opened", key, subject, "\n".join(lines) + "\n")


def _text(pointer: str, sent: str, *, required: bool) -> str:
    text = sent.strip()
    if required and not text:
        raise _invalid(pointer, "required", _("is required: people will ask why"))
    if len(text) > LONGEST_REASON:
        message = _("must have at most {most} characters").format(most=LONGEST_REASON)
        raise _invalid(pointer, "too_long", message)
    return text


def _invalid(pointer: str, code: str, message: str) -> InvalidError:
    return InvalidError(f"{pointer}: {message}", errors=(FieldError(pointer, code, message),))
