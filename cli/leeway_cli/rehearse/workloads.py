"""The workloads of pods: the objects that their users change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leeway.printable import printable
from leeway.selection.reading.objects import Document, name_of, namespace_of

from leeway_cli.rehearse.cluster import Workload

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


@dataclass(frozen=True)
class Owners:
    """The objects that own pods, by kind, namespace and name."""

    objects: Mapping[_Key, Document]

    @classmethod
    def of(cls, documents: Sequence[Document]) -> "Owners":
        """Collect them."""
        return cls({(str(d["kind"]), namespace_of(d), name_of(d)): d for d in documents})

    def workload_of(self, pod: Document) -> Workload:
        """Return the workload of a validated pod: the topmost known controller."""
        namespace, owner = namespace_of(pod), _controller(pod)
        if owner is None:
            return Workload("Pod", namespace, name_of(pod), 1, "", manager=manager_of(pod))
        kind, name = owner
        above = self._above(pod, kind, namespace, name)
        if above is not None:
            kind, name = above
        document = self.objects.get((kind, namespace, name))
        spec: Any = (document or {}).get("spec") or {}
        replicas = spec.get("replicas")
        return Workload(
            kind,
            namespace,
            name,
            1 if replicas is None else replicas,
            TEMPLATES.get(kind, "spec.template."),
            in_order=kind == "StatefulSet" and spec.get("podManagementPolicy") != "Parallel",
            manager=manager_of(document or {}),
            known=document is not None and replicas is not None,
        )

    def _above(self, pod: Document, kind: str, namespace: str, name: str) -> tuple[str, str] | None:
        """Return the controller of a pod's controller. A ReplicaSet that is not among the objects
        is named after its Deployment, with the hash that is a label of the pod."""
        if (document := self.objects.get((kind, namespace, name))) is not None:
            return _controller(document)
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
