"""Roles: how many replicas, how large, how close together (CONTRACT, "A job, as sent"). Pure. Called by `jobs`."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from queues.contract import names
from queues.contract.context import Context
from queues.contract.reading import Reader
from queues.contract.topology import read_topology
from queues.quantities import QuantityError, cpu_millis, cpu_text, memory_mib, memory_text
from queues.specs import MAIN_ROLE, RoleSpec

MOST_ROLES = 16
MOST_REPLICAS = 10_000
MOST_GPUS_PER_REPLICA = 1024
MOST_CPU_MILLIS = 10_000_000
MOST_MEMORY_MIB = 104_857_600
# A replica without GPUs: a launcher, a reader of data.
SMALL_CPU_MILLIS, SMALL_MEMORY_MIB = 2_000, 4_096
# Of a node's CPU and memory per GPU: the rest is for what runs on every node.
SHARE_OF_NODE_PERCENT = 90

PER_REPLICA = (
    "replicas",
    "min_replicas",
    "gpus_per_replica",
    "cpu_per_replica",
    "memory_per_replica",
    "command",
    "args",
    "topology",
    "tensor_parallel",
)


@dataclass(frozen=True, slots=True)
class Size:
    """CPU and memory of a replica: thousandths of a core, MiB."""

    cpu_millis: int
    memory_mib: int


def read_roles(job: Reader, context: Context) -> tuple[RoleSpec, ...]:
    """The job's roles: those in `roles[]`, or the sole role `main` made of the per-replica fields."""
    if not job.has("roles"):
        job.take("roles")
        job.required("gpus_per_replica", "image")
        return (_read_role(job, context, MAIN_ROLE, sole=True, image=""),)
    for key in PER_REPLICA:
        if job.take(key) is not None:
            job.fault(key, "not_with_roles", _("belongs into the entries of roles"))
    image = job.text("image", longest=512, rule=names.image)
    readers = job.objects("roles", most=MOST_ROLES)
    roles = tuple(_read_named_role(reader, context, image) for reader in readers)
    _check_together(job, roles)
    return roles


def _read_named_role(reader: Reader, context: Context, image: str) -> RoleSpec:
    reader.required("name", "gpus_per_replica")
    if not image:
        reader.required("image")
    name = reader.text("name", longest=63, rule=names.role_name)
    role = _read_role(reader, context, name, sole=False, image=image)
    reader.finish()
    return role


def _check_together(job: Reader, roles: tuple[RoleSpec, ...]) -> None:
    if not roles:
        if job.sent.get("roles") == []:
            job.fault("roles", "too_few", _("must have at least one role"))
        return
    seen: set[str] = set()
    for index, role in enumerate(roles):
        if role.name and role.name in seen:
            job.errors.add(
                f"{job.at('roles')}/{index}/name", "duplicate", _("names two roles; choose another")
            )
        seen.add(role.name)
    asked = [role.get("gpus_per_replica") for role in job.sent["roles"] if isinstance(role, dict)]
    if asked and all(gpus == 0 for gpus in asked):
        job.fault("roles", "no_gpus", _("must ask for at least one GPU in one of the roles"))
    if sum(role.replicas for role in roles) > MOST_REPLICAS:
        job.fault(
            "roles",
            "too_large",
            _("must have at most {most} replicas together").format(most=MOST_REPLICAS),
        )


def _read_role(reader: Reader, context: Context, name: str, *, sole: bool, image: str) -> RoleSpec:
    gpus = _read_gpus(reader, context, 1 if sole else 0)
    replicas = _read_replicas(reader, context, "replicas", 1, "contract")
    min_replicas = _read_min_replicas(reader, context, replicas)
    size = _read_size(reader, context, gpus)
    return RoleSpec(
        name=name,
        replicas=replicas,
        min_replicas=min_replicas,
        gpus_per_replica=gpus,
        cpu_millis_per_replica=size.cpu_millis,
        memory_mib_per_replica=size.memory_mib,
        image=reader.text("image", image, longest=512, rule=names.image),
        command=reader.texts("command", most=1000, longest=131_072, empty_ok=True),
        args=reader.texts("args", most=1000, longest=131_072, empty_ok=True),
        # The sole role's environment is the job's own; that of one among several is added to it.
        env={} if sole else read_env(reader),
        topology=read_topology(reader, context, replicas, min_replicas),
        tensor_parallel=_read_tensor_parallel(reader, context, gpus, replicas, min_replicas),
    )


def read_env(reader: Reader) -> dict[str, str]:
    """Environment variables with the names that a job may set."""
    return reader.pairs("env", most=500, key_rule=names.env_name, longest=131_072)


def _read_replicas(reader: Reader, context: Context, key: str, default: int, source: str) -> int:
    if not reader.has(key):
        context.note_default(reader.at(key), source)
    return reader.whole(key, default, least=1, most=MOST_REPLICAS)


def _read_min_replicas(reader: Reader, context: Context, replicas: int) -> int:
    least = _read_replicas(reader, context, "min_replicas", replicas, "role")
    if least > replicas:
        reader.fault(
            "min_replicas",
            "too_large",
            _("must be at most replicas, which is {replicas}").format(replicas=replicas),
        )
        return replicas
    return least


