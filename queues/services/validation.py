"""The one place in which jobs are validated: for the form, the API, batches and simulations.

`validate_job` and `validate_batch` read rows (what the queue offers, the jobs that are depended on); the contract
itself is in `queues.contract`. All errors come at once, each with a JSON Pointer; nothing is ever changed here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from controlplane.common.errors import (
    ApplicationError,
    ErrorCollector,
    FieldError,
    InvalidError,
)
from queues.contract.context import Context
from queues.contract.jobs import read_job
from queues.contract.places import SHARING_NOT_ENABLED
from queues.contract.reading import listed
from queues.models import Job
from queues.selectors.offers import Offers, no_such_tenant, queue_names
from queues.specs import DependencySpec, JobSpec, QueueOffer
from tenants.access import Actor

MOST_JOBS_IN_A_BATCH = 500


@dataclass(slots=True)
class BatchMember:
    """One job of a batch: what became of reading it. `spec` is None exactly when `problem` is set."""

    index: int
    spec: JobSpec | None = None
    problem: ApplicationError | None = None
    errors: list[FieldError] = field(default_factory=list)


def validate_job(actor: Actor, payload: Mapping[str, Any], now: datetime) -> JobSpec:
    """The job that was sent, with every default filled in.

    Raises InvalidError with all errors, ForbiddenError for a tenant that the actor may only look at.
    """
    spec, errors = _read(Offers(actor), payload, now)
    if spec is not None:
        errors += _dependency_errors(spec, _known_jobs([spec]), frozenset())
    if errors or spec is None:
        raise invalid(errors)
    return spec


def validate_batch(actor: Actor, payloads: Sequence[Any], now: datetime) -> list[BatchMember]:
    """Read every job of a batch, those among them that depend on each other too.

    A job that depends on a member that is refused is refused as well; a circle is an error on each member.
    """
    offers = Offers(actor)
    members = [_read_member(offers, index, sent, now) for index, sent in enumerate(payloads)]
    specs = [member.spec for member in members if member.spec is not None]
    known = _known_jobs(specs)
    inside = _names_inside(members)
    circles = _in_a_circle(members, inside)
    for member in members:
        if member.spec is not None:
            names = frozenset(name for tenant, name in inside if tenant == member.spec.tenant_id)
            member.errors += _dependency_errors(member.spec, known, names)
            if member.index in circles:
                member.errors.append(_circle(circles[member.index]))
        if member.errors:
            member.problem, member.spec = invalid(member.errors), None
    _refuse_those_that_need_refused(members, inside)
    return members


def invalid(errors: Sequence[FieldError]) -> InvalidError:
    """All errors as one; the sole error's own code where the contract names it."""
    first = errors[0]
    more = len(errors) - 1
    detail = f"{first.pointer}: {first.message}" if first.pointer else first.message
    if more:
        detail = _("{detail} (and {more} more)").format(detail=detail, more=more)
    sole = first.code if not more and first.code == SHARING_NOT_ENABLED else ""
    return InvalidError(detail, code=sole, errors=tuple(errors))


def _read(
    offers: Offers, payload: Mapping[str, Any], now: datetime
) -> tuple[JobSpec | None, list[FieldError]]:
    errors = ErrorCollector()
    offer = _find_offer(offers, payload, errors)
    context = Context(now, offer, tuple(settings.METADATA_PREFIXES), errors)
    spec = read_job(payload, context)
    return spec, errors.found


def _find_offer(
    offers: Offers, payload: Mapping[str, Any], errors: ErrorCollector
) -> QueueOffer | None:
    """What the named queue offers; notes why there is none. Missing keys are `read_job`'s to report."""
    names = {key: payload.get(key) for key in ("tenant", "queue")}
    for key, value in names.items():
        if value is not None and not isinstance(value, str):
            errors.add(f"/{key}", "not_a_string", _("must be a string; put it in quotes"))
    if not isinstance(names["tenant"], str):
        return None
    slug = names["tenant"]
    tenant = offers.tenant(slug) if _may_be_a_name(slug) else None
    if tenant is None:
        errors.add("/tenant", "unknown_tenant", no_such_tenant(slug))
        return None
    if not isinstance(names["queue"], str):
        return None
    queue = names["queue"]
    offer = offers.offer(tenant, queue) if _may_be_a_name(queue) else None
    if offer is None:
        shown = listed(queue_names(tenant)) or "–"
        errors.add(
            "/queue",
            "unknown_queue",
            _("is not a queue of tenant {tenant}; its queues are {queues}").format(
                tenant=tenant.slug, queues=shown
            ),
        )
    elif offer.state == "closed":
        errors.add("/queue", "queue_closed", _("is closed: it takes no jobs"))
    return offer


def _may_be_a_name(text: str) -> bool:
    """Whether it is worth asking the database, which refuses some characters."""
    return 0 < len(text) <= 63 and text.isascii() and text.isprintable()


def _read_member(offers: Offers, index: int, sent: Any, now: datetime) -> BatchMember:
    if not isinstance(sent, dict):
        fault = FieldError("", "not_an_object", _("must be an object: a job"))
        return BatchMember(index, errors=[fault])
    try:
        spec, errors = _read(offers, sent, now)
    except ApplicationError as refusal:
        return BatchMember(index, problem=refusal)
    return BatchMember(index, spec=spec, errors=errors)


# --- dependencies ---

KnownJobs = Mapping[tuple[int, str], str]


