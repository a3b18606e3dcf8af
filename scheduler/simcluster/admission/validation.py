"""What makes an object wrong (422): names, labels, and the rules of each kind that matter here."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from scheduler.simcluster.admission.custom import definition_causes
from scheduler.simcluster.api.errors import (
    forbidden_field,
    invalid_value,
    required,
    unsupported,
)
from scheduler.simcluster.naming import (
    LABEL,
    LABEL_MESSAGE,
    label_value_problem,
    name_problem,
    qualified_name_problem,
)
from scheduler.simcluster.quantities import is_whole, milli
from scheduler.simcluster.store.resources import ResourceType

Json = dict[str, Any]
Causes = list[Json]
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NATIVE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods", "storage")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS = (*LABEL_OPERATORS, "Gt", "Lt")


def quoted(value: object) -> str:
    """A value as messages show it."""
    return f'"{value}"' if isinstance(value, str) else str(value)


def metadata_causes(metadata: Json, resource: ResourceType) -> Causes:
    """Wrong name, labels or annotations."""
    causes: Causes = []
    name = metadata.get("name", "")
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        problem = name_problem(name, resource.kind)
        if problem:
            causes.append(invalid_value("metadata.name", quoted(name), problem))
    for key, value in (metadata.get("labels") or {}).items():
        causes.extend(_label_causes(key, value))
    for index, owner in enumerate(metadata.get("ownerReferences") or []):
        for part in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(part):
                causes.append(required(f"metadata.ownerReferences[{index}].{part}"))
    for key in metadata.get("annotations") or {}:
        problem = qualified_name_problem(key.lower())
        if problem:
            causes.append(invalid_value("metadata.annotations", quoted(key), problem))
    return causes


def _label_causes(key: str, value: str) -> Causes:
    causes: Causes = []
    problem = qualified_name_problem(key)
    if problem:
        causes.append(invalid_value("metadata.labels", quoted(key), problem))
    problem = label_value_problem(value)
    if problem:
        causes.append(invalid_value("metadata.labels", quoted(value), problem))
    return causes


def is_extended(name: str) -> bool:
    """Whether a resource name is an extended one such as `nvidia.com/gpu`."""
    return "/" in name and not name.startswith(("requests.", "kubernetes.io/"))


def pod_causes(body: Json) -> Causes:
    """Everything wrong with a pod's spec."""
    spec = body.get("spec") or {}
    causes: Causes = []
    containers = spec.get("containers") or []
    if not containers:
        causes.append(required("spec.containers"))
    seen: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    causes += _volume_causes(spec.get("volumes") or [])
    causes += _affinity_causes(spec)
    for index, container in enumerate(containers):
        causes.extend(_container_causes(container, f"spec.containers[{index}]", seen, volumes))
    for index, container in enumerate(spec.get("initContainers") or []):
        causes.extend(_container_causes(container, f"spec.initContainers[{index}]", seen, volumes))
    policy = spec.get("restartPolicy", "Always")
    if policy not in RESTART_POLICIES:
        causes.append(unsupported("spec.restartPolicy", policy, RESTART_POLICIES))
    for name in ("terminationGracePeriodSeconds", "activeDeadlineSeconds"):
        causes.extend(_seconds_causes(spec, name))
    for name in ("hostname", "subdomain"):
        value = spec.get(name)
        if value and (len(value) > 63 or not LABEL.fullmatch(value)):
            causes.append(invalid_value(f"spec.{name}", quoted(value), LABEL_MESSAGE))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        causes.append(
            forbidden_field(
                "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
            )
        )
    return causes


def _volume_causes(volumes: list[Json]) -> Causes:
    causes: Causes = []
    for index, volume in enumerate(volumes):
        if not volume.get("name"):
            causes.append(required(f"spec.volumes[{index}].name"))
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            causes.append(required(f"spec.volumes[{index}].persistentVolumeClaim.claimName"))
    return causes


def _affinity_causes(spec: Json) -> Causes:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    wanted = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if wanted is None:
        return []
    path = (
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
        "nodeSelectorTerms"
    )
    terms = wanted.get("nodeSelectorTerms") or []
    if not terms:
        return [required(path, "must have at least one node selector term")]
    causes: Causes = []
    for index, term in enumerate(terms):
        for part in ("matchExpressions", "matchFields"):
            causes += expression_causes(
                term.get(part) or [], f"{path}[{index}].{part}", NODE_OPERATORS
            )
    return causes


