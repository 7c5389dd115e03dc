"""The report of one run for a cluster: its log line, metrics and the function's answer."""

from dataclasses import dataclass, field

from leeway.launch.outcome import LaunchedNode, PodWithoutNode
from leeway.provisioning.ports import CapacityReturned
from leeway.reasons import Reason


@dataclass(frozen=True, slots=True)
class ProvisioningReport:
    """The report of a run.

    - `result`: what the run did. `pods`: how many pods had no place.
    - `ahead`: the targets whose pods are due soon, and why their nodes are planned now.
    - `launch_problems`: errors of launches that were worked around, or that left pods without node.
    - `unreadable`: the objects of the cluster that Leeway can't read.
    - `failures`: what the run could not do; the run is repeated if `retry` is set.
    - `capped`: a brake left pods without a node: the maximum of launches in ten minutes, or vain
      launches.
    - `returned`: the capacity that it gives back.
    - `seconds`: how long the run took.
    """

    cluster: str
    why: str
    result: Reason
    pods: int = 0
    launched: tuple[LaunchedNode, ...] = ()
    without_node: tuple[PodWithoutNode, ...] = ()
    ahead: tuple[Reason, ...] = ()
    launch_problems: tuple[Reason, ...] = ()
    unreadable: tuple[Reason, ...] = ()
    failures: tuple[Reason, ...] = ()
    capped: bool = False
    returned: CapacityReturned = field(default_factory=CapacityReturned)
    retry: bool = False
    seconds: float = 0.0
