"""A model of a node, its workloads and their budgets, in simulated time.

The arithmetic is the disruption controller's: what may be disrupted is what is healthy beyond what
has to be, and an eviction takes one of it until a successor is healthy somewhere else.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from leeway.ports.kubernetes_objects import Controller, Pod, Response
from leeway.retirement.plan import give_up, next_moment, plan
from leeway.retirement.pods import Terms, read_answer
from leeway.retirement.progress import (
    Drain,
    PodRequest,
    RemovalMethod,
    expire,
    is_expired,
    observe,
    observe_volumes,
    record_answer,
)

TOLERATION = "(operator Exists for every key)"


@dataclass(frozen=True)
class Workload:
    """One ReplicaSet: pods here and elsewhere, and what its budget asks for.

    `budgets` is how many guard it; `needs` how many healthy pods they want; `starts_in` the seconds
    until a successor is healthy, None if it never is; `returns` says that successors come back to
    this very node. `detaches_in` are the seconds that its volumes take, None for never, `protected`
    those for which an annotation forbids to disrupt its pods.
    """

    name: str
    here: int
    elsewhere: int
    grace: int
    budgets: int = 0
    needs: int = 0
    starts_in: int | None = 3
    returns: bool = False
    stuck: bool = False
    critical: bool = False
    volumes: bool = False
    detaches_in: int | None = 3
    daemon: bool = False
    mirror: bool = False
    terminating: int | None = None
    protected: int | None = None

    def pod(self, name: str, now: datetime) -> Pod:
        """One of its pods."""
        protects = self.protected
        ends = None if self.terminating is None else now + timedelta(seconds=self.terminating)
        return Pod(
            namespace="shop",
            name=name,
            uid=f"uid-{name}",
            phase="Running",
            grace=self.grace,
            controller=Controller("DaemonSet" if self.daemon else "ReplicaSet", self.name, True),
            priority_class="system-cluster-critical" if self.critical else "",
            mirror=self.mirror,
            claims=(f"shop/{name}",) if self.volumes else (),
            deletion=ends,
            cordon_toleration=TOLERATION if self.returns else None,
            protected_until=None if protects is None else now + timedelta(seconds=protects),
        )


@dataclass
class Requested:
    """A request that was made. `beside` are the pods that were on the node at that time."""

    at: datetime
    ask: PodRequest
    granted: bool
    beside: tuple[Pod, ...]


@dataclass
class BudgetedNode:
    """The node, its workloads, and the time, which passes only here.

    Every `fails_every`-th request is answered by a 503 (0: none is).
    """

    now: datetime
    workloads: Collection[Workload]
    fails_every: int = 0
    pods: dict[str, Pod] = field(default_factory=dict)
    of: dict[str, Workload] = field(default_factory=dict)
    healthy: dict[str, int] = field(default_factory=dict)
    starting: list[tuple[datetime, Workload]] = field(default_factory=list)
    attached: dict[str, datetime | None] = field(default_factory=dict)
    asked: list[Requested] = field(default_factory=list)
    born: int = 0

    def __post_init__(self) -> None:
        for workload in self.workloads:
            self.healthy[workload.name] = workload.here + workload.elsewhere
            for _ in range(workload.here):
                self.add(workload)
                if workload.terminating is not None:
                    self._disrupt(workload)

    def add(self, workload: Workload) -> None:
        """Start one more of its pods here."""
        self.born += 1
        first = self.born <= sum(one.here for one in self.workloads)
        template = workload if first else replace(workload, terminating=None)
        pod = template.pod(f"{workload.name}-{self.born}", self.now)
        self.pods[pod.uid], self.of[pod.uid] = pod, workload

    def answer(self, ask: PodRequest) -> Response:
        """Answer a request as the API server does."""
        beside = tuple(self.pods.values())
        response = self._answer(ask)
        self.asked.append(Requested(self.now, ask, response.status in (200, 201), beside))
        return response

    def _answer(self, ask: PodRequest) -> Response:
        if self.fails_every and (len(self.asked) + 1) % self.fails_every == 0:
            return Response(503, "the server is currently unable to handle the request")
        pod = self.pods.get(ask.pod.uid)
        if pod is None:
            return Response(404, "not found")
        workload = self.of[pod.uid]
        if ask.method is RemovalMethod.EVICT and pod.deletion is None:
            if workload.budgets > 1:
                return Response(500, "This pod has more than one PodDisruptionBudget, which the")
            if workload.budgets and self.healthy[workload.name] <= workload.needs:
                message = (
                    f"The disruption budget {workload.name} needs {workload.needs} healthy pods"
                )
                return Response(429, causes=(("DisruptionBudget", message),))
        if pod.deletion is None:
            self._disrupt(workload)
        grace = pod.grace if ask.grace is None else ask.grace
        ends = self.now + timedelta(seconds=grace)
        if pod.deletion is None or ends < pod.deletion:
            self.pods[pod.uid] = replace(pod, deletion=ends)
        return Response(201 if ask.method is RemovalMethod.EVICT else 200)

    def _disrupt(self, workload: Workload) -> None:
        self.healthy[workload.name] -= 1
        if workload.starts_in is not None:
            at = self.now + timedelta(seconds=workload.starts_in)
            self.starting.append((at, workload))

    def pass_time(self, to: datetime) -> None:
        """Let pods end, successors start, and volumes be detached."""
        self.now = to
        for uid, pod in list(self.pods.items()):
            workload = self.of[uid]
            if pod.deletion is not None and pod.deletion <= to and not workload.stuck:
                del self.pods[uid]
                for claim in pod.claims:
                    takes = workload.detaches_in
                    self.attached[claim] = None if takes is None else to + timedelta(seconds=takes)
        for at, workload in [one for one in self.starting if one[0] <= to]:
            self.starting.remove((at, workload))
            self.healthy[workload.name] += 1
            if workload.returns:
                self.add(workload)

    def attached_claims(self) -> set[str]:
        """The claims whose volumes are attached now."""
        used = {claim for pod in self.pods.values() for claim in pod.claims}
        return used | {c for c, until in self.attached.items() if until is None or until > self.now}

    def drain(self, terms: Terms, most: int = 2_000) -> Drain:
        """Drain it to the end; poll whenever the drain itself would."""
        drain = Drain()
        for _ in range(most):
            pods = list(self.pods.values())
            drain = observe(drain, pods, terms, self.now)
            drain = observe_volumes(drain, pods, self.attached_claims(), self.now)
            expired = is_expired(terms, self.now)
            for _ in range(2 if expired else 1):
                drain = give_up(drain, pods, terms, self.now)
                for ask in plan(drain, pods, terms, self.now):
                    answer = read_answer(self.answer(ask))
                    drain = record_answer(drain, ask, answer, terms, self.now)
            if expired:
                return expire(drain)
            if drain.over:
                return drain
            self.pass_time(next_moment(drain, pods, terms, self.now))
        raise AssertionError(f"not over after {most} polls")
