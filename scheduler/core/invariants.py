"""What must hold of every plan, checked in plain Python against the snapshot it came from.

Written without the planner's matrices, so that it cannot share their mistakes. Tests of every
layer call `check_plan` after every step. Each violation begins with the invariant's name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from scheduler.core.calendar.ends import NEVER, planned_end
from scheduler.core.inputs.cluster import NODE_LEVEL, Crossing, Node, OutCause, Window, WindowKind
from scheduler.core.inputs.jobs import Ask, Role, Seat, WaitingJob
from scheduler.core.inputs.quotas import FlavorQuota
from scheduler.core.inputs.snapshot import Snapshot
from scheduler.core.outputs import Plan, Start
from scheduler.core.quota.accounts import Accounts
from scheduler.core.reasons import REASON_NUMBERS, Reason
from scheduler.core.resources import NOTHING, Amount


def check_plan(snapshot: Snapshot, plan: Plan) -> list[str]:
    """All violations; empty when the plan is sound."""
    return [
        *_each_job_once(snapshot, plan),
        *_capacity(snapshot, plan),
        *_gangs_whole(snapshot, plan),
        *_eligible(snapshot, plan),
        *_topology(snapshot, plan),
        *_quota(snapshot, plan),
        *_lending(snapshot, plan),
        *_windows(snapshot, plan),
        *_bookings(snapshot, plan),
        *_evictions(snapshot, plan),
        *_reasons(plan),
    ]


def _jobs(snapshot: Snapshot) -> dict[str, WaitingJob]:
    return {job.id: job for job in snapshot.waiting}


def _nodes(snapshot: Snapshot) -> dict[str, Node]:
    return {node.name: node for node in snapshot.nodes}


def _each_job_once(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Every waiting job starts, or has a class, or has a reason of its own; exactly one."""
    told = Counter([start.job for start in plan.starts])
    told.update(plan.classes.keys())
    told.update(plan.own_reasons.keys())
    waiting = {job.id for job in snapshot.waiting}
    for job_id, count in told.items():
        if count > 1 and job_id not in plan.own_reasons:
            yield f"each_job_once: {job_id} has {count} answers"
        if job_id not in waiting:
            yield f"each_job_once: {job_id} does not wait"
    if plan.verdicts or not plan.classes:
        missing = waiting - set(told) if plan.classes or plan.verdicts else set()
        yield from (f"each_job_once: {job_id} has no answer" for job_id in sorted(missing))


def _seat_amount(seat: Seat) -> Amount:
    return Amount(seat.gpus, seat.cpu_millis, seat.memory_mib, 1)


