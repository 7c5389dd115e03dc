"""Reads the cluster of a rehearsal: from an API server, or from objects of any source.

How many pods must stay healthy is read from PodDisruptionBudgets. Source: Kubernetes documentation,
"Specifying a Disruption Budget for your Application": percentages are of the replicas of the pods'
owners, and round up.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from leeway.instances.facts import OwnerKind, owner_of
from leeway.kubernetes.cluster_states import PATHS
from leeway.kubernetes.connection import ApiError, Connection, is_unknown_path, without_nulls
from leeway.kubernetes.http_cluster import selects
from leeway.kubernetes.list_watch import ObjectList, list_objects
from leeway.kubernetes.objects import LabelSelector
from leeway.kubernetes.objects import Pod as PodObject
from leeway.kubernetes.translate import to_pod
from leeway.ports.kubernetes import ClusterForbidden, ClusterUnavailable
from leeway.ports.kubernetes_objects import RETIRING, Controller, Pod
from leeway.printable import printable
from leeway.provisioning.cluster_state import read_time
from leeway.provisioning.kept_objects import KINDS, KeptObjects
from leeway.retirement.pods import DAEMONSET
from leeway.selection.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    LAUNCHED,
    NODEPOOL,
    ZONE,
    normalised,
)
from leeway.selection.pods import Taint, Toleration
from leeway.selection.reading.objects import (
    Document,
    bound_node,
    instance_of,
    is_finished,
    key_of,
    name_of,
    namespace_of,
)
from lightkube.core.dictmixin import DictMixin
from lightkube.resources.apps_v1 import DaemonSet, Deployment, ReplicaSet, StatefulSet
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod as WholePod
from lightkube.resources.core_v1 import ReplicationController
from lightkube.resources.policy_v1 import PodDisruptionBudget
from msgspec import MsgspecError, convert
from msgspec.json import Decoder

from leeway_cli.errors import CannotBeDoneError
from leeway_cli.output import write_stderr
from leeway_cli.rehearse.cluster import Budget, Cluster, NodeFacts, Pace, RunningPod, Workload

_PERCENT = re.compile(r"(\d{1,5})%", re.ASCII)

type Selects = Callable[[Mapping[str, str]], bool]


def selector_of(budget: Document) -> Selects:
    """Return whether a validated budget selects the pods with some labels."""
    given = (budget.get("spec") or {}).get("selector")
    read = convert(given, LabelSelector) if given is not None else None
    return lambda labels: selects(read, labels)


def budget_of(document: Document, pods: int, replicas: int, manager: str) -> Budget:
    """Read a validated budget. `pods` are those that it selects now, `replicas` those that their
    workloads ask for. The disruption controller's own numbers in its status take precedence: it
    knows the scale of custom workloads too."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    generation = (document.get("metadata") or {}).get("generation") or 0
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    rule = f"maxUnavailable: {most}" if most is not None else f"minAvailable: {least or 1}"
    expected, desired, problem = _computed(most, least, pods, replicas)
    if "desiredHealthy" in status and (status.get("observedGeneration") or 0) >= generation:
        expected, desired = status.get("expectedPods") or 0, status["desiredHealthy"]
        problem = _sync_problem(status)
    return Budget(
        namespace_of(document),
        name_of(document),
        desired,
        expected,
        problem,
        evicts_unready=spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
        written=rule,
        manager=manager,
    )


def _computed(
    most: int | str | None, least: int | str | None, pods: int, replicas: int
) -> tuple[int, int, str]:
    """Return the expected pods, those that must stay healthy, and a problem."""
    if most is None and (least is None or isinstance(least, int)):
        return pods, 1 if least is None else max(least, 0), ""
    given = most if most is not None else least
    share = _share(given, replicas)
    if share is None:
        return replicas, replicas, f"{given!r} is neither a number nor a percentage"
    return replicas, max(0, replicas - share) if most is not None else share, ""


def _share(given: int | str | None, of: int) -> int | None:
    if isinstance(given, int):
        return max(given, 0)
    found = _PERCENT.fullmatch(given or "")
    return math.ceil(of * int(found[1]) / 100) if found else None


def _sync_problem(status: Document) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionAllowed" and condition.get("reason") == "SyncFailed":
            return str(condition.get("message") or "the disruption controller cannot read it")
    return ""


type _Key = tuple[str, str, str]

TEMPLATES = {"CronJob": "spec.jobTemplate.spec.template."}
"""Where a kind has its pod template, if that is not `spec.template.`."""

