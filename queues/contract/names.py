"""Rules for names, images, paths and keys: what Kubernetes accepts, and what Muster keeps for itself. Pure."""

import re

from django.utils.translation import gettext as _

from queues.contract.reading import Fault, Rule

# A container image: [registry[:port]/]path[:tag][@digest] (distribution/reference).
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = (
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*)"
)
_IMAGE = re.compile(
    rf"(?:{_HOST}(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?:@[A-Za-z][A-Za-z0-9]*(?:[+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)
_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_ROLE_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,18}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_LABEL_PART = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_CUDA = re.compile(r"[1-9][0-9]?\.[0-9]{1,2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

# Names that Muster sets itself: rendezvous, and the job's own identity (CONTRACT, "Kubernetes side").
RENDEZVOUS_NAMES = frozenset(
    {
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "NNODES",
        "RANK",
        "NODE_RANK",
        "NPROC_PER_NODE",
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
    }
)
OWN_PREFIX = "MUSTER_"
# Names by which a container would reach GPUs that it was not given.
DEVICE_NAMES = frozenset(
    {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES"}
)
MPS_PREFIX = "CUDA_MPS_"
# Where pods have mounts of their own, or the kernel's.
KEPT_PATHS = ("/dev", "/proc", "/sys", "/muster", "/var/run/secrets", "/run/secrets")


def dns_label(value: str) -> Fault | None:
    """A name that may become part of a DNS name (RFC 1123)."""
    if _DNS_LABEL.fullmatch(value):
        return None
    return Fault(
        "invalid_name",
        _(
            "must be lower-case letters, digits and hyphens, begin and end with a letter or digit, "
            "and have at most 63 characters"
        ),
    )


def role_name(value: str) -> Fault | None:
    """A role's name: part of pod and host names, so it begins with a letter and is short."""
    if _ROLE_NAME.fullmatch(value):
        return None
    return Fault(
        "invalid_name",
        _(
            "must be lower-case letters, digits and hyphens, begin with a letter, "
            "and have at most 20 characters"
        ),
    )


def object_name(value: str) -> Fault | None:
    """The name of a Kubernetes object such as a claim or a node (RFC 1123 subdomain)."""
    if len(value) <= 253 and _DNS_SUBDOMAIN.fullmatch(value):
        return None
    return Fault(
        "invalid_name",
        _("must be lower-case letters, digits, hyphens and dots, as Kubernetes names are"),
    )


def image(value: str) -> Fault | None:
    """A container image reference."""
    if _IMAGE.fullmatch(value):
        return None
    return Fault(
        "invalid_image", _("is not an image reference, such as registry.example/team/train:1.4")
    )


def any_env_name(value: str) -> Fault | None:
    """The name of an environment variable, as Kubernetes takes it."""
    if len(value) > 256 or not _ENV_NAME.fullmatch(value):
        return Fault(
            "invalid_env_name",
            _(
                "is no name for an environment variable: use letters, digits and underscores, "
                "and begin with a letter or underscore"
            ),
        )
    return None


def env_name(value: str) -> Fault | None:
    """The name of an environment variable that a user may set."""
    fault = any_env_name(value)
    if fault is not None:
        return fault
    upper = value.upper()
    if upper in DEVICE_NAMES or upper.startswith(MPS_PREFIX):
        return Fault(
            "refused_env_name",
            _(
                "is refused: it would let the container reach GPUs that it was not given; "
                "a replica sees exactly the gpus_per_replica that it asked for"
            ),
        )
    if value in RENDEZVOUS_NAMES or value.startswith(OWN_PREFIX):
        return Fault(
            "refused_env_name", _("is set by Muster in every replica and cannot be set by a job")
        )
    return None


def label_key(value: str) -> Fault | None:
    """A label key: an optional DNS prefix, then a short name."""
    prefix, slash, name = value.rpartition("/")
    well_formed = bool(_LABEL_PART.fullmatch(name)) and (not slash or object_name(prefix) is None)
    if well_formed:
        return None
    return Fault("invalid_key", _("is not a label key, such as team or example.com/team"))


def label_value(value: str) -> Fault | None:
    """A label's value."""
    if _LABEL_PART.fullmatch(value):
        return None
    return Fault(
        "invalid_label_value",
        _(
            "must be letters, digits, hyphens, underscores and dots, begin and end with a letter "
            "or digit, and have at most 63 characters"
        ),
    )


def allowed_key(prefixes: tuple[str, ...]) -> Rule:
    """Label and annotation keys that a job may set: without prefix, or with one that is allowed."""

    def rule(value: str) -> Fault | None:
        fault = label_key(value)
        prefix, slash, _name = value.rpartition("/")
        if fault is not None or not slash or prefix in prefixes:
            return fault
        shown = ", ".join(prefixes) or "–"
        return Fault(
            "prefix_not_allowed",
            _("has a prefix that is not allowed; allowed are none and: {prefixes}").format(
                prefixes=shown
            ),
        )

    return rule


def absolute_path(value: str) -> Fault | None:
    """A path inside the container, without steps upwards."""
    if not value.startswith("/") or ".." in value.split("/") or _CONTROL.search(value):
        return Fault("invalid_path", _("must be an absolute path without “..”, such as /data"))
    return None


def mount_path(value: str) -> Fault | None:
    """Where a claim may be mounted."""
    fault = absolute_path(value)
    if fault is not None:
        return fault
    path = "/" + "/".join(part for part in value.split("/") if part)
    if ":" in path or path == "/":
        return Fault("invalid_path", _("must be a folder below / and have no colon"))
    kept = next((kept for kept in KEPT_PATHS if path == kept or path.startswith(f"{kept}/")), None)
    if kept is not None:
        return Fault(
            "reserved_path", _("is kept: nothing may be mounted under {kept}").format(kept=kept)
        )
    return None


def cuda_version(value: str) -> Fault | None:
    """A CUDA version as `nvidia-smi` shows it."""
    if _CUDA.fullmatch(value):
        return None
    return Fault("invalid_version", _("must be a CUDA version, such as 12.4"))


def plain_line(value: str) -> Fault | None:
    """Free text on one line."""
    if _CONTROL.search(value) or value != value.strip():
        return Fault("invalid_text", _("must be one line without space around it"))
    return None
