"""What a pod refers to and a kubelet must find before a container can start."""

from typing import Any

from scheduler.simcluster.store.resources import CLAIMS, CONFIG_MAPS, SECRETS, ResourceType
from scheduler.simcluster.store.store import Store

Json = dict[str, Any]


def missing_mount(store: Store, namespace: str, spec: Json) -> str:
    """Why a volume cannot be mounted, in the kubelet's words; empty when all can."""
    for volume in spec.get("volumes") or []:
        name = volume.get("name", "")
        source = volume.get("secret") or {}
        wanted = source.get("secretName")
        if wanted and not source.get("optional") and store.get(SECRETS, namespace, wanted) is None:
            return f'MountVolume.SetUp failed for volume "{name}" : secret "{wanted}" not found'
        source = volume.get("configMap") or {}
        wanted = source.get("name")
        if (
            wanted
            and not source.get("optional")
            and store.get(CONFIG_MAPS, namespace, wanted) is None
        ):
            return f'MountVolume.SetUp failed for volume "{name}" : configmap "{wanted}" not found'
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim:
            found = store.get(CLAIMS, namespace, claim)
            if found is None:
                return f'persistentvolumeclaim "{claim}" not found'
            if (found.body.get("status") or {}).get("phase") != "Bound":
                return (
                    f"Unable to attach or mount volumes: unmounted volumes=[{name}], unattached "
                    "volumes=[], failed to process volumes=[]: timed out waiting for the condition"
                )
    return ""


def missing_pull_secrets(store: Store, namespace: str, spec: Json) -> list[str]:
    """The names of pull secrets that are not there."""
    wanted = [item["name"] for item in spec.get("imagePullSecrets") or [] if item.get("name")]
    return [name for name in wanted if store.get(SECRETS, namespace, name) is None]


def missing_reference(store: Store, namespace: str, spec: Json, container_name: str) -> str:
    """Which object or key of a container's environment is missing; empty when none is."""
    container = next(c for c in spec["containers"] if c["name"] == container_name)
    for source in container.get("envFrom") or []:
        for part, resource, word in (
            ("secretRef", SECRETS, "secret"), ("configMapRef", CONFIG_MAPS, "configmap"),
        ):  # fmt: skip
            reference = source.get(part)
            if not reference or reference.get("optional"):
                continue
            if store.get(resource, namespace, reference["name"]) is None:
                return f'{word} "{reference["name"]}" not found'
    for variable in container.get("env") or []:
        problem = _missing_key(store, namespace, variable.get("valueFrom") or {})
        if problem:
            return problem
    return ""


def _missing_key(store: Store, namespace: str, source: Json) -> str:
    choices: tuple[tuple[str, ResourceType, str, str], ...] = (
        ("secretKeyRef", SECRETS, "secret", "Secret"),
        ("configMapKeyRef", CONFIG_MAPS, "configmap", "ConfigMap"),
    )
    for part, resource, word, kind in choices:
        reference = source.get(part)
        if not reference or reference.get("optional"):
            continue
        found = store.get(resource, namespace, reference["name"])
        if found is None:
            return f'{word} "{reference["name"]}" not found'
        data = found.body.get("data") or {}
        if reference["key"] not in data:
            return f"couldn't find key {reference['key']} in {kind} {namespace}/{reference['name']}"
    return ""