def _seconds_causes(spec: Json, name: str) -> Causes:
    value = spec.get(name)
    if value is None:
        return []
    if name == "activeDeadlineSeconds" and value < 1:
        return [
            invalid_value("spec.activeDeadlineSeconds", str(value),
                          "must be between 1 and 2147483647, inclusive")
        ]  # fmt: skip
    if value < 0:
        return [invalid_value(f"spec.{name}", str(value), "must be greater than or equal to 0")]
    return []


def _container_causes(
    container: Json, path: str, seen: set[str], volumes: set[str | None]
) -> Causes:
    causes: Causes = []
    name = container.get("name", "")
    if not name:
        causes.append(required(f"{path}.name"))
    elif not LABEL.fullmatch(name) or len(name) > 63:
        causes.append(invalid_value(f"{path}.name", quoted(name), LABEL_MESSAGE))
    elif name in seen:
        causes.append(
            {"reason": "FieldValueDuplicate", "message": f"Duplicate value: {quoted(name)}",
             "field": f"{path}.name"}
        )  # fmt: skip
    seen.add(name)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for index, variable in enumerate(container.get("env") or []):
        causes.extend(_env_causes(variable, f"{path}.env[{index}]"))
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            causes.append(
                {"reason": "FieldValueNotFound",
                 "message": f"Not found: {quoted(mount.get('name'))}",
                 "field": f"{path}.volumeMounts[{index}].name"}
            )  # fmt: skip
    causes.extend(_resource_causes(container.get("resources") or {}, f"{path}.resources"))
    return causes


@lru_cache(maxsize=16_384)
def _is_env_name(name: str) -> bool:
    return _ENV_NAME.fullmatch(name) is not None


def _env_causes(variable: Json, path: str) -> Causes:
    name = variable.get("name", "")
    if not name:
        return [required(f"{path}.name")]
    if not _is_env_name(name):
        return [
            invalid_value(
                f"{path}.name", quoted(name),
                "a valid environment variable name must consist only of printable ASCII "
                "characters other than '='",
            )
        ]  # fmt: skip
    return []


def _resource_causes(resources: Json, path: str) -> Causes:
    causes: Causes = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            field = f"{path}.{part}[{name}]"
            if is_extended(name) and not is_whole(amount):
                causes.append(invalid_value(field, quoted(amount), "must be an integer"))
            elif milli(amount) < 0:
                causes.append(
                    invalid_value(field, quoted(amount), "must be greater than or equal to 0")
                )
            elif (
                "/" not in name
                and name not in NATIVE_RESOURCES
                and not name.startswith("hugepages-")
            ):
                causes.append(
                    invalid_value(field, quoted(name), "must be a standard resource for containers")
                )
    if causes:
        return causes
    for name, amount in requests.items():
        causes.extend(_against_limit(name, amount, limits, f"{path}.requests"))
    return causes


def _against_limit(name: str, amount: str, limits: Json, path: str) -> Causes:
    limit = limits.get(name)
    if limit is None:
        if is_extended(name):
            return [
                required(
                    path.replace(".requests", ".limits"),
                    "Limit must be set for non overcommitable resources",
                )
            ]
        return []
    if is_extended(name) and milli(amount) != milli(limit):
        return [invalid_value(path, quoted(amount), f"must be equal to {name} limit of {limit}")]
    if milli(amount) > milli(limit):
        return [
            invalid_value(
                path, quoted(amount), f"must be less than or equal to {name} limit of {limit}"
            )
        ]
    return []


def node_causes(body: Json) -> Causes:
    """Wrong taints. Their field is `metadata.taints`, as the real server has it."""
    causes: Causes = []
    for index, taint in enumerate((body.get("spec") or {}).get("taints") or []):
        path = f"metadata.taints[{index}]"
        if not taint.get("key"):
            causes.append(required(f"{path}.key"))
        effect = taint.get("effect", "")
        if effect not in TAINT_EFFECTS:
            # The real server lists this cause twice.
            causes.extend([unsupported(f"{path}.effect", effect, TAINT_EFFECTS)] * 2)
    return causes


