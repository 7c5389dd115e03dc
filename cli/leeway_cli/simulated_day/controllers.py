"""The controllers of a simulated cluster: Deployments, Jobs and PodDisruptionBudgets."""

from collections import Counter
from collections.abc import Mapping

from leeway.selection.pods import Pod

from leeway_cli.simulated_day.machines import Machine, SimulatedPod
from leeway_cli.simulated_day.workload import Job, Service, Workload

ROLLED = 4
"""The part of a service that a deploy replaces in a minute is one of so many."""

STARTS = 1
"""Minutes from the binding of a pod until it is Ready."""


class Controllers:
    """Creates and ends pods. `pods` are all of them by name, `pending` those without a node."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.pods: dict[str, SimulatedPod] = {}
        self.pending: list[SimulatedPod] = []
        self._created = 0
        self._deployed: dict[str, int] = {}
        self._unready: Counter[str] = Counter()

    def run(self, minute: int, machines: Mapping[str, Machine]) -> None:
        """End jobs, start new ones, deploy, and scale services."""
        for pod in [*self.pods.values()]:
            ends = pod.ends_at()
            if ends is not None and ends <= minute:
                self._end(pod, machines, minute)
        for job in self._workload.jobs_at(minute):
            self._create(job.name, job, minute)
        if deployed := self._workload.deploys.get(minute):
            self._deployed[deployed] = minute
        for service in self._workload.services.values():
            own = [one for one in self.pods.values() if one.owner == service.name]
            own = self._roll(own, service, machines, minute)
            self._scale(own, service, machines, minute)
            ready = sum(bool(one.node) and one.bound_at + STARTS <= minute for one in own)
            self._unready[service.name] = len(own) - ready

    def _roll(
        self,
        own: list[SimulatedPod],
        service: Service,
        machines: Mapping[str, Machine],
        minute: int,
    ) -> list[SimulatedPod]:
        """End some of the pods that are older than the last deploy; they are created anew."""
        since = self._deployed.get(service.name, -1)
        old = [one for one in own if one.created_at < since][: -(-len(own) // ROLLED)]
        for pod in old:
            self._end(pod, machines, minute)
        return [one for one in own if one not in old]

    def _scale(
        self,
        own: list[SimulatedPod],
        service: Service,
        machines: Mapping[str, Machine],
        minute: int,
    ) -> None:
        """Create what is missing; end what is too much as a ReplicaSet does: pending pods first,
        then those on nodes with the most replicas, then the newest."""
        wanted = self._workload.replicas(service, minute)
        own += [self._create(service.name, service, minute) for _ in range(wanted - len(own))]
        together = Counter(one.node for one in own)
        own.sort(key=lambda one: (bool(one.node), -together[one.node], -one.created_at))
        for pod in own[: max(len(own) - wanted, 0)]:
            self._end(pod, machines, minute)
            own.remove(pod)

    def _create(self, owner: str, of: Service | Job, minute: int) -> SimulatedPod:
        self._created += 1
        pod = SimulatedPod(Pod(f"default/{owner}-{self._created}", of.spec), owner, minute)
        if isinstance(of, Job):
            pod.job, pod.lasts, pod.protected = of, of.lasts, of.protected
        self.pods[pod.pod.name] = pod
        self.pending.append(pod)
        return pod

    def _end(self, pod: SimulatedPod, machines: Mapping[str, Machine], minute: int) -> None:
        del self.pods[pod.pod.name]
        if pod.node:
            machines[pod.node].remove(pod, minute)
        else:
            self.pending.remove(pod)

    def evict(self, pod: SimulatedPod, machine: Machine, minute: int, lost: bool) -> None:
        """End a pod of a node that goes; its controller creates it anew. A job begins again."""
        del self.pods[pod.pod.name]
        machine.remove(pod, minute)
        of = pod.job or self._workload.services[pod.owner]
        created = self._create(pod.owner, of, minute)
        created.lost, created.moved = lost, not lost
        self._unready[pod.owner] += 1

    def allows_eviction(self, pod: SimulatedPod) -> bool:
        """Whether the PodDisruptionBudget of a service allows to evict one more of its pods."""
        service = self._workload.services.get(pod.owner)
        if service is None:
            return True
        wanted = service.least
        return self._unready[pod.owner] < max(wanted // 5, 1)
