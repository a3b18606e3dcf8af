"""Taking nodes out: within the budget, whole, with taint; the jobs on them leave. Beyond it: a person is asked.

A rule in mode `propose` only writes what it would do. Whatever the mode, a job that a hardware fault has met does not
pay for it with its own restarts.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from controlplane.common.errors import ConflictError
from queues.lifecycle import EndedBy
from queues.models import Attempt, Cluster, Placement
from queues.services.attempts import stop_attempt
from queues.services.blame import blame_infrastructure, mark_cause_removed
from scheduler.health.budget import Answer, Place, Taken, may_take
from scheduler.health.findings import Finding, Grade, Source
from scheduler.health.states import NEXT_STEP, Happening, State
from scheduler.models import CordonSource, EvictionRule, HealthAction, HealthEvent, Node
from scheduler.services.alerts import AlertFacts, raise_alert
from scheduler.services.cordons import set_cordon
from scheduler.services.evictions import order_eviction
from scheduler.services.health.burning import cancel_burn_ins
from scheduler.services.health.scene import NodeScene, Scene
from scheduler.services.health.timeline import HEALTH, Hit, Line, write_lines
from scheduler.services.health.verdicts import News, happens

# Jobs on the node whose own GPUs are well may save first, but not for longer than this.
OTHERS_LEAVE_WITHIN = timedelta(minutes=30)
CORDON_KEY = "gpu"


def act_on(scene: Scene, node: NodeScene, news: Sequence[News], now: datetime) -> None:
    """What follows from findings that were taken in: blame, and out of service where the rule may act."""
    for each in news:
        if each.finding.spares_job:
            blame_hardware(each.finding, node, each.hits, now)
    grave = [
        each for each in news if each.finding.grade is Grade.UNHEALTHY and not _spoken_for(each)
    ]
    if grave and node.watch.state == State.BURN_IN:
        # It failed while it was tried: whatever the burn-in says now.
        happens(scene, node, Happening.CONDEMNED, grave[0].finding.cause, now)
        cancel_burn_ins(node.row, grave[0].finding.cause, now)
    if not grave or node.watch.out_since is not None:
        return
    acting = [each for each in grave if scene.rules[each.finding.rule].may_take_out]
    if not acting:
        write_lines(scene.cluster, node.name, [_proposal(each) for each in grave], now)
        return
    take_out(scene, node, acting, now)


def _spoken_for(news: News) -> bool:
    """An operator has said otherwise of this GPU: rules keep their hands off."""
    return news.gpu is not None and news.gpu.override_state == State.HEALTHY


def _proposal(news: News) -> Line:
    return Line(
        "proposal",
        gpu=news.gpu.uuid if news.gpu else "",
        cause=news.finding.cause,
        rule=news.finding.rule,
        action="would cordon, taint and drain the node",
        next_step="switch the rule to act, or cordon by hand",
    )


def take_out(scene: Scene, node: NodeScene, news: Sequence[News], now: datetime) -> bool:
    """Cordon, taint and drain, if the budget allows; else keep the jobs, close the node and ask a person."""
    hold_budget(scene.cluster)
    answer = budget_answer(scene, node.name, now)
    finding = news[0].finding
    if not answer.granted:
        _beyond_budget(scene, node, finding, answer, now)
        return False
    HealthAction.objects.create(
        cluster=scene.cluster, node=node.name, rule=finding.rule, at=now, what="out"
    )
    hits = [hit for each in news for hit in each.hits]
    put_out(scene, node, finding, hits, now)
    return True


def put_out(
    scene: Scene,
    node: NodeScene,
    finding: Finding,
    hits: Iterable[Hit],
    now: datetime,
    by: str = HEALTH,
) -> None:
    """Cordon and taint the node and send away what runs there: `hits` at once, the rest after a checkpoint."""
    reason = f"{finding.cause}; {finding.evidence}"[:1000]
    set_cordon(node.row, source=CordonSource.HEALTH, key=CORDON_KEY, reason=reason, by=by,
               now=now, taint=True)  # fmt: skip
    watch = node.watch
    watch.out_since, watch.out_boot_id, watch.repaired_at = now, node.row.boot_id, None
    watch.state, watch.since = State.UNHEALTHY, now
    watch.cause, watch.evidence = finding.cause[:200], finding.evidence
    watch.save()
    evicted = send_away(scene, node, finding, hits, now)
    age = max(0.0, (now - finding.at).total_seconds())
    write_lines(
        scene.cluster, node.name,
        [Line("action", gpu=finding.uuid, finding=finding, jobs=evicted, next_step=NEXT_STEP[State.DRAINING],
              action=f"cordoned and tainted {age:.1f} s after the first sign ({finding.source.value})", actor=by)],
        now,
    )  # fmt: skip
    happens(scene, node, Happening.TAKEN_OUT, finding.cause, now, by)


def take_out_later(scene: Scene, node: NodeScene, now: datetime) -> None:
    """A node that was left in takes its turn when the budget has room again, or its rule may act by now."""
    bad = [
        gpu for gpu in node.gpus.values() if gpu.state == State.UNHEALTHY and not gpu.override_state
    ]
    if not bad or node.watch.out_since is not None:
        return
    acting = {key for key, rule in scene.rules.items() if rule.may_take_out}
    events = HealthEvent.objects.filter(
        cluster=scene.cluster, node=node.name, gpu__in=[gpu.uuid for gpu in bad],
        after=State.UNHEALTHY, rule__in=acting,
    )  # fmt: skip
    event = events.order_by("-pk").first()
    if event is None or not budget_answer(scene, node.name, now).granted:
        return
    gpu = node.gpus[event.gpu]
    finding = Finding(
        event.rule, Grade.UNHEALTHY, event.cause, event.evidence, Source(event.signal), event.at,
        gpu.uuid, gpu.index, event.xid,
    )  # fmt: skip
    take_out(scene, node, [News(finding, gpu)], now)


def hold_budget(cluster: Cluster) -> None:
    """Until the transaction ends nobody else takes from the cluster's budget."""
    list(Cluster.objects.select_for_update(no_key=True).filter(pk=cluster.pk).values_list("pk"))


