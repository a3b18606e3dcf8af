"""What was measured, in rows: each GPU's last values about once a minute, and ten-minute means for dry runs.

One prepared UPDATE executed for all GPUs that changed: `bulk_update` would build one CASE over all of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Field

from scheduler.health.readings import GpuReading
from scheduler.models import Gpu, HealthAction, HealthEvent, HealthSample, Node, NodeWatch
from scheduler.services.health.scene import NodeScene

WRITTEN_EVERY = timedelta(seconds=60)
SAMPLED_EVERY = timedelta(minutes=10)
SAMPLES_KEPT = timedelta(days=1)
# Faults of a node are its history: kept as long as attempts and placements are.
TIMELINE_KEPT = timedelta(days=400)
JUDGED_EVERY = timedelta(seconds=30)
# A tick of so few nodes was asked for by somebody who waits for its verdict.
FEW_NODES = 64
# Values that moved by less are not worth a write.
MOVES = {"utilisation": 3.0, "memory_copy": 3.0, "temperature_c": 2.0, "memory_used_mib": 512.0}


def measured(reading: GpuReading) -> dict[str, float | None]:
    """The values that a GPU's row keeps; None where the exporter does not say."""
    values = reading.values
    return {
        "utilisation": _rounded(reading.utilisation),
        "memory_copy": _rounded(values.get("memory_copy")),
        "temperature_c": _rounded(values.get("temperature_c")),
        "memory_used_mib": _rounded(values.get("memory_used_mib")),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _differs(gpu: Gpu, values: Mapping[str, float | None], holders: list[list[str]]) -> bool:
    if gpu.holders != holders or gpu.unknown_since is not None:
        return True
    for name, least in MOVES.items():
        before, now = getattr(gpu, name), values[name]
        if (before is None) != (now is None):
            return True
        if before is not None and now is not None and abs(before - now) >= least:
            return True
    return False


def write_metrics(pairs: Iterable[tuple[Gpu, GpuReading]], now: datetime) -> int:
    """Write the last values of the GPUs whose values moved; how many did."""
    rows = []
    for gpu, reading in pairs:
        values = measured(reading)
        holders = [[holder.namespace, holder.pod] for holder in reading.holders]
        if _differs(gpu, values, holders):
            gpu.holders, gpu.ecc_known = holders, reading.ecc_known
            rows.append((gpu, values))
    if not rows:
        return 0
    table = connection.ops.quote_name(Gpu._meta.db_table)
    names = [*MOVES, "holders", "ecc_known", "seen_at", "unknown_since"]
    fields = [field for name in names if isinstance(field := Gpu._meta.get_field(name), Field)]
    assigned = ", ".join(f"{connection.ops.quote_name(name)} = %s" for name in names)
    # Names are the model's own; every value is a parameter.
    statement = f"UPDATE {table} SET {assigned} WHERE id = %s"
    parameters = []
    for gpu, values in rows:
        stored = [*(values[name] for name in MOVES), gpu.holders, gpu.ecc_known, now, None]
        saved = (
            f.get_db_prep_save(v, connection=connection)
            for f, v in zip(fields, stored, strict=True)
        )
        parameters.append((*saved, gpu.pk))
    with connection.cursor() as cursor:
        cursor.executemany(statement, parameters)
    return len(rows)


@dataclass(slots=True)
class Sampler:
    """Adds up ten minutes of every GPU and writes one row a node; drops rows older than a day."""

    began: datetime | None = None
    _sums: dict[int, dict[int, list[list[float]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: [[], [], []]))
    )

    def add(self, node_id: int, readings: Mapping[str, GpuReading]) -> None:
        """Remember one scrape of one node."""
        for reading in readings.values():
            lists = self._sums[node_id][reading.index]
            wanted = (
                reading.utilisation,
                reading.values.get("memory_copy"),
                reading.values.get("temperature_c"),
            )
            for values, value in zip(lists, wanted, strict=True):
                if value is not None:
                    values.append(value)

    def write(self, now: datetime) -> int:
        """Write what is due; the number of rows."""
        self.began = self.began or now
        if now - self.began < SAMPLED_EVERY:
            return 0
        rows = [
            HealthSample(
                node_id=node_id,
                at=now,
                gpus={
                    str(index): [_mean(values) for values in lists] for index, lists in gpus.items()
                },
            )
            for node_id, gpus in self._sums.items()
        ]
        HealthSample.objects.bulk_create(rows, batch_size=500)
        HealthSample.objects.filter(at__lt=now - SAMPLES_KEPT).delete()
        HealthEvent.objects.filter(at__lt=now - TIMELINE_KEPT).delete()
        HealthAction.objects.filter(at__lt=now - TIMELINE_KEPT).delete()
        self.began = now
        self._sums.clear()
        return len(rows)


def _mean(values: list[float]) -> float | None:
    return round(sum(values) / len(values), 1) if values else None


def note_judged(nodes: Iterable[NodeScene], now: datetime) -> None:
    """Say that these were judged: at once when somebody may wait for it, else every half minute."""
    listed = list(nodes)
    few = len(listed) <= FEW_NODES
    due = [
        node.row.pk
        for node in listed
        if few
        or node.row.health_judged_at is None
        or now - node.row.health_judged_at >= JUDGED_EVERY
    ]
    if due:
        Node.objects.filter(pk__in=due).update(health_judged_at=now)
        NodeWatch.objects.filter(pk__in=due).update(answered_at=now)
