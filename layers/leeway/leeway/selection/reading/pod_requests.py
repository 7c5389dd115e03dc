"""What a pod requests in all, from its spec as the Kubernetes API has it."""

from collections.abc import Mapping
from typing import Any

from leeway.selection.quantities import BadQuantity
from leeway.selection.resources import Resources


def requests_of(spec: Mapping[str, Any]) -> Resources:
    """Add up a pod's requests.

    Init containers run one after the other, each beside the sidecars (init containers that restart
    always) that came before it; the containers run beside all sidecars. The pod needs the larger of
    both, its overhead on top. What the pod as a whole requests counts instead of its containers'; a
    limit of the whole counts where they request nothing.

    Source: Kubernetes documentation, "Sidecar Containers" (resource sharing within containers),
    "Pod Overhead" and "Pod-level resources".

    Raises:
        BadQuantity: an amount is no quantity.
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
    # What its containers request comes before the limit of the whole.
    of_pod = spec.get("resources") or {}
    total = {**_parsed(of_pod.get("limits")), **of_containers, **_parsed(of_pod.get("requests"))}
    return Resources(total) + _parsed(spec.get("overhead"))


def _requested(container: Mapping[str, Any]) -> Resources:
    """A container's requests; a limit without a request is one too."""
    resources = container.get("resources") or {}
    return _parsed({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _parsed(amounts: Mapping[str, Any] | None) -> Resources:
    read = Resources.parsed({name: str(amount) for name, amount in (amounts or {}).items()})
    for name, amount in read.items():
        if amount < 0:
            raise BadQuantity(f"expected an amount that is not negative, got {name} {amount}")
    return read
