"""Authorization by RBAC: access rules from files, permissions, and reviews of them.

The rules come from the ClusterRoles, Roles and bindings in the store. Without `enforced`, every
authenticated user may do everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from leeway_sandbox.errors import SandboxError
from leeway_sandbox.kubernetes import defaults, errors, registry
from leeway_sandbox.kubernetes.authentication import User
from leeway_sandbox.kubernetes.calls import Call
from leeway_sandbox.kubernetes.objects import Object
from leeway_sandbox.kubernetes.store import Change, Store

_ALL_POWERFUL = "system:masters"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Authorizer:
    """Caches the rules of each user by namespace, until a role or a binding changes."""

    def __init__(self, store: Store, *, enforced: bool) -> None:
        self._store = store
        self._enforced = enforced
        self._rules: dict[tuple[User, str], list[Object]] = {}
        for kind in registry.RBAC:
            store.listen(kind, self._forget)

    def check(self, call: Call) -> None:
        """Allow a call, or refuse it with 403."""
        target = call.target
        group = call.kind.group
        # A Namespace object counts as part of its own namespace.
        is_namespace = call.kind is registry.NAMESPACE
        namespace = target.name if is_namespace else target.namespace
        if self.allows(call.user, call.verb, group, call.resource, namespace, target.name):
            return
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        why = (
            f'User "{call.user.name}" cannot {call.verb} resource "{call.resource}" in API group '
            f'"{group}" {scope}'
        )
        raise errors.forbidden(call.kind, target.name, why)

    def check_creation(self, call: Call) -> None:
        """Allow an apply to create its object, or refuse it with the 403 of a real server."""
        target, group = call.target, call.kind.group
        if not self.allows(
            call.user, call.verb, group, call.resource, target.namespace, target.name
        ):
            raise errors.forbidden(call.kind, target.name, "")

    def allows(
        self, user: User, verb: str, group: str, resource: str, namespace: str, name: str
    ) -> bool:
        """Whether a user may do this; `resource` is "pods" or "pods/eviction"."""
        if not self._enforced or _ALL_POWERFUL in user.groups:
            return True
        return any(
            _covers(rule, verb, group, resource, name) for rule in self.rules_of(user, namespace)
        )

    def allows_path(self, user: User, verb: str, path: str) -> bool:
        """Whether a user may read a path that is no resource, such as /metrics."""
        if not self._enforced or _ALL_POWERFUL in user.groups:
            return True
        return any(
            not {"*", verb}.isdisjoint(rule.get("verbs") or ())
            and any(_leads_to(one, path) for one in rule.get("nonResourceURLs") or ())
            for rule in self.rules_of(user, "")
        )

    def rules_of(self, user: User, namespace: str) -> list[Object]:
        """Return the rules of a user in a namespace ("" for cluster-scoped resources)."""
        if not self._enforced or _ALL_POWERFUL in user.groups:
            return [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        key = (user, namespace)
        if key not in self._rules:
            self._rules[key] = list(self._find_rules(user, namespace))
        return self._rules[key]

    def _forget(self, _change: Change) -> None:
        self._rules.clear()

    def _find_rules(self, user: User, namespace: str) -> Iterator[Object]:
        bindings = [("", one) for one in self._store.every(registry.CLUSTER_ROLE_BINDING)]
        if namespace:
            bindings += [
                (namespace, one) for one in self._store.every(registry.ROLE_BINDING, namespace)
            ]
        for of, binding in bindings:
            if not any(_is_subject(one, user) for one in binding.get("subjects") or ()):
                continue
            reference = binding["roleRef"]
            if reference["kind"] == "ClusterRole":
                role = self._store.get(registry.CLUSTER_ROLE, "", reference["name"])
            else:
                role = self._store.get(registry.ROLE, of, reference["name"])
            yield from (role or {}).get("rules") or ()


def _is_subject(subject: Object, user: User) -> bool:
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    if subject["kind"] == "User":
        return bool(subject["name"] == user.name)
    account = f"system:serviceaccount:{subject.get('namespace', '')}:{subject['name']}"
    return account == user.name


def _leads_to(pattern: str, path: str) -> bool:
    return path == pattern or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def _covers(rule: Object, verb: str, group: str, resource: str, name: str) -> bool:
    subresource = resource.partition("/")[2]
    resources = {"*", resource, f"*/{subresource}"} if subresource else {"*", resource}
    names = rule.get("resourceNames")
    return (
        not {"*", verb}.isdisjoint(rule.get("verbs") or ())
        and not {"*", group}.isdisjoint(rule.get("apiGroups") or ())
        and not resources.isdisjoint(rule.get("resources") or ())
        and (not names or name in names)
    )


_KINDS = {
    kind.kind: kind for kind in (*registry.RBAC, *registry.ADMISSION_POLICIES, registry.NAMESPACE)
}


def load_rules(store: Store, path: Path) -> None:
    """Store the objects of a file, or of all YAML files of a folder.

    Raises:
        SandboxError: a file cannot be read, or an object is of another kind.
    """
    for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
        try:
            documents = list(yaml.load_all(file.read_text(), _LOADER))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            problem = " ".join(str(error).split())
            raise SandboxError(f"The access rules in {file} cannot be read: {problem}") from error
        for document in documents:
            if document is not None:
                _load(store, file, document)


def _load(store: Store, file: Path, document: dict[str, object]) -> None:
    kind = _KINDS.get(str(document.get("kind")))
    if kind is None or kind not in registry.KINDS.values():
        raise SandboxError(
            f"{file}: the kind {document.get('kind')!r} is not a role, a binding, an "
            "admission policy or a namespace."
        )
    stored = {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
    defaults.fill(kind, stored)
    defaults.admit(kind, stored, store)
    store.create(kind, stored)


_PATH = re.compile(
    r"/apis/(?P<group>authorization|authentication)\.k8s\.io/v1"
    r"/(?P<plural>\w+reviews)"
)
_GROUP = "authorization.k8s.io"


def is_review(path: str) -> bool:
    """Whether a path is the path of a review."""
    return _PATH.fullmatch(path) is not None


def answer_review(authorizer: Authorizer, user: User, path: str, body: Object) -> Object | None:
    """Answer a review; None for an unknown kind."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    spec = body.get("spec") or {}
    match (found["group"], found["plural"]):
        case ("authentication", "selfsubjectreviews"):
            info = {"username": user.name, "groups": list(user.groups)}
            about = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
            return {**about, "metadata": {}, "status": {"userInfo": info}}
        case ("authorization", "selfsubjectaccessreviews"):
            return _answer("SelfSubjectAccessReview", spec, _verdict(authorizer, user, spec))
        case ("authorization", "subjectaccessreviews"):
            _check(authorizer, user, found["plural"])
            other = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
            return _answer("SubjectAccessReview", spec, _verdict(authorizer, other, spec))
        case ("authorization", "selfsubjectrulesreviews"):
            rules = authorizer.rules_of(user, spec.get("namespace", ""))
            resources = ("verbs", "apiGroups", "resources", "resourceNames")
            found_rules = [
                {name: rule[name] for name in resources if name in rule}
                for rule in rules
                if rule.get("resources")
            ]
            status = {"resourceRules": found_rules, "nonResourceRules": [], "incomplete": False}
            return _answer("SelfSubjectRulesReview", spec, status)
    return None


