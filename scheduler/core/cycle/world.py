"""The state that one pass works on: fields, accounts, policies, by name.

Built from a snapshot at the start of a pass; every other room of the cycle reads and moves it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from scheduler.core.calendar.ends import planned_length
from scheduler.core.calendar.windows import Stay, window_map
from scheduler.core.inputs.jobs import WaitingJob
from scheduler.core.inputs.quotas import Queue
from scheduler.core.inputs.snapshot import Options, Snapshot
from scheduler.core.memo import Memo
from scheduler.core.placement.field import Field
from scheduler.core.quota.accounts import Accounts
from scheduler.core.roster import Roster
from scheduler.core.timeline.bookings import Bookings
from scheduler.core.timeline.claims import Claim
from scheduler.core.timeline.pledges import Pledges


@dataclass(slots=True)
class World:
    """All that a pass reads and moves."""

    snapshot: Snapshot
    options: Options
    memo: Memo
    fields: dict[str, Field]
    accounts: Accounts
    queues: dict[str, Queue]
    rosters: dict[str, Roster]
    bookings: dict[str, Bookings] = field(default_factory=dict)
    """Per flavor, from the first booking on."""
    standing: dict[str, dict[str, Claim]] = field(default_factory=lambda: defaultdict(dict))
    """Per flavor and preemptor, what it takes of nodes that its victims still hold."""
    gone_by: dict[str, float] = field(default_factory=dict)
    """When victims chosen in this pass are gone, by job."""
    pledges: Pledges | None = None
    """The quota of booked jobs, from the first booking on."""

    @property
    def now(self) -> float:
        """The moment of the plan."""
        return self.snapshot.now

    def queue_of(self, job: WaitingJob) -> Queue:
        """The job's queue; an unknown name counts as an open queue with default policy."""
        found = self.queues.get(job.ask.queue)
        if found is None:
            found = self.queues[job.ask.queue] = Queue(job.ask.queue, job.ask.tenant)
        return found

    def key_of(self, job: WaitingJob) -> str:
        """The job's class key (see `scheduler.core.identity.class_key`)."""
        by_user = self.queue_of(job).user_fairness or self.accounts.has_user_limit(job.ask)
        key = self.memo.key(job.ask, by_user=by_user)
        return f"{key}:{job.id}" if job.survivors else key

    def stay_of(self, job: WaitingJob, start: float) -> Stay:
        """The job on nodes from `start` to its planned end."""
        allowance = self.options.start_allowance_seconds
        return Stay(
            ask=job.ask,
            job=job.id,
            start=start,
            until=start + planned_length(job.ask, allowance),
            is_swap=bool(job.survivors),
            extra_seconds=allowance + job.ask.grace_seconds,
        )


def build_world(snapshot: Snapshot, options: Options, memo: Memo) -> World:
    """The state before any decision: running jobs and strangers are counted, nothing else."""
    lenses = memo.lenses(snapshot)
    ledger = memo.ledger(snapshot)
    memo.follow_policy(snapshot)
    fields = {
        name: Field(lens, window_map(snapshot.windows, lens.grid, snapshot.now), ledger.free[name])
        for name, lens in lenses.items()
    }
    return World(
        snapshot=snapshot,
        options=options,
        memo=memo,
        fields=fields,
        accounts=Accounts(snapshot, ledger.totals),
        queues={queue.name: queue for queue in snapshot.queues},
        rosters=ledger.rosters,
    )