_HASH = "pod-template-hash"
_TOOLS = {
    "meta.helm.sh/release-name": "Helm release",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
}
"""Annotations and labels of tools that write objects, with what their values name."""


type _Objects = Mapping[_Key, Document]


def _workload_of(pod: Document, objects: _Objects) -> Workload:
    """Return the workload of a validated pod: the topmost controller among the objects."""
    namespace, owner = namespace_of(pod), _controller(pod)
    if owner is None:
        return Workload("Pod", namespace, name_of(pod), 1, "", manager=manager_of(pod))
    kind, name = _above(pod, objects, (owner[0], namespace, owner[1])) or owner
    document = objects.get((kind, namespace, name)) or {}
    spec: Any = document.get("spec") or {}
    replicas = spec.get("replicas")
    return Workload(
        kind,
        namespace,
        name,
        1 if replicas is None else replicas,
        TEMPLATES.get(kind, "spec.template."),
        in_order=kind == "StatefulSet" and spec.get("podManagementPolicy") != "Parallel",
        manager=manager_of(document),
        known=replicas is not None,
    )


def _above(pod: Document, objects: _Objects, key: _Key) -> tuple[str, str] | None:
    """Return the controller of a pod's controller. A ReplicaSet that is not among the objects is
    named after its Deployment, with the hash that is a label of the pod."""
    if (document := objects.get(key)) is not None:
        return _controller(document)
    kind, _, name = key
    template = ((pod.get("metadata") or {}).get("labels") or {}).get(_HASH)
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        return "Deployment", name.removesuffix(f"-{template}")
    return None


