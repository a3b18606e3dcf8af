"""The kinds of objects that the cluster serves, and what differs between them.

Read by the store (keys, versions), the API (paths, verbs, discovery) and the controllers. Custom
resource definitions add to a `Registry` while the cluster runs.
"""

import base64
import hashlib
from dataclasses import dataclass, field

COLLECTION_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
REVIEW_VERBS = ("create",)
_NO_COLLECTION_DELETE = tuple(verb for verb in COLLECTION_VERBS if verb != "deletecollection")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object: what discovery says of it."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One kind of object under its plural name."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = COLLECTION_VERBS
    subresources: tuple[Subresource, ...] = ()
    has_status: bool = False
    keeps_generation: bool = False
    returns_deleted: bool = False
    field_labels: tuple[str, ...] = ()
    custom: bool = False
    list_kind: str = ""
    stored: bool = True
    history_limit: int = 10_000

    @property
    def qualified(self) -> str:
        """Plural and group, as messages name it: `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def kind_of_list(self) -> str:
        """The kind of a list of these."""
        return self.list_kind or f"{self.kind}List"

    @property
    def version_hash(self) -> str:
        """Discovery's `storageVersionHash`: a digest of group, version and kind."""
        digest = hashlib.sha256(f"{self.group}/{self.version}/{self.kind}".encode()).digest()
        return base64.b64encode(digest[:8]).decode()


def _status(kind: str) -> Subresource:
    return Subresource("status", kind, ("get", "patch", "update"))


_PROXY_VERBS = ("create", "delete", "get", "patch", "update")

NODES = ResourceType(
    "", "v1", "nodes", "node", "Node", namespaced=False, short_names=("no",), has_status=True,
    field_labels=("spec.unschedulable",),
    subresources=(Subresource("proxy", "NodeProxyOptions", _PROXY_VERBS), _status("Node")),
)  # fmt: skip
NAMESPACES = ResourceType(
    "", "v1", "namespaces", "namespace", "Namespace", namespaced=False, short_names=("ns",),
    verbs=_NO_COLLECTION_DELETE, has_status=True, returns_deleted=True, field_labels=("status.phase",),
    subresources=(Subresource("finalize", "Namespace", ("update",)), _status("Namespace")),
)  # fmt: skip
PODS = ResourceType(
    "", "v1", "pods", "pod", "Pod", short_names=("po",), categories=("all",), has_status=True,
    keeps_generation=True, returns_deleted=True, history_limit=20_000,
    field_labels=("spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
                  "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP",
                  "status.podIPs", "status.nominatedNodeName"),
    subresources=(
        Subresource("attach", "PodAttachOptions", ("create", "get")),
        Subresource("binding", "Binding", ("create",)),
        Subresource("ephemeralcontainers", "Pod", ("get", "patch", "update")),
        Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
        Subresource("exec", "PodExecOptions", ("create", "get")),
        Subresource("log", "Pod", ("get",)),
        Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
        Subresource("proxy", "PodProxyOptions", _PROXY_VERBS),
        Subresource("resize", "Pod", ("get", "patch", "update")),
        _status("Pod"),
    ),
)  # fmt: skip
SERVICES = ResourceType(
    "", "v1", "services", "service", "Service", short_names=("svc",), categories=("all",),
    has_status=True, returns_deleted=True, field_labels=("spec.clusterIP", "spec.type"),
    subresources=(Subresource("proxy", "ServiceProxyOptions", _PROXY_VERBS), _status("Service")),
)  # fmt: skip
EVENTS = ResourceType(
    "", "v1", "events", "event", "Event", short_names=("ev",), history_limit=5_000,
    field_labels=("involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
                  "involvedObject.uid", "involvedObject.apiVersion",
                  "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
                  "reportingComponent", "source", "type"),
)  # fmt: skip
CONFIG_MAPS = ResourceType("", "v1", "configmaps", "configmap", "ConfigMap", short_names=("cm",))
SECRETS = ResourceType("", "v1", "secrets", "secret", "Secret", field_labels=("type",))
SERVICE_ACCOUNTS = ResourceType(
    "", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount", short_names=("sa",),
    returns_deleted=True,
)  # fmt: skip
RESOURCE_QUOTAS = ResourceType(
    "", "v1", "resourcequotas", "resourcequota", "ResourceQuota", short_names=("quota",),
    has_status=True, returns_deleted=True, subresources=(_status("ResourceQuota"),),
)  # fmt: skip
LIMIT_RANGES = ResourceType(
    "", "v1", "limitranges", "limitrange", "LimitRange", short_names=("limits",)
)
VOLUMES = ResourceType(
    "", "v1", "persistentvolumes", "persistentvolume", "PersistentVolume", namespaced=False,
    short_names=("pv",), has_status=True, returns_deleted=True,
    subresources=(_status("PersistentVolume"),),
)  # fmt: skip
CLAIMS = ResourceType(
    "", "v1", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim",
    short_names=("pvc",), has_status=True, returns_deleted=True,
    subresources=(_status("PersistentVolumeClaim"),),
)  # fmt: skip