def _capacity(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """no node over capacity: on every node that takes a new seat."""
    used: dict[str, Amount] = defaultdict(lambda: NOTHING)
    for job in snapshot.running:
        for seat in job.seats:
            used[seat.node] = used[seat.node] + _seat_amount(seat)
    touched = set()
    for start in plan.starts:
        for seat in start.seats:
            used[seat.node] = used[seat.node] + _seat_amount(seat)
            touched.add(seat.node)
    nodes = _nodes(snapshot)
    for name in sorted(touched):
        total = (used[name] + nodes[name].foreign).as_tuple()
        offered = nodes[name].capacity.as_tuple()
        asked = _asked_resources(plan, name)
        for i, (want, have) in enumerate(zip(total, offered, strict=True)):
            if want > have and asked[i]:
                yield f"no_node_over_capacity: {name} resource {i} has {want} of {have}"


def _asked_resources(plan: Plan, node: str) -> list[bool]:
    """Which resources new seats on the node take any of."""
    seats = [seat for start in plan.starts for seat in start.seats if seat.node == node]
    return [any(_seat_amount(seat).as_tuple()[i] for seat in seats) for i in range(4)]


def _gangs_whole(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """gangs whole: every role between its least and its full size, numbered once each."""
    jobs = _jobs(snapshot)
    for start in plan.starts:
        by_role = Counter(seat.role for seat in start.seats)
        for role in jobs[start.job].ask.roles:
            if not role.least_replicas <= by_role[role.name] <= role.replicas:
                yield f"gangs_whole: {start.job} role {role.name} has {by_role[role.name]}"
            if any(s.gpus != role.per_replica.gpus for s in start.seats if s.role == role.name):
                yield f"gangs_whole: {start.job} role {role.name} has seats of another size"
        if len({(seat.role, seat.replica) for seat in start.seats}) != len(start.seats):
            yield f"gangs_whole: {start.job} numbers a replica twice"
        if [seat.rank for seat in start.seats] != list(range(len(start.seats))):
            yield f"gangs_whole: {start.job} has ranks with gaps"


def _eligible(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """nodes eligible: in, of the flavor, matching the selector, drivers new enough."""
    jobs, nodes = _jobs(snapshot), _nodes(snapshot)
    for start in plan.starts:
        ask = jobs[start.job].ask
        if start.flavor not in ask.flavors:
            yield f"nodes_eligible: {start.job} got flavor {start.flavor}"
        for name in start.nodes:
            node = nodes[name]
            if not _takes(node, start) or node.flavor != start.flavor or not _matches(node, ask):
                yield f"nodes_eligible: {start.job} may not use {name}"


def _takes(node: Node, start: Start) -> bool:
    """A suspect takes jobs of one node."""
    return not node.outs or (node.outs == (OutCause.SUSPECT,) and len(start.nodes) == 1)


def _matches(node: Node, ask: Ask) -> bool:
    new_enough = ask.min_cuda is None or (node.cuda is not None and node.cuda >= ask.min_cuda)
    selected = set(ask.node_selector) <= set(node.labels)
    return new_enough and selected and node.name not in ask.exclude_nodes


def _domain(node: Node, level: str, levels: tuple[str, ...]) -> tuple[str, ...]:
    """The full path of the node's domain at a level; unlabelled nodes are alone."""
    if level == NODE_LEVEL:
        return ("node", node.name)
    named = dict(node.domains)
    path = levels[: levels.index(level) + 1]
    return tuple(named.get(step, f"\0{node.name}") for step in path)


def _topology(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """topology kept: required levels, slices and tensor-parallel groups stay in one domain."""
    jobs, nodes = _jobs(snapshot), _nodes(snapshot)
    levels = snapshot.cluster.levels
    domain_gpus = {flavor.name: flavor.gpus_per_nvlink_domain for flavor in snapshot.flavors}
    for start in plan.starts:
        for role in jobs[start.job].ask.roles:
            homes = [nodes[seat.node] for seat in start.seats if seat.role == role.name]
            if role.topology.required is not None:
                level = role.topology.required
                if len({_domain(node, level, levels) for node in homes}) > 1:
                    yield f"topology_kept: {start.job} leaves its {level}"
            yield from _groups_kept(snapshot, start, role, homes)
            if role.per_replica.gpus and role.tensor_parallel > domain_gpus[start.flavor]:
                yield f"topology_kept: {start.job} tensor-parallel group exceeds NVLink"


def _groups_kept(snapshot: Snapshot, start: Start, role: Role, homes: list[Node]) -> Iterator[str]:
    levels = snapshot.cluster.levels
    groups = []
    if role.topology.slice is not None:
        groups.append((role.topology.slice.replicas, role.topology.slice.level))
    if role.per_replica.gpus and role.tensor_parallel > role.per_replica.gpus:
        level = "nvlink" if "nvlink" in levels else NODE_LEVEL
        groups.append((-(-role.tensor_parallel // role.per_replica.gpus), level))
    for size, level in groups:
        for first in range(0, len(homes), size):
            group = homes[first : first + size]
            if len({_domain(node, level, levels) for node in group}) > 1:
                yield f"topology_kept: {start.job} splits a group of {size} over {level}s"


def _quota(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """quota kept: starts, in order, each within what was available, limits included."""
    jobs = _jobs(snapshot)
    accounts = Accounts(snapshot)
    for start in plan.starts:
        ask = jobs[start.job].ask
        if start.gpus > accounts.room(ask, start.flavor):
            yield f"quota_kept: {start.job} takes {start.gpus} GPUs beyond its room"
        accounts.add(ask, start.flavor, start.gpus)


def _lending(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """lending limit kept: starts leave untouched what a tenant of their tree does not lend."""
    jobs, roots = _jobs(snapshot), _roots(snapshot)
    for flavor in snapshot.flavors:
        before, after = Counter[str](), Counter[str]()
        for tenant in snapshot.tenants:
            before[tenant.name] += _quota_of(tenant.quotas, flavor.name).outside
        for job in snapshot.running:
            before[job.ask.tenant] += job.gpus if job.flavor == flavor.name else 0
        after.update(before)
        for start in plan.starts:
            after[jobs[start.job].ask.tenant] += start.gpus if start.flavor == flavor.name else 0
        for lender in snapshot.tenants:
            quota = _quota_of(lender.quotas, flavor.name)
            if quota.lending_limit is None or roots.get(lender.name) is None:
                continue
            others = [t for t in roots if t != lender.name and roots[t] == roots[lender.name]]
            pool = _pool(snapshot, roots[lender.name], roots, flavor.name)
            lent = pool - max(0, quota.nominal - quota.lending_limit)
            used, grown = sum(after[t] for t in others), sum(before[t] for t in others)
            if used > grown and used > lent:
                yield f"lending_limit_kept: {lender.name} lends more {flavor.name} than its limit"


def _roots(snapshot: Snapshot) -> dict[str, str | None]:
    """The root cohort of each tenant; None for one that stands alone or under a circle."""
    parents = {cohort.name: cohort.parent for cohort in snapshot.cohorts}
    roots: dict[str, str | None] = {}
    for tenant in snapshot.tenants:
        place, seen = tenant.cohort, set[str]()
        while place in parents and place not in seen and parents[place] in parents:
            seen.add(place)
            place = parents[place]
        roots[tenant.name] = place if place in parents and place not in seen else None
    return roots


def _pool(snapshot: Snapshot, root: str | None, roots: dict[str, str | None], flavor: str) -> int:
    """Nominal quota of all tenants and cohorts under a root."""
    parents = {cohort.name: cohort.parent for cohort in snapshot.cohorts}
    under = {root}
    for _ in parents:
        under |= {name for name, parent in parents.items() if parent in under}
    own = [cohort.quotas for cohort in snapshot.cohorts if cohort.name in under]
    own += [tenant.quotas for tenant in snapshot.tenants if roots[tenant.name] == root]
    return sum(_quota_of(quotas, flavor).nominal for quotas in own)


def _quota_of(quotas: tuple[FlavorQuota, ...], flavor: str) -> FlavorQuota:
    return next((quota for quota in quotas if quota.flavor == flavor), FlavorQuota(flavor))


def _windows(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """windows kept: no job on a node across a window that it may not cross."""
    jobs = _jobs(snapshot)
    for start in plan.starts:
        job = jobs[start.job]
        until = float("inf") if start.planned_end is None else start.planned_end
        for window in snapshot.windows:
            overlaps = plan.now < window.ends_at and until > window.starts_at
            if overlaps and window.nodes & set(start.nodes) and not _may_cross(window, job, plan):
                yield f"windows_kept: {start.job} runs into {window.id}"


def _may_cross(window: Window, job: WaitingJob, plan: Plan) -> bool:
    if window.kind is WindowKind.RESERVED and (
        job.ask.tenant in window.admits_tenants
        or job.ask.queue in window.admits_queues
        or job.id in window.admits_jobs
        or (window.spare and bool(job.survivors))
    ):
        return True
    crosses = window.crossing is Crossing.CHECKPOINTABLE and job.ask.checkpoint is not None
    return crosses and plan.now < window.starts_at


def _bookings(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """bookings kept: at each booked moment its nodes have room beside what runs, starts and is booked.

    Plans that evict are left out: what victims free is booked before they have gone.
    """
    if plan.evictions or plan.holds:
        return
    held = [
        (seat.node, seat.gpus, planned_end(job, plan.now))
        for job in snapshot.running
        for seat in job.seats
    ]
    held += [
        (seat.node, seat.gpus, NEVER if start.planned_end is None else start.planned_end)
        for start in plan.starts
        for seat in start.seats
    ]
    room = {node.name: node.capacity.gpus - node.foreign.gpus for node in snapshot.nodes}
    for moment in sorted({booking.starts_at for booking in plan.bookings}):
        used = Counter[str]()
        for name, gpus, until in held:
            if until > moment:
                used[name] += gpus
        starting: set[str] = set()
        for booking in plan.bookings:
            if booking.starts_at <= moment < (NEVER if booking.until is None else booking.until):
                used.update(dict(booking.nodes))
            if booking.starts_at == moment:
                starting.update(name for name, _ in booking.nodes)
        for name in sorted(starting):
            if used[name] > room[name]:
                yield f"bookings_kept: {name} has {used[name]} of {room[name]} GPUs booked"


def _evictions(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """evictions lawful: victims may be stopped, each once, and what others run inside their own
    quota is never reclaimed."""
    accounts = Accounts(snapshot)
    waiting, running = _jobs(snapshot), {job.id: job for job in snapshot.running}
    seen: set[str] = set()
    for eviction in plan.evictions:
        victim, preemptor = running[eviction.job], waiting[eviction.preemptor]
        if not victim.ask.preemptible or victim.stopping or victim.id in seen:
            yield f"evictions_lawful: {victim.id} may not be evicted"
        seen.add(victim.id)
        if victim.ask.tenant == preemptor.ask.tenant:
            if victim.ask.priority >= preemptor.ask.priority:
                yield f"evictions_lawful: {victim.id} has no lower priority"
        else:
            account = accounts.account(victim.ask.tenant, victim.flavor)
            if account is None or account.usage <= account.subtree:
                yield f"in_quota_work_kept: {victim.id} runs inside its tenant's quota"
        if not eviction.keeps_replicas:
            accounts.add(victim.ask, victim.flavor, -victim.gpus)
        if not any(hold.job == eviction.preemptor for hold in plan.holds):
            yield f"evictions_lawful: nothing is held for {eviction.preemptor}"


def _reasons(plan: Plan) -> Iterator[str]:
    """reasons complete: every class has a verdict, every reason its numbers."""
    for job_id, key in plan.classes.items():
        if key not in plan.verdicts:
            yield f"reasons_complete: {job_id} has no verdict"
    told: list[Reason] = list(plan.own_reasons.values())
    for verdict in plan.verdicts.values():
        told.extend(verdict.reasons)
        if verdict.reasons[0] is not verdict.reason:
            yield f"reasons_complete: {verdict.class_key} does not lead with its dominant reason"
    for reason in told:
        missing = set(REASON_NUMBERS[reason.code]) - set(reason.numbers)
        if missing:
            yield f"reasons_complete: {reason.code} lacks {sorted(missing)}"
