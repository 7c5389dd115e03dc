"""Computes the total requests of a pod from its spec."""

from collections.abc import Mapping
from typing import Any

from leeway.selection.quantities import BadQuantity
from leeway.selection.resources import Resources


def requests_of(spec: Mapping[str, Any]) -> Resources:
    """Sum the requests of a pod.

    Init containers run one after another, each next to the sidecars (init containers with
    restartPolicy Always) before it. Containers run next to all sidecars. The pod needs the maximum
    of both, plus its overhead. Pod-level requests replace those of the containers; pod-level limits
    apply to resources without any request.

    Source: Kubernetes documentation, "Sidecar Containers" (resource sharing within containers),
    "Pod Overhead" and "Pod-level resources".

    Raises:
        BadQuantity: an amount is not a quantity.
    """
    sidecars = initializing = Resources()
    for container in spec.get("initContainers") or ():
        requested = _requested(container)
        if container.get("restartPolicy") == "Always":
            sidecars = sidecars + requested
            initializing = initializing.most(sidecars)
        else:
            initializing = initializing.most(sidecars + requested)
    running = sidecars
    for container in spec.get("containers") or ():
        running = running + _requested(container)
    of_containers = running.most(initializing)
    # Requests of containers have precedence over pod-level limits.
    of_pod = spec.get("resources") or {}
    total = {**_parsed(of_pod.get("limits")), **of_containers, **_parsed(of_pod.get("requests"))}
    return Resources(total) + _parsed(spec.get("overhead"))


def _requested(container: Mapping[str, Any]) -> Resources:
    """The requests of a container. A limit without a request is also a request."""
    resources = container.get("resources") or {}
    return _parsed({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _parsed(amounts: Mapping[str, Any] | None) -> Resources:
    read = Resources.parsed({name: str(amount) for name, amount in (amounts or {}).items()})
    for name, amount in read.items():
        if amount < 0:
            raise BadQuantity(f"expected an amount that is not negative, got {name} {amount}")
    return read
