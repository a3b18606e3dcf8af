"""What one look at a node shows, and what has to be remembered of GPUs from look to look. Called by the ticker.

Durations are remembered here, and begin anew with the process; what was judged already is in the GPUs' rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from scheduler.health.conditions import condition_findings, taint_findings
from scheduler.health.findings import Finding, Grade, Source
from scheduler.health.judge import GpuMemory, judge_gpu, missing_finding
from scheduler.health.readings import GpuReading, Holder
from scheduler.health.rules import Rules
from scheduler.health.states import GRAVITY, State
from scheduler.models import Gpu
from scheduler.services.health.scene import NodeScene, Scene

Readings = Mapping[str, GpuReading]
Seen = list[tuple[Finding, Gpu | None]]
# By UUID: what a page has shown already, when it was judged without rows.
Early = Mapping[str, list[Finding]]


@dataclass(slots=True)
class Signs:
    """Memories of one cluster's GPUs, and the findings made with them."""

    _memories: dict[str, GpuMemory] = field(default_factory=dict)
    _missing: dict[str, datetime] = field(default_factory=dict)
    _fallen: dict[str, datetime] = field(default_factory=dict)

    def memory_of(self, gpu: Gpu) -> GpuMemory:
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

    def early(self, readings: Readings, rules: Rules, now: datetime) -> Early | None:
        """Findings by UUID from a page alone. None where a GPU is not known yet: its row has to be read first."""
        if not readings.keys() <= self._memories.keys():
            return None
        return {
            uuid: judge_gpu(reading, self._memories[uuid], rules, now)
            for uuid, reading in readings.items()
        }

    def is_written(self, uuid: str, reading: GpuReading) -> bool:
        """Whether the GPU's row tells already what was judged of it."""
        memory = self._memories[uuid]
        return memory.written == _judged(memory, reading, memory.written, healthy=True)

    def of_node(self, scene: Scene, node: NodeScene, now: datetime) -> Seen:
        """What the node's row says: conditions and taints; those that name a GPU are about it."""
        row, rules = node.row, scene.rules
        found: list[Finding] = []
        if rules["node_condition"].is_on:
            found += condition_findings(row.conditions, now)
        if rules["node_taint"].is_on:
            found += taint_findings(row.taints, now)
        pairs: Seen = [(f, node.gpus.get(f.uuid) or node.gpu_at(f.index)) for f in found]
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

    def waits(self, node: NodeScene) -> bool:
        """Whether time alone may show more of a node."""
        return node.name in self._fallen or any(uuid in self._missing for uuid in node.gpus)

    def of_gpus(
        self,
        scene: Scene,
        node: NodeScene,
        readings: Readings,
        now: datetime,
        early: Early | None = None,
    ) -> Seen:
        """What the page says of each GPU, and of those that it no longer tells of."""
        found: Seen = []
        for uuid, reading in readings.items():
            gpu, memory = node.gpus[uuid], self.memory_of(node.gpus[uuid])
            told = early.get(uuid) if early is not None else None
            if told is None:
                told = judge_gpu(reading, memory, scene.rules, now)
            found += [(finding, gpu) for finding in told]
            _keep_judged(gpu, memory, reading)
        _retire(node, readings)
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

    def forget(self, uuids: Iterable[str]) -> None:
        """These GPUs are gone."""
        for uuid in uuids:
            self._memories.pop(uuid, None)
            self._missing.pop(uuid, None)


def _retire(node: NodeScene, readings: Readings) -> None:
    """GPUs in whose place another one answers were swapped: their rows go, their story stays."""
    places = {reading.index for reading in readings.values()}
    gone = [g for g in node.gpus.values() if g.uuid not in readings and g.index in places]
    for gpu in gone:
        del node.gpus[gpu.uuid]
        gpu.delete()


def _judged(
    memory: GpuMemory, reading: GpuReading, before: Mapping[str, object], *, healthy: bool
) -> dict[str, object]:
    """What a GPU's row is to say of what was judged."""
    known = before.get("latched")
    latched = dict(known) if isinstance(known, dict) else {}
    if memory.xid:
        latched["xid"] = memory.xid
    if reading.values.get("ecc_dbe_vol"):
        latched["ecc_dbe_vol"] = reading.values["ecc_dbe_vol"]
    if healthy and not memory.xid:
        latched = {}
    counters = {name: value for name, value in memory.counters.items() if value}
    return {"xid": memory.xid, "counters": counters, "latched": latched}


def _keep_judged(gpu: Gpu, memory: GpuMemory, reading: GpuReading) -> None:
    """Write down what was judged, so that an old sign is no news after a restart of the process."""
    judged = _judged(memory, reading, gpu.judged, healthy=gpu.state == State.HEALTHY)
    memory.written = judged
    if judged != (gpu.judged or {"xid": 0, "counters": {}, "latched": {}}):
        gpu.judged = judged
        gpu.save(update_fields=["judged"])