def _workload(group: str, plural: str, kind: str, *short_names: str) -> ResourceType:
    """A kind that is kept and checked but that no controller here works on."""
    return ResourceType(
        group, "v1", plural, kind.lower(), kind, short_names=short_names,
        categories=("all",) if group in ("apps", "batch") else (), has_status=True,
        keeps_generation=True, subresources=(_status(kind),),
    )  # fmt: skip


STORED_ONLY = (
    _workload("apps", "daemonsets", "DaemonSet", "ds"),
    _workload("apps", "deployments", "Deployment", "deploy"),
    _workload("apps", "replicasets", "ReplicaSet", "rs"),
    _workload("apps", "statefulsets", "StatefulSet", "sts"),
    _workload("batch", "jobs", "Job"),
    _workload("batch", "cronjobs", "CronJob", "cj"),
    _workload("networking.k8s.io", "networkpolicies", "NetworkPolicy", "netpol"),
    _workload("networking.k8s.io", "ingresses", "Ingress", "ing"),
)
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "lease", "Lease", history_limit=8_000)
BUDGETS = ResourceType(
    "policy", "v1", "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget",
    short_names=("pdb",), has_status=True, keeps_generation=True,
    subresources=(_status("PodDisruptionBudget"),),
)  # fmt: skip
PRIORITY_CLASSES = ResourceType(
    "scheduling.k8s.io", "v1", "priorityclasses", "priorityclass", "PriorityClass",
    namespaced=False, short_names=("pc",), keeps_generation=True,
)  # fmt: skip
STORAGE_CLASSES = ResourceType(
    "storage.k8s.io", "v1", "storageclasses", "storageclass", "StorageClass",
    namespaced=False, short_names=("sc",),
)  # fmt: skip
_RBAC = "rbac.authorization.k8s.io"
ROLES = ResourceType(_RBAC, "v1", "roles", "role", "Role")
ROLE_BINDINGS = ResourceType(_RBAC, "v1", "rolebindings", "rolebinding", "RoleBinding")
CLUSTER_ROLES = ResourceType(
    _RBAC, "v1", "clusterroles", "clusterrole", "ClusterRole", namespaced=False
)
CLUSTER_ROLE_BINDINGS = ResourceType(
    _RBAC, "v1", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding",
    namespaced=False,
)  # fmt: skip
DEFINITIONS = ResourceType(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "customresourcedefinition",
    "CustomResourceDefinition", namespaced=False, short_names=("crd", "crds"),
    categories=("api-extensions",), has_status=True, keeps_generation=True,
    subresources=(_status("CustomResourceDefinition"),),
)  # fmt: skip


def _review(group: str, plural: str, kind: str, *, namespaced: bool = False) -> ResourceType:
    return ResourceType(
        group, "v1", plural, kind.lower(), kind, namespaced=namespaced, verbs=REVIEW_VERBS,
        stored=False,
    )  # fmt: skip


_AUTHZ = "authorization.k8s.io"
SELF_ACCESS_REVIEWS = _review(_AUTHZ, "selfsubjectaccessreviews", "SelfSubjectAccessReview")
ACCESS_REVIEWS = _review(_AUTHZ, "subjectaccessreviews", "SubjectAccessReview")
SELF_RULES_REVIEWS = _review(_AUTHZ, "selfsubjectrulesreviews", "SelfSubjectRulesReview")
SELF_REVIEWS = _review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview")
BINDINGS = ResourceType(
    "", "v1", "bindings", "binding", "Binding", verbs=REVIEW_VERBS, stored=False
)

BUILT_IN = (
    BINDINGS, CONFIG_MAPS, EVENTS, LIMIT_RANGES, NAMESPACES, NODES, CLAIMS, VOLUMES, PODS,
    RESOURCE_QUOTAS, SECRETS, SERVICE_ACCOUNTS, SERVICES, *STORED_ONLY, LEASES, BUDGETS,
    PRIORITY_CLASSES, STORAGE_CLASSES, ROLES, ROLE_BINDINGS, CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS, DEFINITIONS, SELF_ACCESS_REVIEWS, ACCESS_REVIEWS, SELF_RULES_REVIEWS,
    SELF_REVIEWS,
)  # fmt: skip


@dataclass(slots=True)
class Registry:
    """The kinds served now, by group, version and plural."""

    by_path: dict[tuple[str, str, str], ResourceType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for resource in BUILT_IN:
            self.add(resource)

    def add(self, resource: ResourceType) -> None:
        """Serves a kind from now on."""
        self.by_path[(resource.group, resource.version, resource.plural)] = resource

    def drop(self, resource: ResourceType) -> None:
        """No longer serves a kind."""
        self.by_path.pop((resource.group, resource.version, resource.plural), None)

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The kind under a path, or None."""
        return self.by_path.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> ResourceType | None:
        """The kind that an owner reference or manifest names, or None."""
        for resource in self.by_path.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None

    def of_group(self, group: str, version: str) -> list[ResourceType]:
        """All kinds of a group and version, in order of plural."""
        found = [r for r in self.by_path.values() if (r.group, r.version) == (group, version)]
        return sorted(found, key=lambda resource: resource.plural)

    def groups(self) -> dict[str, list[str]]:
        """Named groups and their versions."""
        groups: dict[str, list[str]] = {}
        for resource in self.by_path.values():
            versions = groups.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        groups.pop("", None)
        return groups
