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
from queues.models import Cluster
from scheduler.health.conditions import blocks_of, condition_findings, taint_findings
from scheduler.health.findings import Finding, Grade, Source
from scheduler.health.judge import GpuMemory, judge_gpu, missing_finding
from scheduler.health.readings import GpuReading, Holder, read_page
from scheduler.health.states import GRAVITY, State
from scheduler.health.xids import xid_of
from scheduler.models import Gpu, HealthEvent, Node, NodeWatch
from scheduler.services.alerts import AlertFacts, raise_alert, settle_alerts
from scheduler.services.health.acts import act_on, blame_hardware, take_out_later
from scheduler.services.health.metrics import WRITTEN_EVERY, Sampler, note_judged, write_metrics
from scheduler.services.health.returns import fade, proceed, welcome
from scheduler.services.health.scene import NodeScene, Scene, read_scene
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
EXPORTER_DOWN_AFTER = timedelta(minutes=2)
Readings = Mapping[str, GpuReading]


@dataclass(slots=True)
class HealthTicker:
    """Judges one cluster. Not for two threads at once."""

    cluster: Cluster
    through_prometheus: bool = False
    work: WorkBook = field(default_factory=WorkBook)
    _memories: dict[str, GpuMemory] = field(default_factory=dict)
    _lasting: dict[str, set[tuple[str, str, str]]] = field(default_factory=dict)
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
    ) -> list[News]:
        """As `tick`, from readings."""
        scene = read_scene(self.cluster, list(pages))
        self._enrol(scene, pages, now)
        found: list[News] = []
        for name, node in scene.nodes.items():
            welcome(scene, node, now)
            found += self._judge_node(scene, node, pages[name], now)
        self._keep_metrics(scene, pages, now)
        if self._is_whole(scene):
            self._settle(scene, pages, now)
            readings = {name: page for name, page in pages.items() if page is not None}
            judge_work(scene, self.work, readings, log_times or {}, now)
        note_judged((n for n in scene.nodes.values() if pages[n.name] is not None), now)
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
        if readings is None:
            self._silent(node, now)
        else:
            self._heard(node, readings, now)
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
            fade(scene, node, {finding.uuid for finding, _ in findings}, now)
            _expire_overrides(node, now)
            settle_node(scene, node, now)
        for each in news:
            self._alert(scene, node, each, now)
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
                if known and not says_more(finding, gpu, node):
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
        failed = [
            p for p in node.placements
            if p.attempt.ended_at is None and p.attempt.stop_cause == EndedBy.FAILED and p.exit_code
        ]  # fmt: skip
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

    def _heard(self, node: NodeScene, readings: Readings, now: datetime) -> None:
        watch = node.watch
        generation = next((r.generation for r in readings.values()), "")
        if watch.unknown_since is None and watch.answered_at and watch.gpus_seen == len(readings):
            return
        watch.unknown_since, watch.error, watch.answered_at = None, "", now
        watch.generation, watch.gpus_seen = generation, len(readings)
        watch.save(
            update_fields=["unknown_since", "error", "answered_at", "generation", "gpus_seen"]
        )
        Gpu.objects.filter(node=node.row, uuid__in=list(readings)).update(unknown_since=None)

    def _silent(self, node: NodeScene, now: datetime) -> None:
        """Nothing is known any more; nothing is taken out for that alone."""
        watch = node.watch
        if watch.unknown_since is not None:
            return
        watch.unknown_since, watch.error = now, "the exporter does not answer"
        watch.save(update_fields=["unknown_since", "error"])
        Gpu.objects.filter(node=node.row, unknown_since__isnull=True).update(unknown_since=now)

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

    def _alert(self, scene: Scene, node: NodeScene, news: News, now: datetime) -> None:
        facts = _alert_of(scene, node, news.gpu, news.finding)
        if facts is not None:
            raise_alert(facts, now)

    def _settle(self, scene: Scene, pages: Mapping[str, Readings | None], now: datetime) -> None:
        """Alerts of a whole pass: what is so now is open, the rest is over."""
        found: dict[str, list[AlertFacts]] = {kind: [] for kind in _SETTLED}
        for node in scene.nodes.values():
            for gpu in node.gpus.values():
                kind = _kind_of_state(State(gpu.state))
                if kind:
                    found[kind].append(_gpu_alert(scene, node, gpu, kind, {"cause": gpu.cause}))
                for rule, kind in (("ecc_corrected", "ecc_errors"), ("temperature", "gpu_hot")):
                    if (gpu.uuid, rule, Grade.ALERT.value) in self._lasting.get(node.name, set()):
                        found[kind].append(
                            _gpu_alert(
                                scene, node, gpu, kind, self._numbers(pages, node, gpu, scene)
                            )
                        )
            since = node.watch.unknown_since
            if since is not None and now - since >= EXPORTER_DOWN_AFTER:
                numbers = {"since": since.isoformat(timespec="seconds")}
                found["exporter_down"].append(
                    AlertFacts(
                        "exporter_down", cluster=self.cluster, node=node.name, numbers=numbers
                    )
                )
            if node.row.health == State.SUSPECT and node.row.health_closed:
                found["node_suspect"].append(
                    AlertFacts(
                        "node_suspect",
                        cluster=self.cluster,
                        node=node.name,
                        numbers={"cause": node.row.health_cause},
                    )
                )
        for kind, facts in found.items():
            settle_alerts(kind, self.cluster, facts, now)

    def _numbers(
        self, pages: Mapping[str, Readings | None], node: NodeScene, gpu: Gpu, scene: Scene
    ) -> dict[str, float | str]:
        reading = (pages[node.name] or {}).get(gpu.uuid)
        values = reading.values if reading else {}
        count = values.get("ecc_sbe_vol", values.get("ecc_sbe_agg", 0))
        return {
            "temperature_c": values.get("temperature_c", 0),
            "limit_c": scene.rules["temperature"].number("above_c"),
            "count": count,
            "error_kind": "corrected",
        }


_SETTLED = ("gpu_fault", "gpu_suspect", "ecc_errors", "gpu_hot", "exporter_down", "node_suspect")


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
    if judged != gpu.judged:
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


def _kind_of_state(state: State) -> str:
    if state is State.SUSPECT:
        return "gpu_suspect"
    return "gpu_fault" if GRAVITY[state] > GRAVITY[State.SUSPECT] else ""


def _alert_of(
    scene: Scene, node: NodeScene, gpu: Gpu | None, finding: Finding
) -> AlertFacts | None:
    numbers = {"cause": finding.cause, **dict(finding.numbers)}
    if gpu is None:
        return None
    kind = {
        "ecc_corrected": "ecc_errors",
        "ecc_uncorrected": "ecc_errors",
        "temperature": "gpu_hot",
    }.get(finding.rule)
    if finding.grade in (Grade.SUSPECT, Grade.UNHEALTHY) and kind is None:
        kind = "gpu_fault" if finding.grade is Grade.UNHEALTHY else "gpu_suspect"
    if kind is None:
        return None
    return _gpu_alert(scene, node, gpu, kind, numbers, finding.evidence)


def _gpu_alert(
    scene: Scene,
    node: NodeScene,
    gpu: Gpu,
    kind: str,
    numbers: Mapping[str, object],
    detail: str = "",
) -> AlertFacts:
    return AlertFacts(
        kind,
        cluster=scene.cluster,
        node=node.name,
        gpu=gpu.uuid,
        numbers=dict(numbers),
        detail=detail or gpu.evidence,
    )


def first_watch(cluster: Cluster) -> bool:
    """Whether the cluster has never been judged."""
    return not NodeWatch.objects.filter(node__cluster=cluster).exists()