def budget_answer(scene: Scene, node: str, now: datetime) -> Answer:
    """Whether a rule may take this node out now."""
    places = _places(scene)
    window = scene.budget.window
    taken = HealthAction.objects.filter(cluster=scene.cluster, at__gt=now - window)
    return may_take(
        node, places, [Taken(n, at) for n, at in taken.values_list("node", "at")], scene.budget, now
    )


def _places(scene: Scene) -> list[Place]:
    """All nodes with a flavor; the domain is the narrowest that is not the node."""
    narrowest = list(scene.cluster.levels.order_by("-position").values_list("name", flat=True))
    rows = Node.objects.filter(
        cluster=scene.cluster, gone_at__isnull=True, flavor__isnull=False, managed=True
    ).values_list(
        "name", "domains", "flavor__name", "ready", "cordon_wanted", "health_closed", "health"
    )
    return [
        Place(
            node=name,
            domain=next((domains[level] for level in narrowest if domains.get(level)), ""),
            flavor=flavor,
            takes_jobs=ready and not cordon and not closed and health != State.JOINING,
        )
        for name, domains, flavor, ready, cordon, closed, health in rows
    ]  # fmt: skip


def _beyond_budget(
    scene: Scene, node: NodeScene, finding: Finding, answer: Answer, now: datetime
) -> None:
    limit = answer.refusal.value if answer.refusal else ""
    raise_alert(
        AlertFacts(
            "budget_exhausted", cluster=scene.cluster, node=node.name,
            numbers={"taken": answer.taken, "allowed": answer.allowed, "limit": limit, "cause": finding.cause},
            detail=finding.evidence,
        ),
        now,
    )  # fmt: skip
    write_lines(
        scene.cluster, node.name,
        [Line("budget", gpu=finding.uuid, cause=finding.cause, rule=finding.rule,
              action=f"left in: {answer.taken} of {answer.allowed} nodes are out by rule ({limit}); "
                     "it keeps its jobs and gets no new pod",
              next_step="a person decides")],
        now,
    )  # fmt: skip


