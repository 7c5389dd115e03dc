"""Authorization by RBAC.

The rules come from the ClusterRoles, Roles and bindings in the store. Without `enforced`, every
authenticated user may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator

from leeway_sandbox.kubernetes import errors, registry
from leeway_sandbox.kubernetes.authentication import User
from leeway_sandbox.kubernetes.calls import Call
from leeway_sandbox.kubernetes.objects import Object
from leeway_sandbox.kubernetes.store import Change, Store

_ALL_POWERFUL = "system:masters"


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
            _covers(rule, verb, group, resource, name) for rule in self._rules_of(user, namespace)
        )

    def allows_path(self, user: User, verb: str, path: str) -> bool:
        """Whether a user may read a path that is no resource, such as /metrics."""
        if not self._enforced or _ALL_POWERFUL in user.groups:
            return True
        return any(
            not {"*", verb}.isdisjoint(rule.get("verbs") or ())
            and any(_leads_to(one, path) for one in rule.get("nonResourceURLs") or ())
            for rule in self._rules_of(user, "")
        )

    def _rules_of(self, user: User, namespace: str) -> list[Object]:
        """Return the rules of a user in a namespace ("" for cluster-scoped resources)."""
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