def _known_jobs(specs: Iterable[JobSpec]) -> KnownJobs:
    """(tenant id, job id or external id) → job id, for all jobs that the specs depend on. At most two queries."""
    wanted = [(spec.tenant_id, needed) for spec in specs for needed in spec.depends_on]
    if not wanted:
        return {}
    tenants = {tenant_id for tenant_id, _needed in wanted}
    ids = {needed.job for _tenant, needed in wanted if needed.job}
    names = {needed.external_id for _tenant, needed in wanted if needed.external_id}
    found: dict[tuple[int, str], str] = {}
    if ids:
        rows = Job.objects.filter(tenant_id__in=tenants, pk__in=ids)
        found |= {(tenant, pk): pk for tenant, pk in rows.values_list("tenant_id", "pk")}
    if names:
        rows = Job.objects.filter(tenant_id__in=tenants, external_id__in=names)
        for tenant, name, pk in rows.values_list("tenant_id", "external_id", "pk"):
            found[tenant, f"external:{name}"] = pk
    return found


def dependency_key(tenant_id: int, needed: DependencySpec) -> tuple[int, str]:
    """The key of a dependency in `_known_jobs`: an external id cannot be mistaken for an id."""
    return tenant_id, needed.job or f"external:{needed.external_id}"


def _dependency_errors(spec: JobSpec, known: KnownJobs, inside: frozenset[str]) -> list[FieldError]:
    """One error for each dependency on a job that is neither stored nor in the same batch."""
    errors = []
    seen: set[tuple[int, str]] = set()
    for index, needed in enumerate(spec.depends_on):
        key = dependency_key(spec.tenant_id, needed)
        pointer = f"/depends_on/{index}"
        named = f"{pointer}/{'job' if needed.job else 'external_id'}"
        if bool(needed.job) == bool(needed.external_id):
            continue  # reported when it was read
        if key in seen:
            errors.append(FieldError(pointer, "duplicate", _("names the same job again")))
        elif needed.external_id and needed.external_id == spec.external_id:
            errors.append(FieldError(named, "dependency_circle", _("is the job itself")))
        elif key not in known and needed.external_id not in inside:
            errors.append(
                FieldError(
                    named,
                    "unknown_job",
                    _("is not a job of tenant {tenant}").format(tenant=spec.tenant),
                )
            )
        seen.add(key)
    return errors


def _names_inside(members: Sequence[BatchMember]) -> dict[tuple[int, str], int]:
    """(tenant id, external id) → index of the first member of that name."""
    inside: dict[tuple[int, str], int] = {}
    for member in members:
        if member.spec is not None and member.spec.external_id:
            inside.setdefault((member.spec.tenant_id, member.spec.external_id), member.index)
    return inside


def _needs(member: BatchMember, inside: Mapping[tuple[int, str], int]) -> list[int]:
    """Indices of the members that a member depends on."""
    if member.spec is None:
        return []
    keys = [
        (member.spec.tenant_id, needed.external_id)
        for needed in member.spec.depends_on
        if needed.external_id
    ]
    return [inside[key] for key in keys if key in inside]


def _in_a_circle(
    members: Sequence[BatchMember], inside: Mapping[tuple[int, str], int]
) -> dict[int, list[str]]:
    """Index → the external ids of the circle, for every member that lies on one.

    A member lies on a circle when it can reach itself: its strongly connected component has several members.
    Without recursion, since a chain may have 500 links. Self-reference is reported elsewhere.
    """
    edges = {m.index: [n for n in _needs(m, inside) if n != m.index] for m in members}
    found: dict[int, list[str]] = {}
    for component in _components(edges):
        if len(component) > 1:
            names = [_external_id(members[index]) for index in sorted(component)]
            found |= dict.fromkeys(component, names)
    return found


def _external_id(member: BatchMember) -> str:
    return (member.spec.external_id or "") if member.spec else ""


def _components(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Strongly connected components by two passes of depth-first search (Kosaraju)."""
    back: dict[int, list[int]] = {index: [] for index in edges}
    for index, ends in edges.items():
        for end in ends:
            back[end].append(index)
    order: list[int] = []
    seen: set[int] = set()
    for start in edges:
        order += _finished_in_order(start, edges, seen)
    components = []
    seen = set()
    for start in reversed(order):
        component = _finished_in_order(start, back, seen)
        if component:
            components.append(component)
    return components


def _finished_in_order(start: int, edges: Mapping[int, Sequence[int]], seen: set[int]) -> list[int]:
    """Nodes not yet seen that `start` reaches, in the order in which the search leaves them."""
    if start in seen:
        return []
    seen.add(start)
    finished: list[int] = []
    path = [(start, iter(edges[start]))]
    while path:
        index, ends = path[-1]
        onward = next((end for end in ends if end not in seen), None)
        if onward is None:
            finished.append(index)
            path.pop()
        else:
            seen.add(onward)
            path.append((onward, iter(edges[onward])))
    return finished


def _circle(names: Sequence[str]) -> FieldError:
    return FieldError(
        "/depends_on",
        "dependency_circle",
        _("is part of a circle: {names} wait for each other").format(names=listed(names)),
    )


def _refuse_those_that_need_refused(
    members: Sequence[BatchMember], inside: Mapping[tuple[int, str], int]
) -> None:
    """Walk from refused members to those that depend on them, until nothing changes."""
    waiting_for: dict[int, list[int]] = {}
    for member in members:
        for needed in _needs(member, inside):
            waiting_for.setdefault(needed, []).append(member.index)
    left = [member.index for member in members if member.spec is None]
    while left:
        for index in waiting_for.get(left.pop(), []):
            member = members[index]
            if member.spec is not None:
                member.problem, member.spec = invalid([_needs_refused()]), None
                left.append(index)


def _needs_refused() -> FieldError:
    return FieldError(
        "/depends_on",
        "dependency_refused",
        _("depends on a job of this batch that was refused"),
    )
