"""One tick of the health process: what exporters answered → the ledger, and what follows. Time is an argument.

    ticker = HealthTicker(cluster)
    ticker.tick({"gpu-00001": page, "gpu-00002": None}, now)   # None: no answer

Called by the `health` process, by drivers of virtual time and by benchmarks. Durations are remembered in the ticker
(after a restart they begin anew); states, and what was judged already, are in rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controlplane.common import log
from queues.lifecycle import EndedBy
from queues.models import Cluster, Placement
from scheduler.health.conditions import blocks_of, condition_findings, taint_findings
from scheduler.health.findings import Finding, Grade, Source
from scheduler.health.judge import GpuMemory, judge_gpu, missing_finding
from scheduler.health.readings import GpuReading, Holder, read_page
from scheduler.health.states import GRAVITY, State
from scheduler.health.xids import xid_of
from scheduler.models import Gpu, HealthEvent, Node, NodeWatch
from scheduler.services.health.acts import act_on, blame_hardware, take_out_later
from scheduler.services.health.metrics import (
    WRITTEN_EVERY,
    Sampler,
    measured,
    note_judged,
    write_metrics,
)
from scheduler.services.health.returns import fade, proceed, welcome
from scheduler.services.health.scene import NodeScene, Scene, read_scene
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
Readings = Mapping[str, GpuReading]


@dataclass(slots=True)
class HealthTicker:
    """Judges one cluster. Not for two threads at once."""

    cluster: Cluster
    through_prometheus: bool = False
    work: WorkBook = field(default_factory=WorkBook)
    _memories: dict[str, GpuMemory] = field(default_factory=dict)
    _lasting: Lasting = field(default_factory=dict)
    _missing: dict[str, datetime] = field(default_factory=dict)
    _fallen: dict[str, datetime] = field(default_factory=dict)
    _labelled: set[str] = field(default_factory=set)
    _sampler: Sampler = field(default_factory=Sampler)
    _written_at: datetime | None = None

    def tick(
        self, scrapes: Mapping[str, str | None], now: datetime, log_times: LogTimes | None = None
    ) -> list[News]:
        """Judge the nodes that were scraped; returns what was new. Nodes that have no row are skipped."""
        pages = {
            name: None if page is None else read_page(page, through_prometheus=self.through_prometheus)
            for name, page in scrapes.items()
        }  # fmt: skip
        return self.judge(pages, now, log_times)

    def judge(
        self,
        pages: Mapping[str, Readings | None],
        now: datetime,
        log_times: LogTimes | None = None,
        seen_at: datetime | None = None,
    ) -> list[News]:
        """As `tick`, from readings. seen_at: when the scraping began, where that took time."""
        scene = read_scene(self.cluster, list(pages))
        self._enrol(scene, pages, now)
        for name, node in scene.nodes.items():
            if node.is_new:  # its first row says at once whether its exporter answers
                _answered(node, pages[name], now)
        welcome(scene, now)
        self._note_answers(scene, pages, now)
        found: list[News] = []
        for name, node in scene.nodes.items():
            found += self._judge_node(scene, node, pages[name], now)
        self._keep_metrics(scene, pages, now)
        if self._is_whole(scene):
            settle(scene, pages, self._lasting, now)
            readings = {name: page for name, page in pages.items() if page is not None}
            judge_work(scene, self.work, readings, log_times or {}, now)
        note_judged((n for n in scene.nodes.values() if pages[n.name] is not None), seen_at or now)
        return found

    # Rows for what is seen for the first time.

    def _enrol(self, scene: Scene, pages: Mapping[str, Readings | None], now: datetime) -> None:
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

    # One node.

    def _judge_node(
        self, scene: Scene, node: NodeScene, readings: Readings | None, now: datetime
    ) -> list[News]:
        findings = self._node_findings(scene, node, now)
        if readings is not None:
            findings += self._gpu_findings(scene, node, readings, now)
        news = self._news(node, findings, readings, now)
        if not news and _is_at_peace(node):
            return news
        with log.writing():
            if news:
                take_in(scene, node, gravest_first(news), now)
                act_on(scene, node, gravest_first(news), now)
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

    def _node_findings(
        self, scene: Scene, node: NodeScene, now: datetime
    ) -> list[tuple[Finding, Gpu | None]]:
        """What the node's row says: conditions and taints; those that name a GPU are about it."""
        row, rules = node.row, scene.rules
        found: list[Finding] = []
        if rules["node_condition"].is_on:
            found += condition_findings(row.conditions, now)
        if rules["node_taint"].is_on:
            found += taint_findings(row.taints, now)
        pairs = [(f, node.gpus.get(f.uuid) or node.gpu_at(f.index)) for f in found]
        if (fallen := self._allocatable(scene, node, now)) is not None:
            pairs.append((fallen, None))
        return pairs

    def _allocatable(self, scene: Scene, node: NodeScene, now: datetime) -> Finding | None:
        """Fewer GPUs than there are, and nobody has said which is bad: the plugin knows something that we do not."""
        row, rule = node.row, scene.rules["allocatable"]
        bad = sum(GRAVITY[State(gpu.state)] > GRAVITY[State.SUSPECT] for gpu in node.gpus.values())
        if (
            not rule.is_on
            or row.gpus_capacity - row.gpus_allocatable <= bad
            or not row.gpus_allocatable
        ):
            self._fallen.pop(node.name, None)
            return None
        since = self._fallen.setdefault(node.name, now)
        if (now - since).total_seconds() < rule.number("seconds"):
            return None
        cause = f"{row.gpus_allocatable} of {row.gpus_capacity} GPUs allocatable"
        return Finding(
            rule="allocatable", grade=Grade.SUSPECT, cause=cause, source=Source.ALLOCATABLE, at=since,
            evidence=f"node: {cause}; the device plugin has marked a GPU unhealthy and does not say which",
            action="restart the device plugin once the GPU is well",
        )  # fmt: skip

    def _gpu_findings(
        self, scene: Scene, node: NodeScene, readings: Readings, now: datetime
    ) -> list[tuple[Finding, Gpu | None]]:
        found: list[tuple[Finding, Gpu | None]] = []
        for uuid, reading in readings.items():
            gpu, memory = node.gpus[uuid], self._memory(node.gpus[uuid])
            found += [(f, gpu) for f in judge_gpu(reading, memory, scene.rules, now)]
            _keep_judged(gpu, memory, reading)
        self._retire(node, readings)
        for uuid, gpu in node.gpus.items():
            if uuid in readings:
                self._missing.pop(uuid, None)
                continue
            since = self._missing.setdefault(uuid, gpu.unknown_since or now)
            if gpu.unknown_since is None:
                gpu.unknown_since = now
                gpu.save(update_fields=["unknown_since"])
            finding = missing_finding(uuid, gpu.index, since, scene.rules, now)
            if finding is not None:
                found.append((finding, gpu))
        return found

    def _retire(self, node: NodeScene, readings: Readings) -> None:
        """GPUs in whose place another one answers were swapped: their rows go, their story stays."""
        places = {reading.index for reading in readings.values()}
        gone = [g for g in node.gpus.values() if g.uuid not in readings and g.index in places]
        for gpu in gone:
            del node.gpus[gpu.uuid]
            gpu.delete()

    def _memory(self, gpu: Gpu) -> GpuMemory:
        """What is known of a GPU: of this process, else of its row."""
        memory = self._memories.get(gpu.uuid)
        if memory is None:
            judged = gpu.judged
            memory = self._memories[gpu.uuid] = GpuMemory(
                fresh=not judged,
                xid=judged.get("xid", 0),
                counters=dict(judged.get("counters", {})),
                holders=tuple(Holder(*pair) for pair in gpu.holders),
                held_at=gpu.seen_at if gpu.holders else None,
            )
        return memory

    def _news(
        self,
        node: NodeScene,
        findings: list[tuple[Finding, Gpu | None]],
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
            pods = {holder.pod for holder in self._memory(gpu).last_holders(now)}
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

    # The exporter.

    def _note_answers(
        self, scene: Scene, pages: Mapping[str, Readings | None], now: datetime
    ) -> None:
        """Who answers and who does not, where that has changed. Of the silent nothing is known any more, and nothing
        is taken out for that alone."""
        nodes = scene.nodes.values()
        silent = [
            node for node in nodes if pages[node.name] is None and node.watch.unknown_since is None
        ]
        back = [n for n in nodes if pages[n.name] is not None and n.watch.unknown_since is not None]
        for node in silent:
            node.watch.unknown_since, node.watch.error = now, "the exporter does not answer"
        changed = silent + [node for node in nodes if _heard(node, pages[node.name], now)]
        if changed:
            watches = [node.watch for node in changed]
            NodeWatch.objects.bulk_update(watches, _ANSWER_COLUMNS, batch_size=500)
        for listed, since in ((silent, now), (back, None)):
            _mark_unknown(listed, since)

    # What is kept and told.

    def _keep_metrics(
        self, scene: Scene, pages: Mapping[str, Readings | None], now: datetime
    ) -> None:
        for name, node in scene.nodes.items():
            if readings := pages[name]:
                self._sampler.add(node.row.pk, readings)
        self._sampler.write(now)
        if self._written_at is not None and now - self._written_at < WRITTEN_EVERY:
            return
        self._written_at = now if self._is_whole(scene) else self._written_at
        write_metrics(
            (
                (node.gpus[uuid], reading)
                for name, node in scene.nodes.items()
                for uuid, reading in (pages[name] or {}).items()
            ),
            now,
        )

    def _is_whole(self, scene: Scene) -> bool:
        rows = Node.objects.filter(cluster=self.cluster, gone_at__isnull=True, flavor__isnull=False)
        return rows.count() <= len(scene.nodes)


def _answered(node: NodeScene, readings: Readings | None, now: datetime) -> None:
    """Note on a watch that has no row yet what its exporter has said."""
    if readings is None:
        node.watch.unknown_since, node.watch.error = now, "the exporter does not answer"
    else:
        _heard(node, readings, now)


def _heard(node: NodeScene, readings: Readings | None, now: datetime) -> bool:
    """Note an answer on the node's watch; True when it says something new."""
    watch = node.watch
    if readings is None or (watch.unknown_since is None and watch.gpus_seen == len(readings)):
        return False
    watch.unknown_since, watch.error, watch.answered_at = None, "", now
    watch.generation = next((reading.generation for reading in readings.values()), "")
    watch.gpus_seen = len(readings)
    return True


def _mark_unknown(nodes: list[NodeScene], since: datetime | None) -> None:
    """The GPUs of these nodes are unknown from then on, or no longer."""
    rows = Gpu.objects.filter(node__in=[node.row.pk for node in nodes])
    if nodes and since is not None:
        rows.filter(unknown_since__isnull=True).update(unknown_since=since)
    elif nodes:
        rows.update(unknown_since=None)
    for node in nodes:
        for gpu in node.gpus.values():
            gpu.unknown_since = (gpu.unknown_since or since) if since else None


_ANSWER_COLUMNS = ["unknown_since", "error", "answered_at", "generation", "gpus_seen"]


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


def _keep_judged(gpu: Gpu, memory: GpuMemory, reading: GpuReading) -> None:
    """Write down what was judged, so that an old sign is no news after a restart of the process."""
    latched = dict(gpu.judged.get("latched") or {})
    if memory.xid:
        latched["xid"] = memory.xid
    if reading.values.get("ecc_dbe_vol"):
        latched["ecc_dbe_vol"] = reading.values["ecc_dbe_vol"]
    if gpu.state == State.HEALTHY and not memory.xid:
        latched = {}
    counters = {name: value for name, value in memory.counters.items() if value}
    judged = {"xid": memory.xid, "counters": counters, "latched": latched}
    if judged != (gpu.judged or {"xid": 0, "counters": {}, "latched": {}}):
        gpu.judged = judged
        gpu.save(update_fields=["judged"])


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
    """Whether the row tells of it already: a restarted process does not tell it again."""
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
