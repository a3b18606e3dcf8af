"""Who may be stopped for whom, and what protects a running job.

Rules as in Kueue (pkg/scheduler/preemption; keps/1714): inside a tenant by strictly lower
priority; across tenants by reclaiming what was lent, or by fair share where the cohort says so.
The work that a tenant runs inside its own quota is never touched by others.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.core.inputs.jobs import Ask, EvictionRule, RunningJob
from scheduler.core.inputs.quotas import Queue
from scheduler.core.quota.accounts import Accounts
from scheduler.core.quota.shares import bubbled, share
from scheduler.core.quota.tree import Account
from scheduler.core.reasons import Numbers


@dataclass(frozen=True, slots=True)
class Limits:
    """What protects running jobs: per-queue minimum run time and the budget per job."""

    now: float
    queues: dict[str, Queue]
    budget: int


def protection(job: RunningJob, limits: Limits) -> str | None:
    """Why the job may not be stopped for anybody, or None."""
    if not job.ask.preemptible:
        return "not_preemptible"
    if job.stopping or job.evicted_for is not None:
        return "already_stopping"
    if job.preemptions >= limits.budget:
        return "preemption_budget"
    queue = limits.queues.get(job.ask.queue)
    least = queue.min_runtime_seconds if queue is not None else 0.0
    if limits.now - job.placed_at < least:
        return "minimum_run_time"
    return None


def rule_for(
    accounts: Accounts, ask: Ask, victim: RunningJob, gpus: int, *, strict: bool = True
) -> EvictionRule | None:
    """The rule under which a job that asks `ask` (taking `gpus`) may stop the victim now.

    `strict` compares shares by Kueue's S2-a (after the victim's loss), otherwise S2-b (before).
    """
    if victim.ask.tenant == ask.tenant:
        lower = victim.ask.priority < ask.priority
        return EvictionRule.PRIORITY if lower else None
    preemptor = accounts.account(ask.tenant, victim.flavor)
    owner = accounts.account(victim.ask.tenant, victim.flavor)
    if preemptor is None or owner is None:
        return None
    if not accounts.borrows(victim.ask.tenant, victim.flavor):
        return None
    meeting = _below_common_ancestor(preemptor, owner)
    if meeting is None:
        return None
    mine, theirs = meeting
    if not _all_borrow(owner, theirs):
        return None
    extra = _reaching(preemptor, mine, gpus)
    if mine.usage + extra <= mine.subtree:
        return EvictionRule.RECLAIM
    if mine.parent is None or not accounts.is_fair(mine.parent.name):
        return None
    loss = 0 if not strict else -victim.gpus
    after, other = share(mine, extra), share(theirs, loss)
    fairer = after <= other if strict else after < other
    return EvictionRule.FAIR_SHARE if fairer else None


def _below_common_ancestor(one: Account, other: Account) -> tuple[Account, Account] | None:
    """The two children of the lowest common ancestor on the paths of both accounts."""
    above = {id(account): place for place, account in enumerate(one.path())}
    path = list(one.path())
    for theirs in other.path():
        parent = theirs.parent
        if parent is not None and id(parent) in above:
            place = above[id(parent)]
            return (path[place - 1], theirs) if place else None
    return None


def _all_borrow(owner: Account, top: Account) -> bool:
    """Whether every account from the owner up to `top` uses more than its own."""
    for account in owner.path():
        if account.usage <= account.subtree:
            return False
        if account is top:
            return True
    return False


def _reaching(leaf: Account, top: Account, gpus: int) -> int:
    path = list(leaf.path())
    return bubbled(path, gpus)[path.index(top)]


def told_numbers(accounts: Accounts, ask: Ask, victim: RunningJob, now: float) -> Numbers:
    """Quotas and shares of both tenants at this moment, for the eviction's record."""
    mine = accounts.view(ask.tenant, victim.flavor)
    theirs = accounts.view(victim.ask.tenant, victim.flavor)
    return {
        "flavor": victim.flavor,
        "preemptor_priority": ask.priority,
        "victim_priority": victim.ask.priority,
        "preemptor_tenant": ask.tenant,
        "victim_tenant": victim.ask.tenant,
        "preemptor_used_gpus": mine.used,
        "preemptor_nominal_gpus": mine.nominal,
        "victim_used_gpus": theirs.used,
        "victim_nominal_gpus": theirs.nominal,
        "ran_seconds": now - victim.placed_at,
        "victim_gpus": victim.gpus,
    }
