"""Reads from an API server: programs that handle notices, and the rights of Leeway's groups."""

from collections.abc import Sequence
from functools import partial

from leeway.kubernetes.connection import Connection, raise_for_status
from leeway.kubernetes.list_watch import ObjectList, list_objects, read_json
from leeway.kubernetes.objects import BUDGETS, Budget
from leeway.parallel import in_parallel
from msgspec import Struct, field
from msgspec.json import Decoder

from leeway_cli.doctor.checks.second_handlers import KARPENTER, TERMINATION_HANDLER
from leeway_cli.doctor.facts import WorkloadFacts
from leeway_cli.doctor.rights import Right

AT_ONCE = 16
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_KINDS = {"DaemonSet": "daemonsets", "Deployment": "deployments"}

_IMAGES = {
    "aws-node-termination-handler": TERMINATION_HANDLER,
    "karpenter/controller": KARPENTER,
}
"""Parts of the images of programs that handle notices. Mirrors of a registry keep them."""

_QUEUE_VARIABLES = frozenset({"INTERRUPTION_QUEUE", "QUEUE_URL"})
"""The variables with the queue of notices. Source: settings of Karpenter, and of
aws-node-termination-handler."""


class _Variable(Struct):
    name: str = ""
    value: str = ""


class _Container(Struct):
    image: str = ""
    env: list[_Variable] = field(default_factory=list)


class _PodSpec(Struct):
    containers: list[_Container] = field(default_factory=list)


class _Template(Struct):
    spec: _PodSpec = field(default_factory=_PodSpec)


class _Spec(Struct):
    template: _Template = field(default_factory=_Template)


class _Metadata(Struct):
    name: str = ""
    namespace: str = ""


class _Workload(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    spec: _Spec = field(default_factory=_Spec)


class _Verdict(Struct):
    allowed: bool = False


class _Review(Struct):
    status: _Verdict = field(default_factory=_Verdict)


_WORKLOADS, _REVIEWS = Decoder(ObjectList[_Workload]), Decoder(_Review)


def workloads(connection: Connection) -> tuple[WorkloadFacts, ...]:
    """Find the DaemonSets and Deployments that handle notices, by their images."""
    return tuple(
        handler
        for kind, plural in _KINDS.items()
        for one in connection.call(
            partial(list_objects, path=f"/apis/apps/v1/{plural}", pages=_WORKLOADS)
        )
        if (handler := _handler(kind, one)) is not None
    )


def _handler(kind: str, one: _Workload) -> WorkloadFacts | None:
    for container in one.spec.template.spec.containers:
        program = next((named for part, named in _IMAGES.items() if part in container.image), None)
        if program is not None:
            queues = (v.value for v in container.env if v.name in _QUEUE_VARIABLES and v.value)
            queue = next(queues, "").rpartition("/")[2]
            return WorkloadFacts(kind, one.metadata.namespace, one.metadata.name, program, queue)
    return None


def namespaces_of_blocked_pods(connection: Connection) -> tuple[str, ...]:
    """Return the namespaces in which a budget allows no disruption although its pods are healthy:
    workloads with too few replicas, which surge if they may."""
    path = "/apis/policy/v1/poddisruptionbudgets"
    budgets = connection.call(lambda one: list_objects(one, path, BUDGETS))
    kept = (one.metadata for one in budgets if _blocks_by_size(one))
    return tuple(sorted({one.namespace for one in kept if one and one.namespace}))


def _blocks_by_size(budget: Budget) -> bool:
    status = budget.status
    if status is None or status.disruptions_allowed:
        return False
    return 0 < (status.expected_pods or 0) <= (status.current_healthy or 0)


def missing_rights(connection: Connection, rights: Sequence[Right]) -> tuple[Right, ...]:
    """Ask the API server which of these rights the groups do not have: one SubjectAccessReview for
    each."""
    allowed = in_parallel(partial(_is_allowed, connection), rights, AT_ONCE)
    return tuple(right for right, allows in zip(rights, allowed, strict=True) if not allows)


def _is_allowed(connection: Connection, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.api_group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec = {"resourceAttributes": attributes, "user": "leeway-doctor", "groups": [right.group]}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}

    def ask(connection: Connection) -> bool:
        response = connection.plain.post(REVIEWS, json=body)
        raise_for_status(response)
        return read_json(response.content, _REVIEWS).status.allowed

    return connection.call(ask)
