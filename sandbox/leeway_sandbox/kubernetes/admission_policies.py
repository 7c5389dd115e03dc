"""Checks writes by the ValidatingAdmissionPolicies in the store and their CEL expressions.

Rules: Kubernetes documentation, "Validating Admission Policy". Resource rules, match conditions,
variables, validations and the action Deny are supported. A policy with another feature denies every
request that it matches; the message names the feature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from leeway_sandbox.kubernetes import errors, registry
from leeway_sandbox.kubernetes.calls import Call
from leeway_sandbox.kubernetes.objects import Object, name_of
from leeway_sandbox.kubernetes.store import Change, Store

_UNSUPPORTED = ("paramKind", "auditAnnotations")
_UNSUPPORTED_MATCHES = (
    "excludeResourceRules",
    "namespaceSelector",
    "objectSelector",
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    program: Any
    expression: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Policy:
    """A bound policy with compiled expressions; `flaw` is the reason why it cannot be compiled."""

    name: str
    binding: str
    resources: list[Object]
    conditions: tuple[_Rule, ...] = ()
    variables: tuple[tuple[str, _Rule], ...] = ()
    validations: tuple[_Rule, ...] = ()
    flaw: str = ""


class AdmissionPolicies:
    """Caches the bound policies, until a policy or a binding changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bound: list[_Policy] | None = []
        for kind in registry.ADMISSION_POLICIES:
            store.listen(kind, self._forget)

    def prepare(self) -> None:
        """Compile the policies now; the first time takes a second."""
        self._policies()

    def check(self, call: Call, operation: str, new: Object | None, old: Object | None) -> None:
        """Allow a write, or refuse it with 422; a deletion has no `new`, a creation no `old`."""
        for policy in self._policies():
            if any(_matches(rule, call, operation) for rule in policy.resources):
                self._hold(policy, call, operation, new, old)

    def _hold(
        self, policy: _Policy, call: Call, operation: str, new: Object | None, old: Object | None
    ) -> None:
        kind = call.kind
        name = call.target.name or (name_of(new) if new else "")
        context: dict[str, Any] = {
            "object": kind.typed(new) if new else None,
            "oldObject": kind.typed(old) if old else None,
            "request": {
                "name": name,
                "namespace": call.target.namespace,
                "operation": operation,
                "dryRun": call.dry_run,
                "userInfo": {"username": call.user.name, "groups": list(call.user.groups)},
            },
        }
        if policy.flaw:
            raise self._denied(policy, call, name, policy.flaw)
        for condition in policy.conditions:
            if not self._value(policy, call, name, condition, context):
                return
        variables: dict[str, Any] = {}
        context["variables"] = variables
        for variable, rule in policy.variables:
            variables[variable] = self._value(policy, call, name, rule, context)
        for validation in policy.validations:
            if self._value(policy, call, name, validation, context) is not True:
                why = validation.message or f"failed expression: {validation.expression}"
                raise self._denied(policy, call, name, why)

    def _value(
        self, policy: _Policy, call: Call, name: str, rule: _Rule, context: dict[str, Any]
    ) -> Any:
        try:
            return rule.program.execute(context)
        except Exception as error:
            why = f"expression '{rule.expression}' resulted in error: {error}"
            raise self._denied(policy, call, name, why) from error

    @staticmethod
    def _denied(policy: _Policy, call: Call, name: str, why: str) -> errors.ApiError:
        """Return the error of a real server, with the default reason Invalid."""
        by = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{policy.binding}'"
        kind = call.kind
        message = f'{kind.resource} "{name}" is forbidden: {by} denied request: {why}'
        details = errors.details_of(kind, name) | {"causes": [{"message": why}]}
        return errors.ApiError(422, "Invalid", message, details)

    def _forget(self, _change: Change) -> None:
        self._bound = None

    def _policies(self) -> list[_Policy]:
        if self._bound is None:
            self._bound = list(self._compiled())
        return self._bound

    def _compiled(self) -> Iterator[_Policy]:
        for binding in self._store.every(registry.ADMISSION_BINDING):
            spec = binding["spec"]
            policy = self._store.get(registry.ADMISSION_POLICY, "", spec["policyName"])
            if policy is not None and "Deny" in spec["validationActions"]:
                yield _compile(policy["spec"], spec["policyName"], name_of(binding))


def _compile(spec: Object, name: str, binding: str) -> _Policy:
    constraints = spec.get("matchConstraints") or {}
    resources = constraints.get("resourceRules") or []
    beyond = [one for one in _UNSUPPORTED if spec.get(one)]
    beyond += [one for one in _UNSUPPORTED_MATCHES if constraints.get(one)]
    if beyond:
        return _Policy(
            name, binding, resources, flaw=f"the sandbox does not support {', '.join(beyond)}"
        )
    try:
        return _Policy(
            name,
            binding,
            resources,
            tuple(_rule(one) for one in spec.get("matchConditions") or ()),
            tuple((one["name"], _rule(one)) for one in spec.get("variables") or ()),
            tuple(_rule(one) for one in spec.get("validations") or ()),
        )
    except ValueError as error:
        return _Policy(name, binding, resources, flaw=str(error))


def _rule(written: Object) -> _Rule:
    # The import takes a second, because it loads a command line: import it only if needed.
    import cel

    expression = written["expression"]
    return _Rule(cel.compile(expression), expression, written.get("message", ""))


def _matches(rule: Object, call: Call, operation: str) -> bool:
    kind = call.kind
    return all(
        not {"*", value}.isdisjoint(rule.get(field) or ())
        for field, value in (
            ("apiGroups", kind.group),
            ("apiVersions", kind.version),
            ("operations", operation),
            ("resources", call.resource),
        )
    )
