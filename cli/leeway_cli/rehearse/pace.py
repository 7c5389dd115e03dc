"""How long things take in a rehearsal, in seconds, as far as a cluster's objects do not say it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The assumptions of a rehearsal.

    - `late`: from the time in EC2's warning to its arrival.
    - `reaction`: from the arrival of a warning to the first eviction.
    - `node_start`: from the warning until a node that replaces another one is Ready.
    - `pod_start`: from the binding of a pod until it is Ready, if no pod of its workload shows it.
    - `pod_stop`: from a pod's SIGTERM to its end; None: it takes its whole grace period.
    - `detach`: from a pod's end until its volumes are detached.
    - `control_loop`: until a controller sees a change and creates a pod.
    - `node_removal`: from the end of a machine until its pods are created elsewhere.
    """

    late: float = 0.0
    reaction: float = 1.0
    node_start: float = 90.0
    pod_start: float = 10.0
    pod_stop: float | None = None
    detach: float = 5.0
    control_loop: float = 0.05
    node_removal: float = 40.0
