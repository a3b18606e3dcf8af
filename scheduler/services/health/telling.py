"""Alerts about GPUs, nodes and exporters: raised at once by news, settled by a whole pass."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from scheduler.health.findings import Finding, Grade
from scheduler.health.readings import GpuReading
from scheduler.health.states import GRAVITY, State
from scheduler.models import Gpu
from scheduler.services.alerts import AlertFacts, raise_alert, settle_alerts
from scheduler.services.health.scene import NodeScene, Scene
from scheduler.services.health.verdicts import News

EXPORTER_DOWN_AFTER = timedelta(minutes=2)
KIND_OF_RULE = {
    "ecc_corrected": "ecc_errors",
    "ecc_uncorrected": "ecc_errors",
    "temperature": "gpu_hot",
}
SETTLED = ("gpu_fault", "gpu_suspect", "ecc_errors", "gpu_hot", "exporter_down", "node_suspect")
# By node: (GPU, rule, grade and XID) of the findings that last.
Lasting = dict[str, set[tuple[str, str, str]]]
Pages = Mapping[str, Mapping[str, GpuReading] | None]


def tell_people(scene: Scene, node: NodeScene, news: News, now: datetime) -> None:
    """Raise the alert of a finding about a GPU, if it deserves one."""
    finding = news.finding
    kind = KIND_OF_RULE.get(finding.rule) or _kind_of_grade(finding)
    if news.gpu is None or kind is None:
        return
    numbers = {"cause": finding.cause, **dict(finding.numbers)}
    raise_alert(_gpu_alert(scene, node, news.gpu, kind, numbers, finding.evidence), now)


def settle(scene: Scene, pages: Pages, lasting: Lasting, now: datetime) -> None:
    """After a whole pass: what is so now is open, the rest is over."""
    found: dict[str, list[AlertFacts]] = {kind: [] for kind in SETTLED}
    for node in scene.nodes.values():
        readings = pages[node.name] or {}
        for facts in (
            *_of_gpus(scene, node, readings, lasting.get(node.name, set())),
            *_of_node(scene, node, now),
        ):
            found[facts.kind].append(facts)
    for kind, listed in found.items():
        settle_alerts(kind, scene.cluster, listed, now)


def _of_gpus(
    scene: Scene,
    node: NodeScene,
    readings: Mapping[str, GpuReading],
    lasting: set[tuple[str, str, str]],
) -> Iterator[AlertFacts]:
    for gpu in node.gpus.values():
        if gpu.state != State.HEALTHY:
            grave = GRAVITY[State(gpu.state)] > GRAVITY[State.SUSPECT]
            kind = "gpu_fault" if grave else "gpu_suspect"
            yield _gpu_alert(scene, node, gpu, kind, {"cause": gpu.cause})
        for rule in ("ecc_corrected", "temperature"):
            if (gpu.uuid, rule, Grade.ALERT.value) in lasting:
                numbers = _numbers(scene, readings.get(gpu.uuid))
                yield _gpu_alert(scene, node, gpu, KIND_OF_RULE[rule], numbers)


def _of_node(scene: Scene, node: NodeScene, now: datetime) -> Iterator[AlertFacts]:
    since = node.watch.unknown_since
    # One that has never answered is no exporter that went down.
    if node.watch.answered_at and since and now - since >= EXPORTER_DOWN_AFTER:
        told = {"since": since.isoformat(timespec="seconds")}
        yield AlertFacts("exporter_down", cluster=scene.cluster, node=node.name, numbers=told)
    if node.row.health == State.SUSPECT and node.row.health_closed:
        cause = {"cause": node.row.health_cause}
        yield AlertFacts("node_suspect", cluster=scene.cluster, node=node.name, numbers=cause)


def _numbers(scene: Scene, reading: GpuReading | None) -> dict[str, object]:
    values = reading.values if reading else {}
    return {
        "temperature_c": values.get("temperature_c", 0),
        "limit_c": scene.rules["temperature"].number("above_c"),
        "count": values.get("ecc_sbe_vol", values.get("ecc_sbe_agg", 0)),
        "error_kind": "corrected",
    }


def _kind_of_grade(finding: Finding) -> str | None:
    return {Grade.SUSPECT: "gpu_suspect", Grade.UNHEALTHY: "gpu_fault"}.get(finding.grade)


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
        numbers={"index": gpu.index, **numbers},
        detail=detail or gpu.evidence,
    )