def send_away(
    scene: Scene, node: NodeScene, finding: Finding, hits: Iterable[Hit], now: datetime
) -> list[dict[str, object]]:
    """Order everything of ours off the node: what was hit at once, the rest after its next checkpoint."""
    known = {hit.attempt.pk: hit for hit in hits}
    told = []
    for attempt in node.attempts():
        hit = known.get(attempt.pk)
        mark_cause_removed(attempt)
        evicted = _order(attempt, node, finding, hit, now)
        told.append((hit or Hit(attempt, "beside")).answer(evicted=evicted))
    return told


def _order(
    attempt: Attempt, node: NodeScene, finding: Finding, hit: Hit | None, now: datetime
) -> bool:
    waits = hit is None and bool(attempt.job.checkpoint_interval_seconds)
    message = f"{finding.cause} on {node.name}"
    try:
        order_eviction(
            attempt,
            rule=EvictionRule.HEALTH,
            message=message,
            ordered_by=HEALTH,
            now=now,
            numbers={"node": node.name, "rule": finding.rule, "xid": finding.xid},
            wait_for_checkpoint=waits,
            latest_at=now + OTHERS_LEAVE_WITHIN if waits else None,
        )
    except ConflictError:  # it has ended, or stops already
        return False
    if hit is not None:
        _stop_now(attempt, message, now)
    return True


def keep_away(node: NodeScene, now: datetime) -> None:
    """Order again what still runs on a node that drains: an order may have been replaced and withdrawn."""
    watch = node.watch
    latest = (watch.out_since or now) + OTHERS_LEAVE_WITHIN
    for attempt in node.attempts():
        if attempt.stop_cause:
            continue
        waits = bool(attempt.job.checkpoint_interval_seconds)
        with suppress(ConflictError):
            order_eviction(
                attempt,
                rule=EvictionRule.HEALTH,
                message=f"{watch.cause} on {node.name}",
                ordered_by=HEALTH,
                now=now,
                numbers={"node": node.name},
                wait_for_checkpoint=waits,
                latest_at=latest if waits else None,
            )


def _stop_now(attempt: Attempt, message: str, now: datetime) -> None:
    """A gang with a dead rank computes nothing: its survivors are stopped without waiting for the loop's next turn."""
    job = attempt.job
    try:
        stop_attempt(attempt, cause=EndedBy.NODE_FAILURE, grace_seconds=job.grace_seconds,
                     message=message, actor=HEALTH, now=now)  # fmt: skip
    except ConflictError:
        return


def blame_hardware(finding: Finding, node: NodeScene, hits: Iterable[Hit], now: datetime) -> int:
    """Jobs that a fault has met, and that stop because a pod on this node failed: the hardware is to blame.

    Read anew: the pod may have failed since the scene was read.
    """
    hit = {each.attempt.pk: each for each in hits}
    rows = Placement.objects.filter(
        attempt__in=list(hit),
        node=node.name,
        exit_code__gt=0,
        attempt__ended_at__isnull=True,
        attempt__stop_cause=EndedBy.FAILED,
    ).select_related("attempt")
    blamed = 0
    for placement in rows if hit else ():
        attempt = placement.attempt
        how = "" if hit[attempt.pk].how == "on_gpu" else "possibly "
        message = f"{finding.cause} on {node.name} ({how}hit): {attempt.message}"
        blamed += blame_infrastructure(attempt, message[:1000], now)
    return blamed


def is_cordoned_by_us(node: Node) -> bool:
    """Whether a health rule keeps the node out."""
    return node.cordons.filter(source=CordonSource.HEALTH, key=CORDON_KEY).exists()
