"""One tick of the health process: what exporters answered → the ledger, and what follows. Time is an argument.

    ticker = HealthTicker(cluster)
    ticker.tick({"gpu-00001": page, "gpu-00002": None}, now)   # None: no answer; all nodes at once
    ticker.look(readings, now)                                 # or some at a time,
    ticker.conclude(names, {}, now)                            # and then what follows from a whole pass

Called by the `health` process, by drivers of virtual time and by benchmarks. Durations are remembered in the ticker
(after a restart they begin anew); states, and what was judged already, are in rows.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controlplane.common import log
from queues.lifecycle import EndedBy
from queues.models import Cluster, Placement
from scheduler.health.conditions import blocks_of
from scheduler.health.findings import Finding, Grade, Source
from scheduler.health.readings import GpuReading, read_page
from scheduler.health.states import State
from scheduler.health.xids import xid_of
from scheduler.models import Gpu, HealthEvent, Node
from scheduler.services.health.acts import act_on, blame_hardware, take_out_later
from scheduler.services.health.answers import note_answers, note_first_answer
from scheduler.services.health.metrics import (
    FEW_NODES,
    JUDGED_EVERY,
    WRITTEN_EVERY,
    Sampler,
    measured,
    note_judged,
    write_metrics,
)
from scheduler.services.health.quiet import QuietNodes
from scheduler.services.health.returns import fade, proceed, welcome
from scheduler.services.health.scene import NodeScene, Scene, lock_node, read_scene, rules_now
from scheduler.services.health.signs import Early, Readings, Seen, Signs
from scheduler.services.health.telling import Lasting, settle, tell_people
from scheduler.services.health.timeline import Hit
from scheduler.services.health.verdicts import (
    News,
    gravest_first,
    is_overridden,
    says_more,
    set_gpu,
    settle_node,
    take_in,
)
from scheduler.services.health.work import LogTimes, WorkBook, judge_work

# A fault that was seen so long ago may still be why a pod fails now.
BLAMED_WITHIN = timedelta(minutes=10)
# Findings that are news each time; others last, and are news when they begin.
EDGES = frozenset({"xid", "xid_repeat", "ecc_uncorrected", "kernel", "report"})
SPARING_RULES = frozenset({"ecc_uncorrected", "row_remap", "gpu_missing", "dcgm_health"})
Pages = Mapping[str, Readings | None]


@dataclass(slots=True)
class HealthTicker:
    """Judges one cluster. Not for two threads at once."""

    cluster: Cluster
    through_prometheus: bool = False
    work: WorkBook = field(default_factory=WorkBook)
    _signs: Signs = field(default_factory=Signs)
    _quiet: QuietNodes = field(default_factory=QuietNodes)
    _lasting: Lasting = field(default_factory=dict)
    _labelled: set[str] = field(default_factory=set)
    _sampler: Sampler = field(default_factory=Sampler)
    # By node: what its exporter has said last; when its GPUs' values were written.
    _readings: dict[str, Readings | None] = field(default_factory=dict)
    _written_at: dict[str, datetime] = field(default_factory=dict)

    def tick(
        self, scrapes: Mapping[str, str | None], now: datetime, log_times: LogTimes | None = None
    ) -> list[News]:
        """Judge the nodes that were scraped; returns what was new. Nodes that have no row are skipped."""
        pages = {
            name: None if page is None else read_page(page, through_prometheus=self.through_prometheus)
            for name, page in scrapes.items()
        }  # fmt: skip
        return self.judge(pages, now, log_times)

    def judge(self, pages: Pages, now: datetime, log_times: LogTimes | None = None) -> list[News]:
        """As `tick`, from readings: with all rows, and where these are all nodes, with what follows of that."""
        self._readings.update(pages)
        found = self._judge(pages, {}, now, now, awaited=len(pages) <= FEW_NODES)
        names = _names_of(self.cluster)
        if names <= pages.keys():
            self.conclude(names, log_times or {}, now)
        return found

    def look(
        self,
        pages: Pages,
        now: datetime,
        seen_at: datetime | None = None,
        *,
        awaited: bool = False,
    ) -> list[News]:
        """Judge some nodes: of those that were well, and are, no row is read.

        seen_at: when the scraping began. awaited: somebody may wait for a verdict on these very nodes.
        """
        self._readings.update(pages)
        early = self._quiet.look(pages, self._signs, rules_now(), now)
        quiet = self._quiet.names() & pages.keys()
        rest = {name: readings for name, readings in pages.items() if name not in quiet}
        self._note_quiet(quiet, seen_at or now, awaited=awaited)
        if not rest:
            return []
        return self._judge(rest, early, now, seen_at or now, awaited=awaited)

    def disturb(self, names: Iterable[str]) -> None:
        """Something was heard of these nodes: their rows are read at the next look."""
        self._quiet.disturb(names)

    def conclude(self, names: Collection[str], log_times: LogTimes, now: datetime) -> None:
        """After all nodes of the cluster were looked at: which alerts are over, and how jobs use their GPUs."""
        self._forget_others(set(names))
        loud = set(names) - self._quiet.names()
        scene = read_scene(self.cluster, loud)
        settle(scene, self._readings, self._lasting, now)
        readings = {name: page for name, page in self._readings.items() if page is not None}
        judge_work(self.cluster, scene.rules, self.work, readings, log_times, now)
        self._sampler.write(now)

    # What is known without a row.

    def _note_quiet(self, names: Iterable[str], now: datetime, *, awaited: bool) -> None:
        due = []
        for name in names:
            quiet, readings = self._quiet.get(name), self._readings.get(name)
            if quiet is None or readings is None:
                continue
            self._sampler.add(quiet.node_id, readings)
            if awaited or quiet.noted_at is None or now - quiet.noted_at >= JUDGED_EVERY:
                quiet.noted_at = now
                due.append(quiet.node_id)
        note_judged(due, now)

    def _forget_others(self, names: set[str]) -> None:
        for name in self._readings.keys() - names:
            self._signs.forget(self._readings.pop(name) or ())
            self._written_at.pop(name, None)
            self._lasting.pop(name, None)
        self._quiet.keep_only(names)

    # With rows.

    def _judge(
        self,
        pages: Pages,
        early: Mapping[str, Early],
        now: datetime,
        seen_at: datetime,
        *,
        awaited: bool,
    ) -> list[News]:
        scene = read_scene(self.cluster, list(pages))
        self._enrol(scene, pages, now)
        for name, node in scene.nodes.items():
            if node.is_new:  # its first row says at once whether its exporter answers
                note_first_answer(node, pages[name], now)
        welcome(scene, now)
        note_answers(scene, pages, now)
        found: list[News] = []
        for name in list(scene.nodes):
            found += self._judge_node(scene, name, pages[name], early.get(name), now)
        self._keep_metrics(scene, pages, now)
        due = [
            node.row
            for node in scene.nodes.values()
            if pages[node.name] is not None and (awaited or _is_due(node.row, seen_at))
        ]
        for row in due:
            row.health_judged_at = seen_at
        note_judged([row.pk for row in due], seen_at)
        return found

    def _enrol(self, scene: Scene, pages: Pages, now: datetime) -> None:
        """GPUs that have no row get one; those that moved to another node follow."""
        unknown: dict[str, tuple[NodeScene, GpuReading]] = {}
        for name, node in scene.nodes.items():
            for uuid, reading in (pages[name] or {}).items():
                if uuid not in node.gpus:
                    unknown[uuid] = (node, reading)
        if not unknown:
            return
        moved = {
            gpu.uuid: gpu
            for gpu in Gpu.objects.filter(cluster=self.cluster, uuid__in=list(unknown))
        }
        made = []
        for uuid, (node, reading) in unknown.items():
            gpu = moved.get(uuid)
            if gpu is None:
                gpu = _new_gpu(self.cluster, node, reading, now)
                made.append(gpu)
            else:
                gpu.node, gpu.index = node.row, reading.index
                gpu.save(update_fields=["node", "index"])
            node.gpus[uuid] = gpu
        Gpu.objects.bulk_create(made, batch_size=500)

    def _judge_node(
        self,
        scene: Scene,
        name: str,
        readings: Readings | None,
        early: Early | None,
        now: datetime,
    ) -> list[News]:
        node = scene.nodes[name]
        findings = self._signs.of_node(scene, node, now)
        if readings is not None:
            findings += self._signs.of_gpus(scene, node, readings, now, early)
        if not findings and _is_at_peace(node):
            self._lasting.pop(name, None)
            if self._signs.waits(node):
                self._quiet.disturb([name])
            else:
                self._quiet.note(node, readings, now)
            return []
        self._quiet.disturb([name])
        before = self._lasting.get(name)
        if _is_at_peace(node) and not self._news(node, findings, readings, now):
            return []  # what it shows is known, and changes nothing
        self._lasting[name] = before or set()
        return self._judge_loud(scene, node, findings, readings, now)

    def _judge_loud(
        self,
        scene: Scene,
        node: NodeScene,
        findings: Seen,
        readings: Readings | None,
        now: datetime,
    ) -> list[News]:
        """A node that shows something, or is not well: under its lock, for others take signs in as well."""
        with log.writing():
            if lock_node(scene, node):
                findings = [(f, node.gpus.get(gpu.uuid) if gpu else None) for f, gpu in findings]
            news = gravest_first(self._news(node, findings, readings, now))
            if not news and _is_at_peace(node):
                return []
            if news:
                take_in(scene, node, news, now)
                act_on(scene, node, news, now)
            else:
                take_out_later(scene, node, now)
            self._blame_late(node, now)
            proceed(scene, node, None if readings is None else dict(readings), now)
            fade(scene, node, {gpu.uuid if gpu else "" for _, gpu in findings}, now)
            _expire_overrides(node, now)
            settle_node(scene, node, now)
        for each in news:
            tell_people(scene, node, each, now)
        return news

    def _news(
        self,
        node: NodeScene,
        findings: Seen,
        readings: Readings | None,
        now: datetime,
    ) -> list[News]:
        """The findings that are new, or whose state has been left; with the jobs that they have met."""
        before = self._lasting.get(node.name, set())
        lasting: set[tuple[str, str, str]] = set()
        news = []
        for finding, gpu in findings:
            key = (gpu.uuid if gpu else "", finding.rule, f"{finding.grade}{finding.xid or ''}")
            known = key in before or key in lasting or _is_told(finding, gpu, node)
            if finding.rule not in EDGES:
                lasting.add(key)
                held = gpu is not None and is_overridden(gpu, now)
                if known and (held or not says_more(finding, gpu, node)):
                    continue
            news.append(News(finding, gpu, self._hits(node, gpu, readings, finding, now)))
        self._lasting[node.name] = lasting
        return news

    def _hits(
        self,
        node: NodeScene,
        gpu: Gpu | None,
        readings: Readings | None,
        finding: Finding,
        now: datetime,
    ) -> list[Hit]:
        """Who sat on the GPU, by the exporter's pod labels; without any, everyone on the node, possibly."""
        if finding.grade is Grade.ALERT:
            return []
        if readings and any(reading.holders for reading in readings.values()):
            self._labelled.add(node.name)
        attempts = node.attempts()
        if gpu is not None:
            pods = {holder.pod for holder in self._signs.memory_of(gpu).last_holders(now)}
            known = {p.attempt_id for p in node.placements if p.pod_name in pods}
            if pods or node.name in self._labelled:
                return [Hit(a, "on_gpu") for a in attempts if a.pk in known]
        return [Hit(attempt, "possibly") for attempt in attempts]

    def _blame_late(self, node: NodeScene, now: datetime) -> None:
        """A pod may die of a fault some time after it was seen."""
        failed = list(
            Placement.objects.filter(
                attempt__in=node.attempts(),
                node=node.name,
                exit_code__gt=0,
                attempt__stop_cause=EndedBy.FAILED,
            ).select_related("attempt")
        )
        if not failed:
            return
        events = HealthEvent.objects.filter(
            cluster=self.cluster,
            node=node.name,
            at__gt=now - BLAMED_WITHIN,
            kind__in=("signal", "state"),
        )
        for event in events.order_by("pk"):
            spares = xid_of(event.xid).spares_job if event.xid else event.rule in SPARING_RULES
            hit = {each["job"]: str(each["how"]) for each in event.jobs}
            hits = [
                Hit(p.attempt, hit[p.attempt.job_id]) for p in failed if p.attempt.job_id in hit
            ]
            if spares and hits:
                finding = Finding(
                    event.rule,
                    Grade.UNHEALTHY,
                    event.cause,
                    event.evidence,
                    Source.EXPORTER,
                    event.at,
                )
                blame_hardware(finding, node, hits, now)

    def _keep_metrics(self, scene: Scene, pages: Pages, now: datetime) -> None:
        """Measured values: means of ten minutes, and the last ones of nodes whose turn it is."""
        due: list[tuple[Gpu, GpuReading]] = []
        for name, node in scene.nodes.items():
            readings = pages[name]
            if not readings:
                continue
            self._sampler.add(node.row.pk, readings)
            written = self._written_at.get(name)
            if written is None or now - written >= WRITTEN_EVERY:
                self._written_at[name] = now
                due += [
                    (node.gpus[uuid], reading)
                    for uuid, reading in readings.items()
                    if uuid in node.gpus
                ]
        write_metrics(due, now)


