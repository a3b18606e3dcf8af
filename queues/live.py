"""What pages about jobs and quotas are told as it happens (docs/live.md): topics `jobs`, `job` and `quotas`.

Rows are read by the selectors and rendered with the templates that the pages themselves use.
"""

from collections.abc import Hashable, Iterable

from django.db.models import QuerySet
from django.template.loader import render_to_string

from controlplane.common.live import EVERY, Fragment, Heard, Rendered, Topic, Viewer
from queues.lifecycle import Phase
from queues.models import Job
from queues.selectors.jobs import counts_by_phase, jobs_visible_to
from queues.views.rows import job_rows, with_row_parts
from tenants.access import Right
from tenants.watching import actor_of, may_concern, sight_in, sight_of

# A list shows at most 100 rows. Where more have changed, it is told to load itself again.
MOST_ROWS = 200
# So many places in each queue are kept right on open pages; who stands further back learns on loading.
PLACES_KEPT = 100
MANY = "*"
QUOTA_KINDS = ("quota.", "job.phase", "placement.", "tenant.", "queue.")


def _changes_in_lists(heard: Heard) -> Iterable[tuple[str, str]]:
    """Lists of all jobs and of the tenant's. An event about a whole class of jobs names none of them."""
    if not heard.kind.startswith(("job", "placement.", "attempt.")):
        return ()
    row = heard.job or MANY
    return (("", row), (heard.tenant, row))


def _list_sight(viewer: Viewer, tenant: str) -> Hashable | None:
    actor = actor_of(viewer)
    return sight_in(actor, Right.VIEW_TENANT, tenant) if tenant else sight_of(actor)


def _changed_rows(viewer: Viewer, tenant: str, rows: frozenset[str]) -> Rendered:
    """The rows that changed, the counts beside the tabs, and the places of those who wait."""
    visible = jobs_visible_to(actor_of(viewer))
    if tenant:
        visible = visible.filter(tenant__slug=tenant)
    if MANY in rows or len(rows) > MOST_ROWS:
        return Rendered([_load_again()], counts=_counts(visible))
    jobs = list(with_row_parts(visible.filter(pk__in=rows)))
    if not jobs:
        return Rendered()
    return Rendered(_row_fragments(viewer, jobs), counts=_counts(visible) | _places(jobs))


def _row_fragments(viewer: Viewer, jobs: list[Job]) -> list[Fragment]:
    return [
        Fragment(f"#job-{row.id}", render_to_string("queues/_job_row.html", {"row": row}))
        for row in job_rows(actor_of(viewer), jobs)
    ]


def _load_again() -> Fragment:
    """A target that no page has counts as news: a list loads itself again (docs/live.md)."""
    return Fragment("#jobs-changed")


def _counts(visible: QuerySet[Job]) -> dict[str, int]:
    counts = counts_by_phase(visible)
    return {"waiting": counts["waiting"], "active": counts["active"]}


def _places(changed: list[Job]) -> dict[str, int]:
    """The places of the first in each queue in which one moved, as counts named `place-<job>`."""
    found: dict[str, int] = {}
    for queue_id in {job.queue_id for job in changed}:
        waiting = Job.objects.filter(queue_id=queue_id, phase=Phase.PENDING)
        ids = waiting.order_by("-priority", "submitted_at", "id").values_list("pk", flat=True)
        found |= {f"place-{pk}": n for n, pk in enumerate(ids[:PLACES_KEPT], start=1)}
    return found


def _changes_of_job(heard: Heard) -> Iterable[tuple[str, str]]:
    if heard.job:
        return ((heard.job, heard.job),)
    return ((EVERY, MANY),) if heard.kind == "jobs.reason" else ()


def _job_sight(viewer: Viewer, job_id: str) -> Hashable | None:
    actor = actor_of(viewer)
    return sight_of(actor) if jobs_visible_to(actor).filter(pk=job_id).exists() else None


def _changed_job(viewer: Viewer, job_id: str, _rows: frozenset[str]) -> Rendered:
    """The job's row; on its own page the message alone is what makes the panels refresh."""
    jobs = list(with_row_parts(jobs_visible_to(actor_of(viewer)).filter(pk=job_id)))
    return Rendered(_row_fragments(viewer, jobs), nudge=bool(jobs))


def _changes_of_quotas(heard: Heard) -> Iterable[tuple[str, str]]:
    """A tenant's use and limits; what one borrows is another's to lend, so neighbours hear of it too."""
    return ((EVERY, MANY),) if heard.kind.startswith(QUOTA_KINDS) else ()


def _quota_sight(viewer: Viewer, tenant: str) -> Hashable | None:
    return sight_in(actor_of(viewer), Right.VIEW_QUOTAS, tenant)


def _changed_quotas(viewer: Viewer, tenant: str, _rows: frozenset[str]) -> Rendered:
    return Rendered(nudge=True)


TOPICS = (
    Topic("jobs", _changes_in_lists, _list_sight, _changed_rows, may_concern),
    Topic("job", _changes_of_job, _job_sight, _changed_job, may_concern),
    Topic("quotas", _changes_of_quotas, _quota_sight, _changed_quotas, may_concern),
)
