"""What was measured, in rows: each GPU's last values about once a minute, and ten-minute means for dry runs.

One prepared UPDATE executed for all GPUs that changed: `bulk_update` would build one CASE over all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Field

from scheduler.health.readings import GpuReading
from scheduler.models import Gpu, HealthAction, HealthEvent, HealthSample, Node, NodeWatch

WRITTEN_EVERY = timedelta(seconds=60)
SAMPLED_EVERY = timedelta(minutes=10)
# What a sample keeps of each GPU, in this order.
SAMPLED = ("utilisation", "memory_copy", "temperature_c")
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
    # By node, GPU index and value: the sum and the number of what was added.
    _sums: dict[int, dict[int, list[float]]] = field(default_factory=dict)

    def add(self, node_id: int, readings: Mapping[str, GpuReading]) -> None:
        """Remember one scrape of one node."""
        sums = self._sums.setdefault(node_id, {})
        for reading in readings.values():
            gpu = sums.setdefault(reading.index, [0.0] * (2 * len(SAMPLED)))
            values = reading.values
            measured_now = (
                reading.utilisation,
                values.get("memory_copy"),
                values.get("temperature_c"),
            )
            for place, value in enumerate(measured_now):
                if value is not None:
                    gpu[2 * place] += value
                    gpu[2 * place + 1] += 1

    def write(self, now: datetime) -> int:
        """Write what is due; the number of rows."""
        self.began = self.began or now
        if now - self.began < SAMPLED_EVERY:
            return 0
        rows = [
            HealthSample(
                node_id=node_id,
                at=now,
                gpus={str(index): _means(sums) for index, sums in gpus.items()},
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


def _means(sums: Sequence[float]) -> list[float | None]:
    """In the order of `SAMPLED`; None for what was never known."""
    pairs = zip(sums[::2], sums[1::2], strict=True)
    return [round(total / count, 1) if count else None for total, count in pairs]


def note_judged(nodes: Sequence[int], now: datetime) -> None:
    """Say of these rows of nodes that they were judged then: others wait for that."""
    if nodes:
        Node.objects.filter(pk__in=nodes).update(health_judged_at=now)
        NodeWatch.objects.filter(pk__in=nodes).update(answered_at=now)
