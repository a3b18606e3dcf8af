"""The list of jobs: tabs, filters, pages; and what is done to several of them at once."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Q, QuerySet, prefetch_related_objects
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST, require_safe

from controlplane.common.errors import ApplicationError
from controlplane.common.looks import OUTCOMES, PHASES, REASONS
from controlplane.common.pages import Page, seek_page
from queues.lifecycle import ACTIVE_PHASES, Phase
from queues.models import Job
from queues.selectors.jobs import counts_by_phase, jobs_visible_to
from queues.services.jobs import cancel_job, hold_job, release_job, requeue_job
from queues.views.rows import job_rows, with_row_parts
from tenants.access import Actor, Right, may
from tenants.selectors import tenants_visible_to
from tenants.views.shell import Frame, page, render_page

MOST_AT_ONCE = 200
# As many rows as one page of a part: then nothing more is appended.
FULL = 50


@dataclass(frozen=True, slots=True)
class Tab:
    """A view of the list: which jobs, in which order. live: the live count beside its name."""

    key: str
    text: str | Promise
    chosen: Q
    order: tuple[str, ...]
    live: str = ""


TABS = (
    Tab("all", gettext_lazy("All"), Q(), ("-pk",)),
    Tab(
        "waiting",
        gettext_lazy("Waiting"),
        Q(phase__in=[Phase.PENDING, Phase.HELD]),
        ("-priority", "submitted_at", "pk"),
        "waiting",
    ),
    Tab("running", gettext_lazy("Running"), Q(phase__in=ACTIVE_PHASES), ("-pk",), "active"),
    Tab("finished", gettext_lazy("Finished"), Q(phase=Phase.FINISHED), ("-finished_at", "-pk")),
)
FILTERS = ("search", "phase", "reason", "tenant", "queue", "user", "mine")


@require_safe
@page
def job_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Jobs that the actor may see; only the list itself where htmx asks for it."""
    tab = next((t for t in TABS if t.key == request.GET.get("view")), TABS[0])
    filters = {key: request.GET.get(key, "").strip()[:200] for key in FILTERS}
    visible = jobs_visible_to(actor)
    matching = _matching(visible, actor, filters)
    jobs, pages = (
        _all_in_order(request, matching) if tab is TABS[0] else _one(request, matching, tab)
    )
    context = {
        "rows": job_rows(actor, jobs),
        "page": pages,
        "table_css": "" if _sees_several(actor) else "one-tenant",
        "view": tab.key,
        "filters": filters,
        "filtered": any(filters.values()),
        "may_submit": _may_submit(actor),
    }
    if request.headers.get("HX-Request") == "true":
        return render_page(request, actor, "queues/_jobs.html", context, Frame("queue"))
    counts = counts_by_phase(matching)
    context |= {
        "tabs": [_tab(request, t, tab, counts) for t in TABS],
        "choices": _choices(actor, filters),
        "api_href": _api_href(filters),
    }
    topic = f"jobs:{filters['tenant']}" if filters["tenant"] else "jobs"
    return render_page(
        request, actor, "queues/job_list.html", context, Frame("queue", topics=(topic,))
    )


def _one(request: HttpRequest, matching: QuerySet[Job], tab: Tab) -> tuple[list[Job], Page]:
    return seek_page(request, with_row_parts(matching.filter(tab.chosen)), tab.order)


def _all_in_order(request: HttpRequest, matching: QuerySet[Job]) -> tuple[list[Job], Page]:
    """What waits, then what runs, then what has ended: each sought by its own columns, `?part=` says which.

    A part that is short is followed by the next one's first page, so that a page has at most a hundred rows.
    """
    asked = request.GET.get("part", "")
    parts = [tab for tab in TABS if tab.key != "all"]
    start = next((n for n, tab in enumerate(parts) if tab.key == asked), 0)
    found: list[Job] = []
    pages = Page(said="", previous="", next="")
    for number, tab in enumerate(parts[start:]):
        asked_for = _part(request, tab.key, first=number > 0)
        chosen = with_row_parts(matching.filter(tab.chosen)).prefetch_related(None)
        rows, shown = seek_page(asked_for, chosen, tab.order)
        found += rows
        pages = replace(shown, previous=_from_start(request))
        if pages.next or len(found) >= FULL:
            break
    prefetch_related_objects(found, "roles")
    if not pages.next and tab is not parts[-1]:
        query = request.GET.copy()
        query.pop("cursor", None)
        query["part"] = parts[parts.index(tab) + 1].key
        pages = replace(pages, next=f"{request.path}?{query.urlencode()}")
    return found, pages


def _part(request: HttpRequest, key: str, *, first: bool) -> HttpRequest:
    """The request as if it asked for this part; for its first page where `first`."""
    same = copy(request)
    query = request.GET.copy()
    query["part"] = key
    if first:
        query.pop("cursor", None)
    same.GET = query  # type: ignore[assignment]  # a QueryDict like any other
    return same