def _names_of(cluster: Cluster) -> set[str]:
    rows = Node.objects.filter(cluster=cluster, gone_at__isnull=True, flavor__isnull=False)
    return set(rows.values_list("name", flat=True))


def _is_due(row: Node, now: datetime) -> bool:
    return row.health_judged_at is None or now - row.health_judged_at >= JUDGED_EVERY


def _new_gpu(cluster: Cluster, node: NodeScene, reading: GpuReading, now: datetime) -> Gpu:
    return Gpu(
        cluster=cluster,
        node=node.row,
        uuid=reading.uuid,
        index=reading.index,
        model=reading.model[:80],
        since=now,
        seen_at=now,
        ecc_known=reading.ecc_known,
        holders=[[holder.namespace, holder.pod] for holder in reading.holders],
        **measured(reading),
    )


def _is_at_peace(node: NodeScene) -> bool:
    """Whether a node without news needs no look at all: it is well, and the planner knows."""
    row = node.row
    return (
        node.watch.state == State.HEALTHY
        and node.watch.out_since is None
        and (row.health, row.health_closed) == (State.HEALTHY, False)
        and all(gpu.state == State.HEALTHY and not gpu.override_state for gpu in node.gpus.values())
        and not blocks_of(row.labels)
    )


def _is_told(finding: Finding, gpu: Gpu | None, node: NodeScene) -> bool:
    """Whether the row tells of it already: a restarted process does not tell it again.

    A node that is burnt in keeps what it was out for as its cause; the same sign would be a new one.
    """
    if gpu is None and node.watch.state == State.BURN_IN:
        return False
    cause = gpu.cause if gpu else node.watch.cause
    return bool(cause) and cause == finding.cause[:200]


def _expire_overrides(node: NodeScene, now: datetime) -> None:
    for gpu in node.gpus.values():
        if gpu.override_state and not is_overridden(gpu, now):
            gpu.override_state, gpu.override_reason = "", ""
            gpu.override_by, gpu.override_until = "", None
            gpu.save(
                update_fields=["override_state", "override_reason", "override_by", "override_until"]
            )
            if gpu.state != State.HEALTHY and node.watch.out_since is None:
                set_gpu(gpu, State.HEALTHY, "", "", now)
