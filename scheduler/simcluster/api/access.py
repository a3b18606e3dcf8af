"""Who calls and what they may do: tokens, and roles when RBAC is switched on.

With RBAC off (the default) every caller is an administrator. Tokens are registered by the profile's
owner or over the control API; the administrator's is in the kubeconfig.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from scheduler.simcluster.api.decoding import parse_typed
from scheduler.simcluster.api.errors import ApiError
from scheduler.simcluster.api.request import ADMIN, ANONYMOUS, Call, Reply, User, json_reply
from scheduler.simcluster.store.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
)
from scheduler.simcluster.world import World

Json = dict[str, Any]
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


class Access:
    """Authentication and authorization."""

    def __init__(self, world: World, admin_token: str, *, rbac: bool) -> None:
        self._world = world
        self.rbac = rbac
        self.tokens: dict[str, User] = {admin_token: ADMIN}
        self.refused: Counter[str] = Counter()
        """What was forbidden, as "user verb resource", and how often."""

    def authenticate(self, headers: Mapping[str, str]) -> User:
        """The caller. Raises ApiError 401 for a token that nobody has registered."""
        if not self.rbac:
            return ADMIN
        header = headers.get("Authorization", "")
        if not header:
            return ANONYMOUS
        user = self.tokens.get(header.removeprefix("Bearer ").strip())
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user

    def authorize(self, call: Call) -> None:
        """Raises ApiError 403 when the caller may not do this."""
        if not self.rbac or "system:masters" in call.user.groups:
            return
        verb = verb_of(call)
        resource = call.resource.plural + (f"/{call.subresource}" if call.subresource else "")
        question = (verb, call.resource.group, resource, call.namespace, call.name)
        if not call.resource.stored and call.resource.plural.startswith("selfsubject"):
            return
        if not self.allows(call.user, *question):
            self.refused[f"{call.user.name} {verb} {resource}"] += 1
            raise _forbidden(call, verb, resource)

    def allows(
        self, user: User, verb: str, group: str, resource: str, namespace: str, name: str
    ) -> bool:
        """Whether any role bound to the user has a rule for this."""
        if not self.rbac or "system:masters" in user.groups:
            return True
        return any(
            _rule_covers(rule, verb, group, resource, name) for rule in self._rules(user, namespace)
        )

    def _rules(self, user: User, namespace: str) -> Iterator[Json]:
        store = self._world.store
        for binding in store.collection(CLUSTER_ROLE_BINDINGS).objects.values():
            if _binds(binding.body, user, ""):
                yield from self._rules_of(binding.body["roleRef"], "")
        if not namespace:
            return
        for key, binding in store.collection(ROLE_BINDINGS).objects.items():
            if key[0] == namespace and _binds(binding.body, user, namespace):
                yield from self._rules_of(binding.body["roleRef"], namespace)

    def _rules_of(self, reference: Json, namespace: str) -> list[Json]:
        if reference["name"] == "cluster-admin" and reference["kind"] == "ClusterRole":
            return [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        if reference["kind"] == "ClusterRole":
            found = self._world.store.get(CLUSTER_ROLES, "", reference["name"])
        else:
            found = self._world.store.get(ROLES, namespace, reference["name"])
        return [] if found is None else found.body.get("rules") or []

    def review(self, call: Call) -> Reply:
        """SelfSubjectAccessReview and its kin. Raises ApiError."""
        kind = call.resource.kind
        body = parse_typed(call.raw, call.content_type, kind)
        body |= {"kind": kind, "apiVersion": call.resource.api_version}
        body.setdefault("metadata", {})
        if kind == "SelfSubjectReview":
            user = call.user
            body["status"] = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
        elif kind == "SelfSubjectRulesReview":
            body["status"] = self._rules_status(call.user, body)
        else:
            body["status"] = self._access_status(
                call.user, body, other=kind == "SubjectAccessReview"
            )
        return json_reply(201, body)

    def _access_status(self, user: User, body: Json, *, other: bool) -> Json:
        spec = body.get("spec") or {}
        if other:
            user = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
        asked = spec.get("resourceAttributes") or {}
        resource = asked.get("resource", "")
        if asked.get("subresource"):
            resource += f"/{asked['subresource']}"
        allowed = self.allows(
            user, asked.get("verb", ""), asked.get("group", ""), resource,
            asked.get("namespace", ""), asked.get("name", ""),
        )  # fmt: skip
        return {"allowed": allowed}

    def _rules_status(self, user: User, body: Json) -> Json:
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        if not self.rbac or "system:masters" in user.groups:
            rules = [everything]
        else:
            namespace = (body.get("spec") or {}).get("namespace", "")
            rules = [rule for rule in self._rules(user, namespace) if rule.get("resources")]
        return {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}


def verb_of(call: Call) -> str:
    """The RBAC verb of a call."""
    watching = call.query.get("watch") in ("true", "1")
    if call.method == "GET" and watching:
        return "watch"
    if call.method == "GET" and not call.name:
        return "list"
    if call.method == "DELETE" and not call.name:
        return "deletecollection"
    return _VERBS.get(call.method, call.method.lower())


def _forbidden(call: Call, verb: str, resource: str) -> ApiError:
    place = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
    target = call.resource.qualified + (f' "{call.name}"' if call.name else "")
    message = (
        f'{target} is forbidden: User "{call.user.name}" cannot {verb} resource "{resource}" in '
        f'API group "{call.resource.group}" {place}'
    )
    details: Json = {"name": call.name} if call.name else {}
    if call.resource.group:
        details["group"] = call.resource.group
    details["kind"] = call.resource.plural
    return ApiError(403, "Forbidden", message, details)


def _binds(binding: Json, user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or []:
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name == user.name:
            return True
        if kind == "Group" and name in user.groups:
            return True
        if kind == "ServiceAccount":
            place = subject.get("namespace") or namespace
            if user.name == f"system:serviceaccount:{place}:{name}":
                return True
    return False


def _rule_covers(rule: Json, verb: str, group: str, resource: str, name: str) -> bool:
    if not _listed(rule.get("verbs"), verb) or not _listed(rule.get("apiGroups"), group):
        return False
    subresource = resource.partition("/")[2]
    resources = rule.get("resources") or []
    if not (_listed(resources, resource) or (subresource and f"*/{subresource}" in resources)):
        return False
    names = rule.get("resourceNames") or []
    return not names or name in names


def _listed(values: list[str] | None, wanted: str) -> bool:
    return values is not None and ("*" in values or wanted in values)
