"""A cluster as a run of provision_nodes has read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leeway.capacity_requests.request import CapacityRequest
from leeway.launch.intent import LaunchIntent
from leeway.manifests.base import Manifest
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.demand import Demand
from leeway.provisioning.starting_nodes import StartingNode
from leeway.reasons import Reason
from leeway.selection.offers.catalog import Catalog


@dataclass(frozen=True, slots=True)
class ClusterRead:
    """What a run knows about its cluster before it launches.

    - `intents`: the launches of the last hour, read before the `state`.
    - `starting`: the nodes that start, by name. `requests`: the open ones of retirements.
    - `problems`: why the pods that are due soon are not all known.
    """

    cluster: str
    manifests: Sequence[Manifest]
    catalog: Catalog
    state: ClusterState
    intents: Sequence[LaunchIntent]
    requests: Sequence[CapacityRequest]
    starting: Mapping[str, StartingNode]
    demand: Demand
    problems: tuple[Reason, ...] = ()