def _service_causes(body: Json) -> Causes:
    spec = body.get("spec") or {}
    headless_or_external = spec.get("clusterIP") == "None" or spec.get("type") == "ExternalName"
    if not spec.get("ports") and not headless_or_external:
        return [required("spec.ports")]
    causes: Causes = []
    for index, port in enumerate(spec.get("ports") or []):
        number = port.get("port", 0)
        if not 1 <= number <= 65535:
            causes.append(
                invalid_value(f"spec.ports[{index}].port", str(number),
                              "must be between 1 and 65535, inclusive")
            )  # fmt: skip
    return causes


def _quota_causes(body: Json) -> Causes:
    causes: Causes = []
    for name, amount in ((body.get("spec") or {}).get("hard") or {}).items():
        if milli(amount) < 0:
            causes.append(
                invalid_value(
                    f"spec.hard[{name}]", quoted(amount), "must be greater than or equal to 0"
                )
            )
    return causes


def _config_causes(body: Json) -> Causes:
    causes: Causes = []
    for part in ("data", "binaryData"):
        for key in body.get(part) or {}:
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", key) or len(key) > 253:
                causes.append(
                    invalid_value(
                        f"{part}[{key}]", quoted(key),
                        "a valid config key must consist of alphanumeric characters, '-', '_' "
                        "or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used "
                        "for validation is '[-._a-zA-Z0-9]+')",
                    )
                )  # fmt: skip
    return causes


def _priority_causes(body: Json) -> Causes:
    value = body.get("value", 0)
    if value > 1_000_000_000 and not body["metadata"]["name"].startswith("system-"):
        return [
            forbidden_field(
                "value", "maximum allowed value of a user defined priority is 1000000000"
            )
        ]
    return []


def _budget_causes(body: Json) -> Causes:
    spec = body.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        return [invalid_value("spec", "{}", "minAvailable and maxUnavailable cannot be both set")]
    causes: Causes = []
    for name in ("minAvailable", "maxUnavailable"):
        causes += _share_causes(spec.get(name), f"spec.{name}")
    return causes + selector_causes(spec.get("selector") or {}, "spec.selector")


def _share_causes(value: Any, field: str) -> Causes:
    """A whole number from 0, or a percentage up to 100."""
    if value is None:
        return []
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value < 2**31:
            return []
        return [invalid_value(field, str(value), "must be greater than or equal to 0")]
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}%", value) and int(value[:-1]) <= 100:
        return []
    return [
        invalid_value(
            field, quoted(value),
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. "
            "'1%',  or '93%', regex used for validation is '[0-9]+%')",
        )
    ]  # fmt: skip


def selector_causes(selector: Json, field: str) -> Causes:
    """Expressions of a label selector that cannot be read."""
    return expression_causes(
        selector.get("matchExpressions") or [], f"{field}.matchExpressions", LABEL_OPERATORS
    )


def expression_causes(expressions: list[Json], field: str, operators: tuple[str, ...]) -> Causes:
    """Expressions without a key or with an operator that does not exist."""
    causes: Causes = []
    for index, expression in enumerate(expressions):
        path = f"{field}[{index}]"
        if not expression.get("key"):
            causes.append(required(f"{path}.key"))
        operator = expression.get("operator", "")
        if operator not in operators:
            causes.append(
                invalid_value(f"{path}.operator", quoted(operator), "not a valid selector operator")
            )
        elif operator in ("In", "NotIn") and not expression.get("values"):
            causes.append(
                required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            )
    return causes


_BY_KIND: dict[str, Callable[[Json], Causes]] = {
    "Pod": pod_causes,
    "Node": node_causes,
    "Service": _service_causes,
    "ResourceQuota": _quota_causes,
    "ConfigMap": _config_causes,
    "Secret": _config_causes,
    "PriorityClass": _priority_causes,
    "PodDisruptionBudget": _budget_causes,
    "CustomResourceDefinition": definition_causes,
}


def causes_of(body: Json, resource: ResourceType) -> Causes:
    """Everything wrong with an object of a built-in kind."""
    causes = metadata_causes(body["metadata"], resource)
    rules = _BY_KIND.get(resource.kind)
    if rules is not None and not resource.custom:
        causes.extend(rules(body))
    return causes
