"""The whole job contract in one call: `read_job`. Pure. Called by `services.validation` for every door."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from queues.contract import names
from queues.contract.context import Context
from queues.contract.course import read_course
from queues.contract.places import read_places
from queues.contract.pods import read_pods
from queues.contract.reading import Reader
from queues.contract.roles import read_roles
from queues.specs import JobSpec, RoleSpec


def read_job(payload: Mapping[str, Any], context: Context) -> JobSpec | None:
    """The job that was sent. None when the offer is unknown; errors are in `context.errors` either way.

    The spec of a payload with errors is not to be used: values that were wrong are defaults in it.
    """
    job = Reader(payload, "", context.errors)
    job.required("name", "tenant", "queue")
    places = read_places(job, context)
    roles = read_roles(job, context)
    pods = read_pods(job, context, roles)
    course = read_course(job, context)
    name = job.text("name", longest=63, rule=names.dns_label)
    external_id = job.text("external_id", longest=200, rule=names.plain_line) or None
    decides = _read_decides(job, roles)
    job.finish()
    if context.offer is None:
        return None
    return JobSpec(
        name=name,
        tenant=context.offer.tenant,
        tenant_id=context.offer.tenant_id,
        queue=context.offer.queue,
        queue_id=context.offer.queue_id,
        cluster=context.offer.cluster,
        flavors=tuple(flavor.name for flavor in context.flavors),
        roles=roles,
        decides=decides,
        gpu_model=places.gpu_model,
        min_cuda=places.min_cuda,
        node_selector=places.node_selector,
        exclude_nodes=places.exclude_nodes,
        preset=places.preset,
        preset_id=places.preset_id,
        image_pull_secret=pods.image_pull_secret,
        shared_memory_mib=pods.shared_memory_mib,
        working_dir=pods.working_dir,
        env=pods.env,
        secret_env=pods.secret_env,
        volumes=pods.volumes,
        labels=pods.labels,
        annotations=pods.annotations,
        priority=course.priority,
        preemptible=course.preemptible,
        on_preemption=course.on_preemption,
        max_runtime_seconds=course.max_runtime_seconds,
        grace_seconds=course.grace_seconds,
        checkpoint=course.checkpoint,
        max_restarts=course.max_restarts,
        stall_timeout_seconds=course.stall_timeout_seconds,
        on_stall=course.on_stall,
        begin_at=course.begin_at,
        depends_on=course.depends_on,
        external_id=external_id,
        defaults=dict(context.defaults),
    )


def _read_decides(job: Reader, roles: tuple[RoleSpec, ...]) -> str:
    """The role whose end decides: the first one unless another is named."""
    named = job.text("decides", longest=63)
    present = [role.name for role in roles]
    if named and present and named not in present:
        job.fault(
            "decides",
            "unknown_role",
            _("must name one of the job's roles: {roles}").format(roles=", ".join(present)),
        )
    return named or (present[0] if present else "")
