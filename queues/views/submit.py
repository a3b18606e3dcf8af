"""The submit form's page. The live verdict beside it is a fragment of `scheduler.views.verdict`."""

import json
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from controlplane.common.errors import ApplicationError
from queues.forms.folds import limit_help, priority_help, sections
from queues.forms.submit import SubmitForm, initial_from_job
from queues.models import Queue
from queues.quantities import cpu_text, memory_text
from queues.selectors.answers import as_sent
from queues.selectors.jobs import job_of, jobs_visible_to
from queues.selectors.offers import offer_of
from queues.services.jobs import submit_job
from queues.services.validation import validate_job
from queues.specs import QueueOffer
from tenants.access import Actor, Right, may
from tenants.selectors import visible_tenants
from tenants.views.shell import Frame, page, render_page

MOST_QUEUES = 500


@require_http_methods(["GET", "HEAD", "POST"])
@page
def submit_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form; on POST a job, or the form again with each error at its field."""
    queues = queues_open_to(actor)
    form, offer = bound_form(request, actor, queues)
    if request.method == "POST" and form.is_valid():
        job_id = _submitted(request, actor, form)
        if job_id:
            return redirect("job", job_id)
    context = {
        "form": form,
        "offer": offer,
        "sections": [(s, s.is_open(form), [form[n] for n in s.names]) for s in sections(offer)],
        "limit_origin": limit_help(offer),
        "priority_origin": priority_help(offer),
        "queues": queues,
        "fresh": "no" if form.is_bound or "from" in request.GET else "yes",
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "queues/_submit_more.html", context)
    return render_page(request, actor, "queues/submit.html", context, Frame("submit"))


def queues_open_to(actor: Actor) -> list[Queue]:
    """Queues that take jobs of this actor, the usual one first."""
    rows = Queue.objects.filter(visible_tenants(actor)).exclude(state="closed")
    found = rows.select_related("tenant", "cluster").order_by("tenant__slug", "name")
    return [q for q in found[:MOST_QUEUES] if may(actor, Right.SUBMIT_JOBS, q.tenant)]


def bound_form(
    request: HttpRequest, actor: Actor, queues: list[Queue]
) -> tuple[SubmitForm, QueueOffer | None]:
    """The form as the request fills it, with what the chosen queue offers."""
    initial = _initial(request, actor)
    sent = request.POST if request.method == "POST" else None
    wanted = (sent or request.GET).get("queue", "") or str(initial.get("queue", ""))
    wanted = wanted or _last_used(actor)
    queue = _chosen(queues, wanted, request.GET.get("tenant", ""))
    offer = offer_of(actor, queue.tenant, queue) if queue else None
    choices = [(_key(q), f"{q.tenant.slug} / {q.name}") for q in queues]
    if queue is not None:
        initial["queue"] = _key(queue)
    return SubmitForm(sent, queues=choices, offer=offer, initial=initial), offer


def _initial(request: HttpRequest, actor: Actor) -> dict[str, Any]:
    """What a clone starts from, else what the address names."""
    cloned = request.GET.get("from", "")
    if cloned:
        job = job_of(actor, cloned)
        sent = _consistent(as_sent(job) | _changed(request))
        return initial_from_job(_without_usual(sent, offer_of(actor, job.tenant, job.queue)))
    named = {
        key: request.GET[key] for key in ("image", "command", "gpus", "name") if key in request.GET
    }
    return {"gpus": 8, "preemptible": True} | named


def _without_usual(job: dict[str, Any], offer: QueueOffer) -> dict[str, Any]:
    """The CPU and memory that the queue's flavor gives by itself are left to it: they follow the number of GPUs."""
    each = job.get("gpus_per_replica") or 0
    usual = {
        (
            cpu_text(f.default_cpu_millis_per_gpu * each),
            memory_text(f.default_memory_mib_per_gpu * each),
        )
        for f in offer.flavors
    }
    if (job.get("cpu_per_replica"), job.get("memory_per_replica")) not in usual:
        return job
    return job | {"cpu_per_replica": None, "memory_per_replica": None}


# What the planner tries on a waiting job; the job's page links each trial to the form.
TRIED = frozenset(
    {
        *("replicas", "min_replicas", "topology", "max_runtime_seconds", "gpu_model", "priority"),
        *("min_cuda", "node_selector", "exclude_nodes", "preemptible", "checkpoint"),
    }
)


def _consistent(job: dict[str, Any]) -> dict[str, Any]:
    """With fewer replicas than the least that were asked for, fewer are the least."""
    least, replicas = job.get("min_replicas"), job.get("replicas")
    return job | {"min_replicas": min(least, replicas)} if least and replicas else job


def _changed(request: HttpRequest) -> dict[str, Any]:
    """`?change={"replicas": 4}`: what differs from the job that is cloned; nonsense is left out."""
    try:
        sent = json.loads(request.GET.get("change", "{}"))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(sent, dict):
        return {}
    return {key: value for key, value in sent.items() if _is_sound(key, value)}


def _is_sound(key: str, value: Any) -> bool:
    """Whether a clone's form can show it: the services check it when it is sent."""
    kinds: dict[str, tuple[type, ...]] = {
        "topology": (dict,),
        "checkpoint": (dict,),
        "node_selector": (dict,),
        "exclude_nodes": (list,),
        "gpu_model": (list,),
        "min_cuda": (str,),
        "preemptible": (bool,),
    }
    return key in TRIED and (value is None or isinstance(value, kinds.get(key, (int,))))


def _last_used(actor: Actor) -> str:
    """The queue that the actor submitted to last."""
    rows = jobs_visible_to(actor).filter(user_id=actor.user.pk).order_by("-pk")
    last = rows.values_list("tenant__slug", "queue__name").first()
    return "/".join(last) if last else ""


def _key(queue: Queue) -> str:
    return f"{queue.tenant.slug}/{queue.name}"


def _chosen(queues: list[Queue], wanted: str, tenant: str) -> Queue | None:
    exact = next((q for q in queues if _key(q) == wanted), None)
    of_tenant = next((q for q in queues if q.tenant.slug == tenant), None)
    if tenant and exact and exact.tenant.slug != tenant:
        exact = None
    return exact or of_tenant or (queues[0] if queues else None)


def _submitted(request: HttpRequest, actor: Actor, form: SubmitForm) -> str:
    """The id of the stored job; empty when it was refused, with the reasons in the form."""
    now = timezone.now()
    try:
        job = submit_job(actor, validate_job(actor, form.payload(), now), now)
    except ApplicationError as error:
        form.add_refusal(error)
        return ""
    messages.success(request, _("{name} is submitted.").format(name=job.name))
    return job.pk
