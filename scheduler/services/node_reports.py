"""Reports of bad nodes: by a training framework about its own nodes, by operators about any.

A tenant's word makes a node suspect, within the same budget as rules, and never takes it out: a rule that sees the
same fault does that. An operator's word about a hardware XID is as good as the kernel's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from controlplane.common import log
from controlplane.common.errors import (
    ErrorCollector,
    FieldError,
    InvalidError,
    LimitedError,
    NotVisibleError,
)
from queues.contract.reading import Reader
from queues.models import Attempt, Cluster, Placement
from queues.selectors.jobs import LONGEST_ID, job_of
from scheduler.health.findings import Finding, Grade, Source
from scheduler.health.judge import kernel_finding
from scheduler.models import HealthAction, Node, NodeReport
from scheduler.services.alerts import AlertFacts, raise_alert
from scheduler.services.health.acts import budget_answer, hold_budget
from scheduler.services.health.scene import NodeScene, Scene, read_scene
from scheduler.services.health.timeline import Line, write_lines
from scheduler.services.node_signals import take_finding
from tenants.access import Actor, Right, require

KINDS = ("xid", "ecc", "nvlink", "thermal", "hang", "other")
MOST_PER_HOUR = 2
HOUR = timedelta(hours=1)
REPORT = "report"


@dataclass(frozen=True, slots=True)
class Said:
    """A report as sent."""

    kind: str
    code: int | None
    gpu: int | None
    uuid: str
    message: str
    evidence: str
    job: str = ""

    @property
    def cause(self) -> str:
        """In a few words."""
        code = f" {self.code}" if self.code is not None else ""
        gpu = f" on GPU {self.gpu}" if self.gpu is not None else ""
        return f"reported: {self.kind}{code}{gpu}"


def report_node(actor: Actor, node: Node, sent: Mapping[str, Any], now: datetime) -> NodeReport:
    """An operator reports a node; `job` names one that has met the fault. Raises ForbiddenError, InvalidError."""
    require(actor, Right.OPERATE_NODES)
    said, _replica = _read(sent)
    met = _met(actor, said.job)
    scene, found = _scene_of(node.cluster, node.name)
    with log.writing():
        if met is not None:
            line = Line("report", cause=said.cause, rule=REPORT, actor=actor.name, jobs=[met])
            write_lines(scene.cluster, found.name, [line], now)
        report = _store(found, said, actor.name, now, verdict="suspect")
        take_finding(scene, found, _finding(said, now, by_operator=True), now)
    return report


def report_from_attempt(attempt: Attempt, sent: Mapping[str, Any], now: datetime) -> NodeReport:
    """A running attempt reports one of its own nodes; `replica` says which (role-index, or an index of its sole role).

    Raises InvalidError, and LimitedError for the third report within an hour.
    """
    said, replica = _read(sent)
    if said.job not in ("", attempt.job_id):
        raise _wrong_job(_("is not the job of this attempt"))
    placement = _placement(attempt, replica)
    scene, found = _scene_of(attempt.cluster, placement.node)
    with log.writing():
        hold_budget(scene.cluster)
        _check_rate(attempt, now)
        answer = budget_answer(scene, found.name, now)
        verdict = "suspect" if answer.granted else "beyond_budget"
        by = f"{attempt.job.tenant.slug}/{attempt.job_id}"
        report = _store(found, said, by, now, verdict=verdict, attempt=attempt, replica=replica)
        if answer.granted:
            HealthAction.objects.create(
                cluster=scene.cluster, node=found.name, rule=REPORT, at=now, what="suspect"
            )
            take_finding(scene, found, _finding(said, now, by_operator=False), now)
        else:
            line = Line("report", cause=said.cause, evidence=said.evidence, rule=REPORT, actor=by,
                        action="noted only: the budget is used up", next_step="a person decides")  # fmt: skip
            write_lines(scene.cluster, found.name, [line], now)
    if not answer.granted:
        numbers = {"taken": answer.taken, "allowed": answer.allowed, "cause": said.cause}
        facts = AlertFacts(
            "budget_exhausted", cluster=scene.cluster, node=found.name, numbers=numbers
        )
        raise_alert(facts, now)
    return report


def _read(sent: Mapping[str, Any]) -> tuple[Said, str]:
    errors = ErrorCollector()
    reader = Reader(sent, "", errors)
    reader.required("kind")
    said = Said(
        kind=reader.choice("kind", "other", KINDS),
        code=reader.optional_whole("code", most=9_999),
        gpu=reader.optional_whole("gpu", most=255),
        uuid=reader.text("uuid", longest=80),
        message=reader.text("message", longest=2_000),
        evidence=reader.text("evidence", longest=10_000),
        job=reader.text("job", longest=LONGEST_ID),
    )
    replica = sent.get("replica")
    reader.take("replica")
    if replica is not None and not isinstance(replica, (str, int)):
        errors.add("/replica", "invalid", _("must be a role and index, such as main-0"))
    if said.kind == "xid" and said.code is None:
        errors.add("/code", "required", _("is required for an XID"))
    reader.finish()
    errors.raise_if_any()
    return said, "" if replica is None else str(replica)


def _met(actor: Actor, job_id: str) -> dict[str, Any] | None:
    """The job that a report names, as the timeline keeps it. Raises InvalidError for one that the actor may not see."""
    if not job_id:
        return None
    try:
        job = job_of(actor, job_id)
    except NotVisibleError as error:
        raise _wrong_job(error.detail) from error
    return {
        "job": job.pk,
        "tenant": job.tenant.slug,
        "attempt": job.attempt_number,
        "how": "possibly",
        "evicted": False,
    }


def _wrong_job(message: str) -> InvalidError:
    return InvalidError(f"/job: {message}", errors=(FieldError("/job", "unknown", message),))


def _placement(attempt: Attempt, replica: str) -> Placement:
    rows = list(attempt.placements.select_related("role").order_by("rank"))
    chosen = [p for p in rows if replica in (f"{p.role.name}-{p.replica}", str(p.replica))]
    if len(chosen) == 1:
        return chosen[0]
    if not replica and len({p.node for p in rows}) == 1:
        return rows[0]
    message = _("must name one replica of this attempt, such as main-0")
    raise InvalidError(f"/replica: {message}", errors=(FieldError("/replica", "unknown", message),))


def _check_rate(attempt: Attempt, now: datetime) -> None:
    recent = NodeReport.objects.filter(attempt=attempt, at__gt=now - HOUR).order_by("-at")
    times = list(recent.values_list("at", flat=True)[:MOST_PER_HOUR])
    if len(times) >= MOST_PER_HOUR:
        wait = int((times[-1] + HOUR - now).total_seconds()) + 1
        raise LimitedError(
            _("An attempt may report {most} times an hour.").format(most=MOST_PER_HOUR),
            extra={"retry_after_seconds": wait},
        )


def _scene_of(cluster: Cluster, node: str) -> tuple[Scene, NodeScene]:
    scene = read_scene(cluster, [node])
    if node not in scene.nodes:
        raise NotVisibleError(_("There is no such node."))
    return scene, scene.nodes[node]


def _store(  # noqa: PLR0913  a report comes with its whole story
    node: NodeScene, said: Said, by: str, now: datetime, *, verdict: str,
    attempt: Attempt | None = None, replica: str = "",
) -> NodeReport:  # fmt: skip
    return NodeReport.objects.create(
        cluster=node.row.cluster, node=node.name, attempt=attempt, by=by, at=now, kind=said.kind,
        code=said.code, gpu=said.gpu, uuid=said.uuid, replica=replica[:80], message=said.message,
        evidence=said.evidence, verdict=verdict,
    )  # fmt: skip


def _finding(said: Said, now: datetime, *, by_operator: bool) -> Finding:
    evidence = " ".join(part for part in (said.message, said.evidence) if part) or said.cause
    if by_operator and said.kind == "xid" and said.code is not None:
        kernel = kernel_finding([said.code], evidence, now, said.uuid, said.gpu)
        if kernel is not None:
            return kernel
    return Finding(
        rule=REPORT, grade=Grade.SUSPECT, cause=said.cause, evidence=evidence[:1000],
        source=Source.REPORT, at=now, uuid=said.uuid, index=said.gpu,
        xid=said.code if said.kind == "xid" else None,
    )  # fmt: skip