def _controller(document: Document) -> tuple[str, str] | None:
    for owner in (document.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller"):
            return printable(owner["kind"]), printable(owner["name"])
    return None


def manager_of(document: Document) -> str:
    """Return the tool that writes an object, by its annotations or labels, or else the last field
    manager of its spec; empty if nothing says it."""
    metadata: Any = document.get("metadata") or {}
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    for key, tool in _TOOLS.items():
        if key in marks:
            return printable(f"{tool} {marks[key]}")
    writers = [
        entry
        for entry in metadata.get("managedFields") or ()
        if isinstance(entry, dict)
        and not entry.get("subresource")
        and "f:spec" in (entry.get("fieldsV1") or {})
    ]
    writers.sort(key=lambda entry: str(entry.get("time") or ""))
    return printable(str(writers[-1].get("manager") or "")) if writers else ""


_NODE_GROUPS = ("eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name", NODEPOOL)
"""The labels of nodes with the names of their groups and pools."""

_CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
_TAINTS = (
    Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
    Taint(RETIRING, "spot-interruption", "NoSchedule"),
)
"""The taints of a node that retires."""

_LONGEST_START, _SHORTEST_START = 600.0, 1.0
"""Seconds. The times in conditions are whole seconds, and a pod may become Ready again long after
its start."""


def read_objects(
    documents: Sequence[Document], pace: Pace, read_at: datetime, own_pools: frozenset[str]
) -> Cluster:
    """Read a cluster. `own_pools` are the names of the pools from which Leeway launches.

    An object of another shape than Kubernetes gives it is not read, and a sentence says so.
    """
    problems = {id(d): _problem(d) for d in documents if d.get("kind") in _KINDS}
    readable = [d for d in documents if not problems.get(id(d))]
    kept = KeptObjects(complete=False)
    for document in documents:
        if document.get("kind") in KINDS:
            kept.put(str(document["kind"]), document)
    state = kept.state(read_at)
    running, workloads = _running(readable, pace)
    budgets, selectors = _budgets(readable, running, workloads)
    unread = [problem for problem in problems.values() if problem]
    unread += [str(one.reason) for one in state.unreadable if one.kind not in _KINDS]
    return Cluster(
        read_at,
        {name_of(d): _node(d, own_pools) for d in documents if d.get("kind") == "Node"},
        tuple(_with_budgets(one, selectors) for one in running),
        workloads,
        budgets,
        state,
        tuple(dict.fromkeys(unread)),
    )


_KINDS: dict[str, type[DictMixin]] = {
    "DaemonSet": DaemonSet,
    "Deployment": Deployment,
    "Job": Job,
    "Pod": WholePod,
    "PodDisruptionBudget": PodDisruptionBudget,
    "ReplicaSet": ReplicaSet,
    "ReplicationController": ReplicationController,
    "StatefulSet": StatefulSet,
}
"""The kinds that are read here, besides those that selection reads."""


def _problem(document: Document) -> str:
    """Return a sentence about an object that does not have the shape of its kind, else nothing."""
    try:
        _KINDS[str(document["kind"])].from_dict(dict(document))
    except (MsgspecError, ValueError) as error:
        name = printable(key_of(document))
        return f"{document['kind']} {name} is not read: {printable(str(error))}"
    return ""


def taken_at(documents: Iterable[Document]) -> datetime:
    """Return the newest time in the pods of a file: about when kubectl wrote it. A rehearsal of the
    file then has the same result on every day."""
    moments = [datetime.fromtimestamp(0, UTC)]
    for document in documents:
        if document.get("kind") != "Pod" or _problem(document):
            continue
        metadata: Any = document.get("metadata") or {}
        texts = [metadata.get("creationTimestamp")]
        conditions = (document.get("status") or {}).get("conditions") or ()
        texts += [condition.get("lastTransitionTime") for condition in conditions]
        moments += [moment for text in texts if (moment := read_time(text)) is not None]
        deletion = read_time(metadata.get("deletionTimestamp"))
        grace = metadata.get("deletionGracePeriodSeconds") or 0
        if deletion is not None and 0 <= grace < _MOST_SECONDS:
            moments.append(deletion - timedelta(seconds=grace))
    return max(moments)


_MOST_SECONDS = 100_000_000


def _running(
    documents: Sequence[Document], pace: Pace
) -> tuple[list[RunningPod], dict[str, Workload]]:
    """Return the pods on nodes, and their workloads by key. A workload whose replicas are not known
    has as many as it has pods."""
    objects = {
        (str(d["kind"]), namespace_of(d), name_of(d)): d
        for d in documents
        if d.get("kind") in _KINDS
    }
    daemons = {f"{namespace}/{name}" for kind, namespace, name in objects if kind == DAEMONSET}
    running, workloads = [], {}
    fastest: dict[str, float] = {}
    pods: dict[str, int] = defaultdict(int)
    for document in documents:
        if document.get("kind") != "Pod" or not bound_node(document):
            continue
        workload = _workload_of(document, objects)
        key, started_in = workload.key, _started_in(document)
        pod = _looked_up(to_pod(convert(document, PodObject)), daemons)
        workloads[key] = workload
        pods[key] += pod.deletion is None
        if started_in is not None:
            fastest[key] = min(started_in, fastest.get(key, _LONGEST_START))
        finalizers = (document.get("metadata") or {}).get("finalizers") or ()
        running.append(
            RunningPod(
                pod=pod,
                node=bound_node(document),
                workload=key,
                ready=_is_ready(document) and not is_finished(document),
                starts_in=pace.pod_start,
                stops_in=pace.pod_stop,
                returns=_tolerates_retirement(document),
                finalizers=tuple(map(printable, finalizers)),
                ordinal=_ordinal(name_of(document)),
            )
        )
    timed = [replace(one, starts_in=fastest.get(one.workload, pace.pod_start)) for one in running]
    return timed, {
        key: workload if workload.known else replace(workload, replicas=max(1, pods[key]))
        for key, workload in workloads.items()
    }


def _looked_up(pod: Pod, daemons: set[str]) -> Pod:
    """Return the pod with whether its DaemonSet exists, if the DaemonSets are known."""
    owner = pod.controller
    if owner is None or owner.kind != DAEMONSET or owner.exists is not None or not daemons:
        return pod
    exists = f"{pod.namespace}/{owner.name}" in daemons
    return replace(pod, controller=Controller(owner.kind, owner.name, exists))


def _started_in(document: Document) -> float | None:
    """Return how many seconds after its binding a pod became Ready; None if that is not known."""
    since: dict[str, datetime] = {}
    for condition in (document.get("status") or {}).get("conditions") or ():
        moment = read_time(condition.get("lastTransitionTime"))
        if condition.get("status") == "True" and moment is not None:
            since[str(condition.get("type"))] = moment
    if "Ready" not in since or "PodScheduled" not in since:
        return None
    took = (since["Ready"] - since["PodScheduled"]).total_seconds()
    return max(took, _SHORTEST_START) if 0 <= took <= _LONGEST_START else None


def _is_ready(document: Document) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _tolerates_retirement(document: Document) -> bool:
    given = (document.get("spec") or {}).get("tolerations") or ()
    tolerations = [
        Toleration(
            one.get("key") or "",
            one.get("operator") or "Equal",
            one.get("value") or "",
            one.get("effect") or "",
        )
        for one in given
    ]
    return all(any(one.tolerates(taint) for one in tolerations) for taint in _TAINTS)


def _ordinal(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else 0


def _budgets(
    documents: Sequence[Document],
    running: Sequence[RunningPod],
    workloads: Mapping[str, Workload],
) -> tuple[dict[str, Budget], dict[str, dict[str, Selects]]]:
    """Return the budgets by key, and their selectors by namespace and key."""
    budgets: dict[str, Budget] = {}
    selectors: dict[str, dict[str, Selects]] = defaultdict(dict)
    by_namespace: dict[str, list[RunningPod]] = defaultdict(list)
    for one in running:
        by_namespace[one.pod.namespace].append(one)
    for document in documents:
        if document.get("kind") != "PodDisruptionBudget":
            continue
        namespace, chosen = namespace_of(document), selector_of(document)
        selected = [one for one in by_namespace[namespace] if chosen(one.pod.labels)]
        replicas = sum(workloads[key].replicas for key in {one.workload for one in selected})
        budget = budget_of(document, len(selected), replicas, manager_of(document))
        budgets[budget.key] = budget
        selectors[namespace][budget.key] = chosen
    return budgets, selectors


def _with_budgets(one: RunningPod, selectors: Mapping[str, Mapping[str, Selects]]) -> RunningPod:
    of_namespace = selectors.get(one.pod.namespace, {})
    keys = tuple(key for key, chosen in of_namespace.items() if chosen(one.pod.labels))
    return replace(one, budgets=keys) if keys else one


def _node(document: Document, own_pools: frozenset[str]) -> NodeFacts:
    labels = (document.get("metadata") or {}).get("labels") or {}
    labels = {normalised(key): value for key, value in labels.items() if isinstance(value, str)}
    pool = labels.get(NODEPOOL, "")
    return NodeFacts(
        name=name_of(document),
        zone=labels.get(ZONE, ""),
        instance_type=labels.get(INSTANCE_TYPE, ""),
        capacity_type=labels.get(
            CAPACITY_TYPE, labels.get(_CAPACITY_TYPE, "").lower().replace("_", "-")
        ),
        instance=instance_of(document),
        groups=tuple(dict.fromkeys(labels[key] for key in _NODE_GROUPS if labels.get(key))),
        pool=pool if pool in own_pools else "",
        retires_itself=_retires_itself(labels, pool in own_pools or LAUNCHED in labels),
    )


def _retires_itself(labels: Mapping[str, str], own: bool) -> str:
    """Return the controller that drains a node itself, by the node's labels."""
    if name := labels.get("eks.amazonaws.com/nodegroup"):
        return f"managed node group {name}"
    if owner_of({}, labels).kind in {OwnerKind.AUTO_MODE, OwnerKind.FARGATE}:
        return f"EKS {owner_of({}, labels).kind}"
    if labels.get(NODEPOOL) and not own:
        return f"Karpenter's pool {labels[NODEPOOL]}"
    return ""


_NEEDED = {
    "Node": PATHS["Node"],
    "Pod": PATHS["Pod"],
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
}
_OTHERS = {
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    **{kind: path for kind, path in PATHS.items() if kind not in _NEEDED},
}
"""Without them the rehearsal knows less: how many replicas a workload has, where volumes are."""


_PAGES = Decoder(ObjectList[dict[str, Any]])


def read_documents(connection: Connection) -> list[Document]:
    """List the objects of a cluster.

    Raises:
        CannotBeDoneError: the user may not list nodes, pods or budgets.
        ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
    """
    found: list[Document] = []
    forbidden = []
    for kind, path in (_NEEDED | _OTHERS).items():
        try:
            found += connection.call(partial(_list, kind=kind, path=path))
        except ClusterForbidden:
            forbidden.append(kind)
        except ApiError:
            continue  # the API server does not have the kind
        except ClusterUnavailable as error:
            if not is_unknown_path(error):
                raise
    if missing := [path.rpartition("/")[2] for kind, path in _NEEDED.items() if kind in forbidden]:
        raise CannotBeDoneError(
            f"The user of the kubeconfig may not list {', '.join(missing)}. Grant the verb list on "
            "them in all namespaces."
        )
    for kind in forbidden:
        plural = _OTHERS[kind].rpartition("/")[2]
        write_stderr(
            f"warning: the user of the kubeconfig may not list {plural}: they are not considered"
        )
    return found


def _list(connection: Connection, kind: str, path: str) -> list[Document]:
    return [
        {**without_nulls(item), "kind": kind} for item in list_objects(connection, path, _PAGES)
    ]
