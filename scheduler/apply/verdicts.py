"""Verdicts of classes, and the class and dominant reason of each waiting job, where they have changed (rule 6).

Called by `scheduler.apply.plan`. What is written is bounded by what changed: a class whose numbers moved costs
one row; a job is touched only when it gets another class or another dominant reason.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from controlplane.common import log
from queues.lifecycle import Phase
from queues.models import Job, Verdict
from scheduler.apply.fence import HeldLease, hold
from scheduler.apply.spoken import Spoken, SpokenVerdict, reason_json
from scheduler.core.outputs import Plan
from scheduler.core.reasons import ReasonCode

# Rows a transaction, so that it stays well below 200 ms on SQLite.
ROWS_PER_TRANSACTION = 1_000
# More jobs than this that learn the same at once share one event, `jobs.reason`.
MOST_EVENTS_OF_A_CLASS = 50

# Reasons of single jobs whose numbers are nowhere else in rows.
OWN_VERDICTS = frozenset({ReasonCode.WAITING_FOR_PREEMPTED})


def own_key(job: str) -> str:
    """The class key of a job that is a class of its own."""
    return f"own:{job}"


@dataclass(frozen=True, slots=True)
class News:
    """What some jobs of one tenant are told alike. `code_changed` is false where only the class is new."""

    tenant: str
    class_key: str
    code: str
    code_changed: bool


def write_verdicts(lease: HeldLease, plan: Plan, spoken: Spoken, now: datetime) -> int:
    """Upsert the verdicts that changed, delete those of classes that no longer wait; returns rows written.

    A class that the pass did not reach keeps what was said of it before. A job whose own reason bears numbers that
    its row has not is a class of its own.
    """
    said = {
        key: SpokenVerdict(
            tuple(reason_json(reason) for reason in verdict.reasons), first_job=verdict.job
        )
        for key, verdict in plan.verdicts.items()
        if verdict.reason.code is not ReasonCode.NOT_YET_CONSIDERED
    }
    alone = {
        own_key(job): SpokenVerdict((reason_json(reason),), first_job=job)
        for job, reason in plan.own_reasons.items()
        if reason.code in OWN_VERDICTS
    }
    said |= alone
    changed = [key for key, verdict in said.items() if spoken.verdicts.get(key) != verdict]
    gone = [key for key in spoken.verdicts if key not in plan.verdicts and key not in alone]
    for part in _parts(changed):
        _upsert(lease, {key: said[key] for key in part}, spoken, now)
    for part in _parts(gone):
        with log.writing():
            hold(lease)
            Verdict.objects.filter(cluster_id=lease.cluster_id, class_key__in=part).delete()
        for key in part:
            del spoken.verdicts[key]
    return len(changed) + len(gone)


def _upsert(
    lease: HeldLease, said: Mapping[str, SpokenVerdict], spoken: Spoken, now: datetime
) -> None:
    """`since` moves only where the dominant reason is another one."""
    turned = {
        key
        for key, verdict in said.items()
        if (before := spoken.verdicts.get(key)) is None or before.code != verdict.code
    }
    with log.writing():
        hold(lease)
        for keys, fields in (
            (turned, ["reasons", "first_job", "since"]),
            (said.keys() - turned, ["reasons", "first_job"]),
        ):
            rows = [
                Verdict(
                    cluster_id=lease.cluster_id,
                    class_key=key,
                    reasons=list(said[key].reasons),
                    first_job=said[key].first_job,
                    since=now,
                )
                for key in sorted(keys)
            ]
            Verdict.objects.bulk_create(
                rows,
                update_conflicts=True,
                unique_fields=["cluster", "class_key"],
                update_fields=fields,
            )
    spoken.verdicts.update(said)


def write_reasons(
    lease: HeldLease,
    cluster: str,
    plan: Plan,
    heard: MutableMapping[str, tuple[str, str]],
    tenants: Mapping[str, str],
    now: datetime,
) -> int:
    """Tell each waiting job its class and dominant reason where they are new; returns how many were told.

    heard: (class key, reason code) by job as last written; brought up to date. tenants: slug by job.
    """
    told = 0
    for news, jobs in _news(plan, heard, tenants).items():
        for part in _parts(jobs):
            _tell(lease, cluster, news, part, now)
            told += len(part)
            for job in part:
                heard[job] = (news.class_key, news.code)
    return told


def _news(
    plan: Plan, heard: Mapping[str, tuple[str, str]], tenants: Mapping[str, str]
) -> dict[News, list[str]]:
    news: dict[News, list[str]] = defaultdict(list)
    for job, (key, code) in _what_is_said(plan):
        key_before, code_before = heard.get(job, ("", ""))
        if (key, code) != (key_before, code_before) and job in tenants:
            news[News(tenants[job], key, code, code != code_before)].append(job)
    return news


def _what_is_said(plan: Plan) -> Iterator[tuple[str, tuple[str, str]]]:
    """(job, (class key, reason code)) of every waiting job that the pass reached."""
    codes = {key: verdict.reason.code for key, verdict in plan.verdicts.items()}
    for job, key in plan.classes.items():
        if job not in plan.own_reasons and codes[key] is not ReasonCode.NOT_YET_CONSIDERED:
            yield job, (key, codes[key].value)
    for job, reason in plan.own_reasons.items():
        yield job, (own_key(job) if reason.code in OWN_VERDICTS else "", reason.code.value)


def _tell(lease: HeldLease, cluster: str, news: News, jobs: Sequence[str], now: datetime) -> None:
    with log.writing():
        hold(lease)
        rows = Job.objects.filter(pk__in=jobs, phase=Phase.PENDING)
        if not news.code_changed:
            rows.update(class_key=news.class_key)
            return
        rows.update(class_key=news.class_key, reason_code=news.code, reason_since=now)
        log.record(*_events(cluster, news, jobs, now))


def _events(cluster: str, news: News, jobs: Sequence[str], now: datetime) -> list[log.NewEvent]:
    numbers = {"code": news.code, "class_key": news.class_key}
    if len(jobs) > MOST_EVENTS_OF_A_CLASS:
        return [
            log.NewEvent(
                kind="jobs.reason",
                at=now,
                tenant=news.tenant,
                cluster=cluster,
                actor="scheduler",
                numbers=numbers | {"jobs": len(jobs)},
            )
        ]
    return [
        log.NewEvent(
            kind="job.reason",
            at=now,
            tenant=news.tenant,
            job=job,
            cluster=cluster,
            actor="scheduler",
            numbers=numbers,
        )
        for job in jobs
    ]


def _parts(items: Sequence[str]) -> Iterator[list[str]]:
    remaining = iter(items)
    while part := list(islice(remaining, ROWS_PER_TRANSACTION)):
        yield part
