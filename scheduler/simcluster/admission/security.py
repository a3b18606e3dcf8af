"""Pod Security admission: the `baseline` and `restricted` levels that a namespace enforces."""

from typing import Any

Json = dict[str, Any]

ENFORCE = "pod-security.kubernetes.io/enforce"
WARN = "pod-security.kubernetes.io/warn"
_BASELINE_CAPABILITIES = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
    "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
_RESTRICTED_VOLUMES = {
    "name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral",
    "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


def violations(spec: Json, level: str) -> list[str]:
    """What a pod does that a level forbids, in the plugin's words."""
    if level == "privileged":
        return []
    found = _baseline(spec)
    if level == "restricted":
        found += _restricted(spec)
    return found


def violation_message(spec: Json, labels: Json, label: str) -> str | None:
    """`violates PodSecurity "baseline:latest": …`, or None."""
    level = labels.get(label)
    if not level:
        return None
    found = violations(spec, level)
    if not found:
        return None
    version = labels.get(f"{label}-version", "latest")
    return f'PodSecurity "{level}:{version}": {", ".join(found)}'


def _containers(spec: Json) -> list[Json]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _named(names: list[str]) -> str:
    word = "container" if len(names) == 1 else "containers"
    return f"{word} " + ", ".join(f'"{name}"' for name in names)


def _security(container: Json) -> Json:
    context: Json = container.get("securityContext") or {}
    return context


def _baseline(spec: Json) -> list[str]:
    found: list[str] = []
    spaces = [f"{key}=true" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    if spaces:
        found.append(f"host namespaces ({', '.join(spaces)})")
    privileged = [c["name"] for c in _containers(spec) if _security(c).get("privileged")]
    if privileged:
        found.append(
            f"privileged ({_named(privileged)} must not set securityContext.privileged=true)"
        )
    found += _added_capabilities(spec)
    paths = [volume["name"] for volume in spec.get("volumes") or [] if "hostPath" in volume]
    if paths:
        listed = ", ".join(f'"{name}"' for name in paths)
        found.append(f"hostPath volumes (volume{'s' if len(paths) > 1 else ''} {listed})")
    ports = [
        str(port["hostPort"])
        for container in _containers(spec)
        for port in container.get("ports") or []
        if port.get("hostPort")
    ]
    if ports:
        names = [
            c["name"]
            for c in _containers(spec)
            if any(p.get("hostPort") for p in c.get("ports") or [])
        ]
        found.append(
            f"hostPort ({_named(names)} uses hostPort{'s' if len(ports) > 1 else ''} {', '.join(ports)})"
        )
    if ((spec.get("securityContext") or {}).get("seccompProfile") or {}).get(
        "type"
    ) == "Unconfined":
        found.append(
            'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")'
        )
    return found


def _added_capabilities(spec: Json) -> list[str]:
    names: list[str] = []
    added: set[str] = set()
    for container in _containers(spec):
        extra = set((_security(container).get("capabilities") or {}).get("add") or ())
        extra -= _BASELINE_CAPABILITIES
        if extra:
            names.append(container["name"])
            added |= extra
    if not names:
        return []
    listed = ", ".join(f'"{name}"' for name in sorted(added))
    return [
        f"non-default capabilities ({_named(names)} must not include {listed} in securityContext.capabilities.add)"
    ]


def _restricted(spec: Json) -> list[str]:
    found: list[str] = []
    for volume in spec.get("volumes") or []:
        kinds = [kind for kind in volume if kind not in _RESTRICTED_VOLUMES]
        if kinds:
            found.append(
                f'restricted volume types (volume "{volume["name"]}" uses restricted volume type "{kinds[0]}")'
            )
    escalating = [
        c["name"]
        for c in _containers(spec)
        if _security(c).get("allowPrivilegeEscalation") is not False
    ]
    if escalating:
        found.append(
            f"allowPrivilegeEscalation != false ({_named(escalating)} must set "
            "securityContext.allowPrivilegeEscalation=false)"
        )
    capable = [c["name"] for c in _containers(spec) if not _drops_all(c)]
    if capable:
        found.append(
            f"unrestricted capabilities ({_named(capable)} must set "
            'securityContext.capabilities.drop=["ALL"])'
        )
    found += _identity(spec)
    return found


def _drops_all(container: Json) -> bool:
    capabilities = _security(container).get("capabilities") or {}
    added = set(capabilities.get("add") or ())
    return "ALL" in (capabilities.get("drop") or ()) and added <= {"NET_BIND_SERVICE"}


def _identity(spec: Json) -> list[str]:
    found: list[str] = []
    pod = spec.get("securityContext") or {}
    rooted = [
        c["name"]
        for c in _containers(spec)
        if _security(c).get("runAsNonRoot", pod.get("runAsNonRoot")) is not True
    ]
    if rooted:
        found.append(
            f"runAsNonRoot != true (pod or {_named(rooted)} must set "
            "securityContext.runAsNonRoot=true)"
        )
    if pod.get("runAsUser") == 0:
        found.append("runAsUser=0 (pod must not set runAsUser=0)")
    allowed = ("RuntimeDefault", "Localhost")
    profile = (pod.get("seccompProfile") or {}).get("type")
    open_ones = [
        c["name"]
        for c in _containers(spec)
        if (_security(c).get("seccompProfile") or {}).get("type", profile) not in allowed
    ]
    if open_ones:
        found.append(
            f"seccompProfile (pod or {_named(open_ones)} must set "
            'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
        )
    return found
