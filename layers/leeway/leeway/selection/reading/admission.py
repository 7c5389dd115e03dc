"""The changes of the API server when it admits a pod: defaults of LimitRanges, and RuntimeClasses.

Source: Kubernetes documentation, "Limit Ranges", "Runtime Class" and "Pod Overhead"; the defaults
of a LimitRange's own fields follow `SetDefaults_LimitRangeItem`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leeway.selection.reading.objects import BadObject, Document


@dataclass(frozen=True)
class Defaults:
    """The defaults of a LimitRange for containers that do not set a resource."""

    requests: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Admission:
    """The changes of the API server: `defaults` by namespace in the order in which they apply;
    `runtimes` are RuntimeClasses by name."""

    defaults: Mapping[str, Sequence[Defaults]] = field(default_factory=dict)
    runtimes: Mapping[str, Document] = field(default_factory=dict)

    def admitted(self, pod: Document) -> Document:
        """Return a Pod or pod template as the API server stores it. A pod with a uid is stored
        already.

        Raises:
            BadObject: the API server rejects it.
        """
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        if metadata.get("uid"):
            return pod
        defaults = self.defaults.get(metadata.get("namespace") or "default", ())
        runtime = self.runtimes.get(spec.get("runtimeClassName") or "")
        if not defaults and runtime is None:
            return pod
        containers = {
            name: [_with_defaults(container, defaults) for container in spec[name]]
            for name in ("initContainers", "containers")
            if spec.get(name)
        }
        return {**pod, "spec": {**spec, **containers, **_from_runtime_class(spec, runtime or {})}}


def admission_of(documents: Iterable[Document]) -> Admission:
    """Read validated LimitRanges and RuntimeClasses."""
    ranges, runtimes = [], {}
    for document in documents:
        metadata = document.get("metadata") or {}
        if document.get("kind") == "RuntimeClass":
            runtimes[str(metadata.get("name"))] = document
        elif document.get("kind") == "LimitRange":
            namespace, name = metadata.get("namespace") or "default", metadata.get("name")
            limits = (document.get("spec") or {}).get("limits") or ()
            ranges += [
                (namespace, name, _defaults(limit))
                for limit in limits
                if limit.get("type") == "Container"
            ]
    defaults: dict[str, list[Defaults]] = {}
    for namespace, _, found in sorted(ranges, key=lambda each: each[:2]):
        defaults.setdefault(namespace, []).append(found)
    return Admission(defaults, runtimes)


def _defaults(limit: Document) -> Defaults:
    """The default limit is the maximum if it is not set; the default request is the limit, or else
    the minimum."""
    limits = {**(limit.get("max") or {}), **(limit.get("default") or {})}
    requests = {**(limit.get("min") or {}), **limits, **(limit.get("defaultRequest") or {})}
    return Defaults(requests, limits)


def _with_defaults(container: Document, defaults: Iterable[Defaults]) -> Document:
    resources = container.get("resources") or {}
    limits = dict(resources.get("limits") or {})
    # A limit without a request is also the request.
    requests = {**limits, **(resources.get("requests") or {})}
    for each in defaults:
        limits = {**each.limits, **limits}
        requests = {**each.requests, **requests}
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def _from_runtime_class(spec: Document, runtime: Document) -> dict[str, Any]:
    added: dict[str, Any] = {}
    overhead = (runtime.get("overhead") or {}).get("podFixed")
    if overhead and not spec.get("overhead"):
        added["overhead"] = overhead
    scheduling = runtime.get("scheduling") or {}
    own, needed = spec.get("nodeSelector") or {}, scheduling.get("nodeSelector") or {}
    for key in own.keys() & needed.keys():
        if own[key] != needed[key]:
            message = f"expected {needed[key]}, as the RuntimeClass says, got {own[key]}"
            raise BadObject(("spec", "nodeSelector", key), message)
    if needed:
        added["nodeSelector"] = {**own, **needed}
    if scheduling.get("tolerations"):
        added["tolerations"] = [*(spec.get("tolerations") or ()), *scheduling["tolerations"]]
    return added