def _check(authorizer: Authorizer, user: User, plural: str) -> None:
    """Refuse a caller who may not ask about others. The role system:basic-user of a real cluster
    lets everybody ask about themselves."""
    if authorizer.allows(user, "create", _GROUP, plural, "", ""):
        return
    message = (
        f'{plural}.{_GROUP} is forbidden: User "{user.name}" cannot create resource '
        f'"{plural}" in API group "{_GROUP}" at the cluster scope'
    )
    raise errors.ApiError(403, "Forbidden", message, {"group": _GROUP, "kind": plural})


def _answer(kind: str, spec: Object, status: Object) -> Object:
    about = {"kind": kind, "apiVersion": f"{_GROUP}/v1", "metadata": {}}
    return {**about, "spec": spec, "status": status}


def _verdict(authorizer: Authorizer, user: User, spec: Object) -> Object:
    asked = spec.get("resourceAttributes")
    if asked is None:
        path = spec.get("nonResourceAttributes") or {}
        allowed = authorizer.allows_path(user, path.get("verb", ""), path.get("path", ""))
        return {"allowed": allowed}
    resource = "/".join(filter(None, (asked.get("resource"), asked.get("subresource"))))
    group, namespace, name = (asked.get(one, "") for one in ("group", "namespace", "name"))
    verb = asked.get("verb", "")
    return {"allowed": authorizer.allows(user, verb, group, resource, namespace, name)}
