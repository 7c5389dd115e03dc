"""A Pod, converted to what a state needs of it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from leeway.provisioning.node_details import protected_until
from leeway.provisioning.pod_rules import is_mirror, needs_another_place, waits_for_node
from leeway.selection.pods import PodSpec
from leeway.selection.reading.object_schemas import check
from leeway.selection.reading.objects import (
    Document,
    bound_node,
    controller_of,
    creation_time,
    daemon_of,
    is_finished,
    is_terminating,
    namespace_of,
    node_of,
)
from leeway.selection.reading.pod_objects import requests_of, spec_without_volumes
from leeway.selection.resources import Resources

_NOT_IN_SPEC = frozenset({"nodeName", "schedulerName", "schedulingGates", "volumes"})
"""Fields of a pod's spec that its PodSpec without volumes does not depend on."""


@dataclass(frozen=True, slots=True)
class KeptPod:
    """A pod. `node` is the node that it is bound to or nominated for. `spec` is without the needs
    of its volumes; `volumes` is the part of the Pod's spec with its volumes, None without needs.
    `stays_with_node`: it is a DaemonSet's or a static pod, so that its node may be empty."""

    key: str
    uid: str
    created_at: datetime
    node: str
    bound: bool
    spec: PodSpec
    volumes: Document | None
    daemon: bool
    finished: bool
    terminating: bool
    waits: bool
    movable: bool
    controller: str = ""
    stays_with_node: bool = False
    protected_until: datetime | None = None


@dataclass(slots=True)
class PodSpecs:
    """PodSpecs by the content that they are read from: most pods of a workload have equal ones, and
    reading one takes longer than everything else that is done with a pod."""

    known: dict[tuple[str, bytes], PodSpec] = field(default_factory=dict)

    def of(self, pod: Document) -> PodSpec:
        """Read a pod without its volumes.

        Raises:
            BadObject: the pod is invalid.
        """
        spec = pod.get("spec") or {}
        content = {name: value for name, value in spec.items() if name not in _NOT_IN_SPEC}
        labels = (pod.get("metadata") or {}).get("labels")
        key = (namespace_of(pod), msgspec.json.encode((labels, content)))
        found = self.known.get(key)
        if found is None:
            check(pod, "Pod")
            # The API server has written the priority of a stored pod as a number.
            found = self.known[key] = spec_without_volumes(pod, {})
        return found

    def limit(self, pods: int) -> None:
        """Forget all if most are of pods that are gone."""
        if len(self.known) > 2 * pods + 1000:
            self.known.clear()


def read_pod(key: str, document: Document, specs: PodSpecs) -> KeptPod:
    """Read a Pod.

    Raises:
        BadObject: it is invalid.
    """
    metadata = document.get("metadata") or {}
    volumes = [each for each in (document.get("spec") or {}).get("volumes") or () if each]
    return KeptPod(
        key=key,
        uid=str(metadata.get("uid") or ""),
        created_at=creation_time(document),
        node=node_of(document),
        bound=bool(bound_node(document)),
        spec=specs.of(document),
        volumes={"volumes": volumes} if volumes else None,
        daemon=bool(daemon_of(document)),
        finished=is_finished(document),
        terminating=is_terminating(document),
        waits=waits_for_node(document),
        movable=needs_another_place(document),
        controller=controller_of(document),
        stays_with_node=bool(daemon_of(document)) or is_mirror(document),
        protected_until=protected_until(document),
    )


def reduced_pod(key: str, document: Document) -> KeptPod:
    """Return a bound pod that can't be read, with its requests if these can be read."""
    pods = Resources({"pods": 1})
    try:
        requests = requests_of(document.get("spec") or {}) + pods
    except (AttributeError, KeyError, TypeError, ValueError):
        requests = pods
    return KeptPod(
        key=key,
        uid="",
        created_at=datetime.max.replace(tzinfo=UTC),
        node=bound_node(document),
        bound=True,
        spec=PodSpec(namespace_of(document), requests=requests),
        volumes=None,
        daemon=False,
        finished=is_finished(document),
        terminating=is_terminating(document),
        waits=False,
        movable=False,
    )