def _read_gpus(reader: Reader, context: Context, least: int) -> int:
    gpus = reader.whole("gpus_per_replica", least, least=least, most=MOST_GPUS_PER_REPLICA)
    largest = max(context.flavors, key=lambda flavor: flavor.gpus_per_node, default=None)
    # 0: no node of some candidate was seen yet, so nobody knows what fits.
    if largest is None or any(flavor.gpus_per_node == 0 for flavor in context.flavors):
        return gpus
    if gpus > largest.gpus_per_node:
        reader.fault(
            "gpus_per_replica",
            "too_large",
            _(
                "must be at most {most}: no node of {flavor} has more GPUs; ask for more replicas instead"
            ).format(most=largest.gpus_per_node, flavor=largest.name),
        )
    return gpus


def _read_size(reader: Reader, context: Context, gpus: int) -> Size:
    default = default_size(context, gpus)
    for key in ("cpu_per_replica", "memory_per_replica"):
        if not reader.has(key):
            context.note_default(reader.at(key), "flavor" if gpus else "contract")
    cpu = _read_quantity(reader, "cpu_per_replica")
    memory = _read_quantity(reader, "memory_per_replica")
    size = Size(
        default.cpu_millis if cpu is None else cpu, default.memory_mib if memory is None else memory
    )
    _check_fits_node(reader, context, cpu, memory)
    return size


def default_size(context: Context, gpus: int) -> Size:
    """What a replica gets when its job does not say: what every candidate flavor can give for its GPUs."""
    if not gpus or not context.flavors:
        return Size(SMALL_CPU_MILLIS, SMALL_MEMORY_MIB)
    cpu = [
        _share(f.default_cpu_millis_per_gpu, f.cpu_millis_per_node, gpus, f.gpus_per_node)
        for f in context.flavors
    ]
    memory = [
        _share(f.default_memory_mib_per_gpu, f.memory_mib_per_node, gpus, f.gpus_per_node)
        for f in context.flavors
    ]
    return Size(max(min(cpu), 1), max(min(memory), 1))


def _share(per_gpu: int, of_node: int, gpus: int, gpus_of_node: int) -> int:
    """The flavor's default, at most the replica's share of a node; in whole units of what `per_gpu` counts."""
    wanted = per_gpu * gpus
    if not of_node or not gpus_of_node:
        return wanted
    return min(wanted, of_node * SHARE_OF_NODE_PERCENT * gpus // (gpus_of_node * 100))


def _read_quantity(reader: Reader, key: str) -> int | None:
    """CPU in thousandths of a core or memory in MiB; a bare number is read as Kubernetes reads it."""
    value = reader.take(key)
    if value is None:
        return None
    is_cpu = key == "cpu_per_replica"
    example = "8, 500m" if is_cpu else "64Gi, 512Mi"
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise QuantityError(str(value))
        amount = cpu_millis(str(value)) if is_cpu else memory_mib(str(value))
    except QuantityError:
        reader.fault(
            key,
            "invalid_quantity",
            _("must be a Kubernetes quantity, such as {example}").format(example=example),
        )
        return None
    most = MOST_CPU_MILLIS if is_cpu else MOST_MEMORY_MIB
    if not 1 <= amount <= most:
        shown = cpu_text(most) if is_cpu else memory_text(most)
        reader.fault(
            key, "out_of_range", _("must be more than 0 and at most {most}").format(most=shown)
        )
        return None
    return amount


def _check_fits_node(reader: Reader, context: Context, cpu: int | None, memory: int | None) -> None:
    for key, asked, most, text in (
        ("cpu_per_replica", cpu, [f.cpu_millis_per_node for f in context.flavors], cpu_text),
        (
            "memory_per_replica",
            memory,
            [f.memory_mib_per_node for f in context.flavors],
            memory_text,
        ),
    ):
        if asked is not None and most and all(most) and asked > max(most):
            reader.fault(
                key,
                "too_large",
                _("must be at most {most}: no node that the queue may use has more").format(
                    most=text(max(most))
                ),
            )


def _read_tensor_parallel(
    reader: Reader, context: Context, gpus: int, replicas: int, min_replicas: int
) -> int:
    size = reader.whole("tensor_parallel", 1, least=1, most=MOST_GPUS_PER_REPLICA)
    if size == 1:
        return size
    fault = _tensor_parallel_fault(context, size, gpus, replicas, min_replicas)
    if fault:
        reader.fault("tensor_parallel", "invalid_tensor_parallel", fault)
    return size


def _tensor_parallel_fault(
    context: Context, size: int, gpus: int, replicas: int, min_replicas: int
) -> str:
    """What breaks the rule that a tensor-parallel group never leaves an NVLink domain; empty when it holds."""
    if gpus == 0:
        return _("must be 1: the role has no GPUs")
    domain = max((flavor.gpus_per_nvlink_domain for flavor in context.flavors), default=size)
    if size > domain:
        return _("must be at most {domain}, the GPUs of one NVLink domain of {flavors}").format(
            domain=domain, flavors=", ".join(flavor.name for flavor in context.flavors)
        )
    if gpus % size and size % gpus:
        return _("must divide gpus_per_replica, which is {gpus}, or be a multiple of it").format(
            gpus=gpus
        )
    for key, count in (("replicas", replicas), ("min_replicas", min_replicas)):
        if count * gpus % size:
            return _("must divide the role's {total} GPUs ({key} × gpus_per_replica)").format(
                total=count * gpus, key=key
            )
    return ""