def _from_start(request: HttpRequest) -> str:
    """The list from its start; empty where it is shown from there."""
    query = request.GET.copy()
    if not {"cursor", "part"} & query.keys():
        return ""
    query.pop("cursor", None)
    query.pop("part", None)
    return f"{request.path}?{query.urlencode()}"


def _matching(jobs: QuerySet[Job], actor: Actor, filters: Mapping[str, str]) -> QuerySet[Job]:
    """Jobs that the filters let through, whatever the tab."""
    for key, chosen in _TESTS.items():
        if filters[key]:
            jobs = jobs.filter(chosen(filters[key]))
    return jobs.filter(user_id=actor.user.pk) if filters["mine"] else jobs


def _state_is(value: str) -> Q:
    return Q(outcome=value) if value in OUTCOMES else Q(phase=value)


def _looks_like(value: str) -> Q:
    """Part of the name, or how an id or an external id begins or ends."""
    ids = Q(pk__istartswith=value) | Q(pk__iendswith=value) | Q(external_id=value)
    return Q(name__icontains=value) | ids


_TESTS: Mapping[str, Callable[[str], Q]] = {
    "search": _looks_like,
    "phase": _state_is,
    "reason": lambda value: Q(reason_code=value, phase=Phase.PENDING),
    "tenant": lambda value: Q(tenant__slug=value),
    "queue": lambda value: Q(queue__name=value),
    "user": lambda value: Q(user__username=value),
}


def _tab(request: HttpRequest, tab: Tab, current: Tab, counts: Mapping[str, int]) -> dict[str, Any]:
    query = request.GET.copy()
    query.pop("cursor", None)
    query.pop("part", None)
    query["view"] = tab.key
    # Live counts are those of the topic, so they stand only where no filter narrows the list.
    narrowed = any(request.GET.get(key) for key in FILTERS if key != "tenant")
    return {
        "text": tab.text,
        "href": f"?{query.urlencode()}",
        "here": tab == current,
        "count": counts[tab.live] if tab.live else None,
        "live": "" if narrowed else tab.live,
    }


def _choices(actor: Actor, filters: Mapping[str, str]) -> list[dict[str, Any]]:
    states = [(k, look.word) for k, look in PHASES.items() if k != Phase.FINISHED]
    states += [(k, look.word) for k, look in OUTCOMES.items()]
    reasons = [(key, look.word) for key, look in REASONS.items()]
    shown = [
        {"name": "phase", "label": _("Any state"), "options": states},
        {"name": "reason", "label": _("Any reason"), "options": reasons},
    ]
    if _sees_several(actor):
        slugs = tenants_visible_to(actor).order_by("slug").values_list("slug", flat=True)[:200]
        shown.append(
            {"name": "tenant", "label": _("Any tenant"), "options": [(s, s) for s in slugs]}
        )
    return [choice | {"value": filters[str(choice["name"])]} for choice in shown]


def _sees_several(actor: Actor) -> bool:
    return actor.sees_all_tenants or len(actor.memberships) > 1


def _may_submit(actor: Actor) -> bool:
    return any(member.role != "viewer" for member in actor.memberships) or may(
        actor, Right.MANAGE_TENANTS
    )


def _api_href(filters: Mapping[str, str]) -> str:
    query = {key: value for key, value in filters.items() if value and key != "mine"}
    return f"/api/v1/jobs/?{urlencode(query)}" if query else "/api/v1/jobs/"


ACTIONS: Mapping[str, Callable[..., Any]] = {
    "cancel": cancel_job,
    "hold": hold_job,
    "release": release_job,
    "requeue": requeue_job,
}


@require_POST
@page
def act_on_jobs(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Do one thing to each ticked job; says how many it was done to, and why not to the others."""
    act = ACTIONS.get(request.POST.get("action", ""))
    wanted = request.POST.getlist("job")[:MOST_AT_ONCE]
    done, refused = 0, []
    for job_id in wanted:
        if act is None:
            break
        try:
            act(actor, job_id, "", timezone.now())
            done += 1
        except ApplicationError as error:
            refused.append(f"{job_id}: {error.detail}")
    _tell(request, done, refused)
    return redirect(_back(request))


def _tell(request: HttpRequest, done: int, refused: Sequence[str]) -> None:
    if done:
        messages.success(
            request, ngettext("Done to {n} job.", "Done to {n} jobs.", done).format(n=done)
        )
    for line in refused[:5]:
        messages.error(request, line)


def _back(request: HttpRequest) -> str:
    there = request.POST.get("next", "")
    ours = url_has_allowed_host_and_scheme(there, allowed_hosts={request.get_host()})
    return there if ours else reverse("job-list")
