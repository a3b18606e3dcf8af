"""The frame of every page: who asks, what the rail shows, how a refusal looks. Views of all apps use it.

@page
def job_list(request: HttpRequest, actor: Actor) -> HttpResponse:
    return render_page(request, actor, "queues/jobs.html", {...}, Frame(here="queue"))
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import urlencode

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.common.errors import ApplicationError
from controlplane.common.log import latest_seq
from tenants.access import Actor, Right, may
from tenants.authentication import actor_of
from tenants.models import Tenant
from tenants.selectors import tenants_visible_to

P = ParamSpec("P")
View = Callable[..., HttpResponse]
ActorView = Callable[Concatenate[HttpRequest, Actor, P], HttpResponse]


@dataclass(frozen=True, slots=True)
class Frame:
    """What surrounds one page.

    here: key of the rail's item that this page belongs to. topics: what its socket subscribes to
    (docs/live.md), none for a page that never changes by itself. tenant: the tenant that the page
    is about; the rail shows its pages.
    """

    here: str
    tenant: Tenant | None = None
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RailItem:
    """A link of the rail. count: the live count shown beside it (docs/live.md)."""

    text: str | Promise
    href: str
    here: bool = False
    count: str = ""
    n: int | None = None


@dataclass(frozen=True, slots=True)
class RailGroup:
    """Links under a title; others: the tenants one may switch to."""

    title: str
    links: tuple[RailItem, ...]
    note: str = ""
    others: tuple[RailItem, ...] = ()


# Key, words, URL name, of pages that concern the whole platform and pages of one tenant.
EVERYWHERE = (
    ("now", gettext_lazy("Now"), "now"),
    ("queue", gettext_lazy("Queue"), "job-list"),
    ("submit", gettext_lazy("Submit a job"), "job-new"),
    ("plan", gettext_lazy("Plan"), "plan"),
    ("map", gettext_lazy("Map"), "map"),
    ("nodes", gettext_lazy("Nodes"), "node-list"),
    ("health", gettext_lazy("Health"), "health"),
    ("calendar", gettext_lazy("Calendar"), "calendar"),
    ("alerts", gettext_lazy("Alerts"), "alert-list"),
)
ON_PLATFORM = (
    ("clusters", gettext_lazy("Clusters"), "cluster-list", None),
    ("flavors", gettext_lazy("Flavors"), "flavor-list", None),
    ("presets", gettext_lazy("Presets"), "preset-list", None),
    ("tenants", gettext_lazy("Tenants"), "tenant-list", None),
    ("people", gettext_lazy("People"), "people", Right.MANAGE_USERS),
    ("platform-webhooks", gettext_lazy("Webhooks"), "platform-webhooks", Right.MANAGE_WEBHOOKS),
    ("audit", gettext_lazy("Audit"), "audit", Right.VIEW_AUDIT),
)
# Numbers beside items of the rail, by key: what apps above this one count for an actor. Each is one query, and a
# live count of the same name.
badges: dict[str, Callable[[Actor], int]] = {}
IN_TENANT = (
    ("quotas", gettext_lazy("Quotas"), "quotas", Right.VIEW_QUOTAS),
    ("queues", gettext_lazy("Queues"), "queue-list", Right.VIEW_QUOTAS),
    ("members", gettext_lazy("Members"), "member-list", Right.VIEW_MEMBERS),
    ("secrets", gettext_lazy("Secrets"), "secret-list", Right.VIEW_SECRETS),
    ("tokens", gettext_lazy("CI tokens"), "tenant-token-list", Right.MANAGE_TOKENS),
    ("webhooks", gettext_lazy("Webhooks"), "webhook-list", Right.MANAGE_WEBHOOKS),
)


def page(view: ActorView[P]) -> View:
    """A view for people who are signed in; it gets the actor, and its refusals become pages."""

    @wraps(view)
    def answer(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not request.user.is_authenticated:
            return _sign_in(request)
        actor = actor_of(request)
        # Before the view reads its rows: what happens while it does is then told by the socket.
        request.live_seq = latest_seq() if _is_whole_page(request) else 0  # type: ignore[attr-defined]
        try:
            return view(request, actor, *args, **kwargs)
        except ApplicationError as error:
            return refusal(request, error)

    return answer


def _is_whole_page(request: HttpRequest) -> bool:
    return request.method == "GET" and request.headers.get("HX-Request") != "true"


def _sign_in(request: HttpRequest) -> HttpResponse:
    there = redirect_to_login(request.get_full_path())
    if request.headers.get("HX-Request") != "true":
        return there
    # A fragment would be swapped for the login page: send the whole page there instead.
    return HttpResponse(status=204, headers={"HX-Redirect": there["Location"]})


def refusal(request: HttpRequest, error: ApplicationError) -> HttpResponse:
    """A refusal as a page, or as a toast where htmx asked for a fragment."""
    if request.headers.get("HX-Request") == "true":
        text = error.sentence
        said = json.dumps({"muster:say": {"text": text, "kind": "failed"}})
        return HttpResponse(status=error.status, headers={"HX-Trigger": said})
    template = {403: "403.html", 404: "404.html"}.get(error.status, "errors/refused.html")
    return render(request, template, {"error": error, "exception": error}, status=error.status)


def render_page(
    request: HttpRequest, actor: Actor, template: str, context: Mapping[str, Any], frame: Frame
) -> HttpResponse:
    """The page with rail, live topics and the event number that it is as new as."""
    tenant = frame.tenant or _usual_tenant(request, actor)
    shell: dict[str, Any] = {
        "actor": actor,
        "nav": _rail(actor, frame.here, tenant),
        "nav_user": _user_menu(),
        "user_role": actor.user.get_platform_role_display() if actor.user.platform_role else "",
        "live_topics": " ".join(_topics(frame)),
        "live_seq": getattr(request, "live_seq", 0),
        "tenant": tenant,
    }
    return render(request, template, shell | dict(context))


def _topics(frame: Frame) -> tuple[str, ...]:
    """What the page asked for, and the numbers of the rail; nothing for a page that never changes by itself."""
    return tuple(dict.fromkeys((*frame.topics, *badges))) if frame.topics else ()


def _usual_tenant(request: HttpRequest, actor: Actor) -> Tenant | None:
    """The tenant whose pages the rail shows when the page is about none: the last one visited."""
    mine = [member.slug for member in actor.memberships]
    wanted = request.COOKIES.get("tenant", "")
    if mine and wanted not in mine and not actor.sees_all_tenants:
        wanted = mine[0]
    visible = tenants_visible_to(actor)
    found = visible.filter(slug=wanted).first() if wanted else None
    return found or visible.filter(slug__in=mine).order_by("slug").first() or _any(actor)


def _any(actor: Actor) -> Tenant | None:
    return tenants_visible_to(actor).order_by("slug").first() if actor.sees_all_tenants else None


def _rail(actor: Actor, here: str, tenant: Tenant | None) -> list[RailGroup]:
    submits = any(member.role != "viewer" for member in actor.memberships)
    first = RailGroup(
        "",
        tuple(
            _item(actor, key, text, url, here)
            for key, text, url in EVERYWHERE
            if key != "submit" or submits
        ),
    )
    groups = [first]
    if actor.sees_all_tenants:
        groups.append(_platform(actor, here))
    if tenant is None:
        return groups
    role = actor.roles.get(tenant.pk)
    links = tuple(
        RailItem(text, reverse(url, args=[tenant.slug]), key == here)
        for key, text, url, right in IN_TENANT
        if may(actor, right, tenant)
    )
    if not may(actor, Right.VIEW_AUDIT) and may(actor, Right.VIEW_AUDIT, tenant):
        trail = f"{reverse('audit')}?{urlencode({'tenant': tenant.slug})}"
        links = (*links, RailItem(_("Audit"), trail, here == "audit"))
    note = str(role.label) if role else ""
    groups.insert(1, RailGroup(tenant.slug, links, note, _others(actor, tenant)))
    return groups


def _item(actor: Actor, key: str, text: str | Promise, url: str, here: str) -> RailItem:
    counted = badges.get(key)
    if counted is None:
        return RailItem(text, reverse(url), key == here)
    return RailItem(text, reverse(url), key == here, count=key, n=counted(actor))


def _platform(actor: Actor, here: str) -> RailGroup:
    """What is beyond tenants, for those who look after the whole."""
    links = tuple(
        RailItem(text, reverse(url), here == key)
        for key, text, url, right in ON_PLATFORM
        if right is None or may(actor, right)
    )
    return RailGroup(_("Platform"), links)


def _others(actor: Actor, tenant: Tenant) -> tuple[RailItem, ...]:
    slugs = [member.slug for member in actor.memberships if member.slug != tenant.slug]
    links = [RailItem(slug, reverse("quotas", args=[slug])) for slug in slugs]
    if actor.sees_all_tenants:
        links.append(RailItem(_("All tenants"), reverse("tenant-list")))
    return tuple(links)


def _user_menu() -> list[RailItem]:
    return [
        RailItem(_("Your tokens"), reverse("token-list")),
        RailItem(_("Your notices"), reverse("own-notices")),
    ]
