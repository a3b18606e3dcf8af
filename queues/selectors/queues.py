"""Which queues an actor may see, how they are named in addresses, and what waits and runs in them."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Prefetch, QuerySet
from django.utils.translation import gettext as _

from controlplane.common.errors import NotVisibleError
from queues.contract.queue_fields import QueueFields
from queues.lifecycle import ACTIVE_PHASES, Phase
from queues.models import Job, Queue, QueueFlavor
from queues.selectors.quotas import used_gpus
from tenants.access import Actor
from tenants.selectors import visible_tenants


def queues_visible_to(actor: Actor) -> QuerySet[Queue]:
    """The queues of the actor's tenants."""
    return Queue.objects.filter(visible_tenants(actor))


def with_queue_parts(queues: QuerySet[Queue]) -> QuerySet[Queue]:
    """The query that answers want: tenant, cluster, flavors in order, presets."""
    flavors = QueueFlavor.objects.select_related("flavor").order_by("position", "id")
    return queues.select_related("tenant", "cluster").prefetch_related(
        Prefetch("queue_flavors", queryset=flavors), "presets"
    )


def queue_key(queue: Queue) -> str:
    """A queue's name in addresses: `research.train`. Neither part can hold a dot."""
    return f"{queue.tenant.slug}.{queue.name}"


def queue_of(actor: Actor, key: str) -> Queue:
    """The queue named `<tenant>.<queue>`, or by its own name where the actor sees only one of it.

    Raises NotVisibleError alike for unknown and hidden ones.
    """
    tenant, dot, name = key.rpartition(".")
    found: list[Queue] = []
    if key.isascii() and key.isprintable() and len(key) <= 100:
        rows = with_queue_parts(queues_visible_to(actor)).filter(name=name)
        found = list(rows.filter(tenant__slug=tenant)[:1] if dot else rows[:2])
    if len(found) == 1:
        return found[0]
    if found:
        raise NotVisibleError(
            _("Several tenants have a queue “{name}”; write it as tenant.queue.").format(name=name)
        )
    raise NotVisibleError(_("There is no queue “{key}” that you may see.").format(key=key[:80]))


def fields_of(queue: Queue) -> QueueFields:
    """A queue's fields as they are; needs `with_queue_parts`."""
    return QueueFields(
        state=queue.state,
        flavors=tuple(row.flavor.name for row in queue.queue_flavors.all()),
        presets=tuple(sorted(preset.name for preset in queue.presets.all())),
        default_max_runtime_seconds=queue.default_max_runtime_seconds,
        longest_max_runtime_seconds=queue.longest_max_runtime_seconds,
        highest_priority_submitter=queue.highest_priority_submitter,
        highest_priority_admin=queue.highest_priority_admin,
        user_fair_share=queue.user_fair_share,
        bookings=queue.bookings,
        booking_after_seconds=queue.booking_after_seconds,
        backfill_order=queue.backfill_order,
        min_runtime_seconds=queue.min_runtime_seconds,
        on_waste=queue.on_waste,
    )


def queue_answers(queues: Sequence[Queue]) -> list[dict[str, Any]]:
    """The API's answers for queues read by `with_queue_parts`. Two queries more, however many queues."""
    ids = [queue.pk for queue in queues]
    counts = _job_counts(ids)
    used = used_gpus("queue_id", queue__in=ids)
    return [_answer(queue, counts[queue.pk], used) for queue in queues]


def _answer(queue: Queue, jobs: dict[str, int], used: dict[tuple[int, int], int]) -> dict[str, Any]:
    fields = fields_of(queue)
    return {
        "id": queue_key(queue),
        "name": queue.name,
        "tenant": queue.tenant.slug,
        "cluster": queue.cluster.name,
        "version": queue.version,
        "state": fields.state,
        "flavors": list(fields.flavors),
        "presets": list(fields.presets),
        "default_max_runtime_seconds": fields.default_max_runtime_seconds,
        "longest_max_runtime_seconds": fields.longest_max_runtime_seconds,
        "highest_priority_submitter": fields.highest_priority_submitter,
        "highest_priority_admin": fields.highest_priority_admin,
        "user_fair_share": fields.user_fair_share,
        "bookings": fields.bookings,
        "booking_after_seconds": fields.booking_after_seconds,
        "backfill_order": fields.backfill_order,
        "min_runtime_seconds": fields.min_runtime_seconds,
        "on_waste": fields.on_waste,
        "jobs": jobs,
        "used": {
            row.flavor.name: used.get((queue.pk, row.flavor_id), 0)
            for row in queue.queue_flavors.all()
        },
    }


def _job_counts(queues: Sequence[int]) -> dict[int, dict[str, int]]:
    """Unfinished jobs by queue: pending, held, active."""
    found: dict[int, dict[str, int]] = defaultdict(lambda: {"pending": 0, "held": 0, "active": 0})
    rows = (
        Job.objects.filter(queue__in=queues)
        .exclude(phase=Phase.FINISHED)
        .order_by()
        .values_list("queue_id", "phase")
        .annotate(n=Count("pk"))
    )
    for queue, phase, number in rows:
        found[queue]["active" if phase in ACTIVE_PHASES else phase] += number
    return found
