"""What a job's pods share: environment, secrets, volumes, shared memory, labels. Pure. Called by `jobs`."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from queues.contract import names
from queues.contract.context import Context
from queues.contract.reading import Reader, step
from queues.contract.roles import read_env
from queues.quantities import memory_text
from queues.specs import RoleSpec, VolumeSpec

MOST_ENV_BYTES = 262_144
MOST_ANNOTATION_BYTES = 131_072


@dataclass(frozen=True, slots=True)
class Pods:
    """The part of a job that every one of its pods gets."""

    image_pull_secret: str
    shared_memory_mib: int | None
    working_dir: str
    env: dict[str, str]
    secret_env: dict[str, str]
    volumes: tuple[VolumeSpec, ...]
    labels: dict[str, str]
    annotations: dict[str, str]


def read_pods(job: Reader, context: Context, roles: tuple[RoleSpec, ...]) -> Pods:
    """Read them all; `roles` are needed for the memory that /dev/shm is part of."""
    env = read_env(job)
    _check_bytes(job, "env", env, MOST_ENV_BYTES)
    annotations = job.pairs(
        "annotations", most=64, key_rule=names.allowed_key(context.prefixes), longest=65_536
    )
    _check_bytes(job, "annotations", annotations, MOST_ANNOTATION_BYTES)
    return Pods(
        image_pull_secret=_read_pull_secret(job, context),
        shared_memory_mib=_read_shared_memory(job, roles),
        working_dir=job.text("working_dir", rule=names.absolute_path),
        env=env,
        secret_env=_read_secret_env(job, context, env),
        volumes=_read_volumes(job),
        labels=job.pairs(
            "labels",
            most=32,
            key_rule=names.allowed_key(context.prefixes),
            value_rule=names.label_value,
        ),
        annotations=annotations,
    )


def _check_bytes(job: Reader, key: str, pairs: dict[str, str], most: int) -> None:
    used = sum(len(name.encode()) + len(value.encode()) for name, value in pairs.items())
    if used > most:
        job.fault(
            key,
            "too_long",
            _("must have at most {most} bytes in all, has {used}").format(most=most, used=used),
        )


def _read_pull_secret(job: Reader, context: Context) -> str:
    name = job.text("image_pull_secret", longest=63)
    if name and context.offer is not None and name not in context.offer.pull_secrets:
        job.fault(
            "image_pull_secret",
            "unknown_secret",
            _("names no image pull secret of tenant {tenant}").format(tenant=context.offer.tenant),
        )
    return name


def _read_shared_memory(job: Reader, roles: tuple[RoleSpec, ...]) -> int | None:
    asked = job.optional_whole("shared_memory_mib", least=1)
    least = min((role.memory_mib_per_replica for role in roles), default=None)
    if asked is not None and least is not None and asked > least:
        job.fault(
            "shared_memory_mib",
            "too_large",
            _("must be at most memory_per_replica, which it is part of: {memory}").format(
                memory=memory_text(least)
            ),
        )
    return asked


def _read_secret_env(job: Reader, context: Context, env: dict[str, str]) -> dict[str, str]:
    found = job.pairs("secret_env", most=100, key_rule=names.env_name, longest=63)
    for name, secret in found.items():
        pointer = f"{job.at('secret_env')}{step(name)}"
        if context.offer is not None and secret not in context.offer.secrets:
            job.errors.add(
                pointer,
                "unknown_secret",
                _("names no secret of tenant {tenant}").format(tenant=context.offer.tenant),
            )
        if name in env:
            job.errors.add(pointer, "duplicate", _("stands in env too; keep one of them"))
    return found


def _read_volumes(job: Reader) -> tuple[VolumeSpec, ...]:
    volumes = []
    seen: set[str] = set()
    for reader in job.objects("volumes", most=32):
        reader.required("claim", "mount_path")
        volume = VolumeSpec(
            claim=reader.text("claim", longest=253, rule=names.object_name),
            mount_path=reader.text("mount_path", rule=names.mount_path),
            read_only=reader.flag("read_only", default=False),
        )
        if volume.mount_path and volume.mount_path.rstrip("/") in seen:
            reader.fault("mount_path", "duplicate", _("is used by another volume"))
        seen.add(volume.mount_path.rstrip("/"))
        reader.finish()
        volumes.append(volume)
    return tuple(volumes)
