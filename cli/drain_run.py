"""One run of `leeway drain`: all nodes decided first, then drained side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Thread
from typing import Any

from leeway.clock import Clock
from leeway.drain.answers import Meaning, read_answer
from leeway.drain.deadline import Terms, grace_that_fits
from leeway.drain.decide_pod import PodAction, PodDecision, Refusal, decide_pod
from leeway.drain.executor import NODE_CHECK_VALID_FOR, DrainExecutor, NodeIdentity
from leeway.drain.progress import Drain, PodProgress, RemovalMethod, Stage
from leeway.drain.reasons import NODE_NAME_REUSED, POD_EVICTED
from leeway.kubernetes.lightkube_cluster import LightkubeCluster
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.printable import printable

from cli.errors import CannotBeDoneError
from cli.output import Format, print_json, results, show, tell
from cli.pod_plans import pods_as_data, pods_as_table
from cli.refusals import refusal, warnings

FOREVER = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What is to happen on a node, which its machine's UID identifies; `refused` is why nothing
    may, empty if it may."""

    node: str
    machine: NodeIdentity
    cordoned: bool
    decisions: tuple[PodDecision, ...]
    refused: str

    @property
    def pods(self) -> list[Pod]:
        """The node's pods."""
        return [decision.pod for decision in self.decisions]


@dataclass(frozen=True, slots=True)
class DrainRun:
    """Drains nodes of one cluster on the same terms.

    `allowed` are kubectl's flags that allow what it refuses without them; `timeout` None waits
    for ever.
    """

    cluster: LightkubeCluster
    clock: Clock
    terms: Terms
    timeout: timedelta | None
    pod_selector: str
    allowed: frozenset[str]
    output: Format

    def drain(self, nodes: Sequence[str], as_list: bool) -> None:
        """Cordon and drain these nodes, but for those that are refused.

        Raises:
            CannotBeDoneError: not all of them are drained.
        """
        plans = [self._decide(node) for node in nodes]
        going = [plan for plan in plans if not plan.refused]
        for plan in going:
            if said := warnings(plan.decisions):
                tell(f"Warning: {said}")
            if not plan.cordoned:
                self.cluster.cordon(plan.node, None, uid=plan.machine.uid)
            already = "already " if plan.cordoned else ""
            tell(f"node/{plan.node} {already}cordoned")
        try:
            drains, problems = self._work({plan.node: plan.machine for plan in going})
        except KeyboardInterrupt:
            for plan in going:
                tell(f"node/{plan.node} stays cordoned: kubectl uncordon {plan.node}")
            raise
        problems = {plan.node: plan.refused for plan in plans if plan.refused} | problems
        if self.output is Format.JSON:
            documents = [
                _as_data(plan, drains.get(plan.node), plan.node not in problems) for plan in plans
            ]
            self._print(documents, as_list)
        else:
            for node in drains:
                show(f"node/{node} {'not drained' if node in problems else 'drained'}")
        if problems:
            said = "; ".join(f"node {node} is not drained: {why}" for node, why in problems.items())
            raise CannotBeDoneError(said)

    def rehearse(self, nodes: Sequence[str], ask_server: bool, as_list: bool) -> None:
        """Say what would be done; with `ask_server` the API server checks every request.

        Raises:
            CannotBeDoneError: something of it is refused.
        """
        from leeway.retire_node.plan import plan_pod

        plans = [self._decide(node) for node in nodes]
        answers: dict[str, str] = {}
        for plan in plans:
            if ask_server and not plan.refused:
                self.cluster.cordon(plan.node, None, dry_run=True, uid=plan.machine.uid)
                answers |= self._ask(plan)
        mode = "server dry run" if ask_server else "dry run"
        now = self.clock.now()
        documents = []
        for plan in plans:
            pod_plans = [plan_pod(pod, self.terms, now) for pod in plan.pods]
            rows = pods_as_data(pod_plans)
            for row in rows:
                if ask_server:
                    row["answer"] = answers.get(row["pod"])
            refused = {"refused": plan.refused} if plan.refused else {}
            documents.append({"node": plan.node, "dryRun": True, **refused, "pods": rows})
            if self.output is Format.TABLE and not plan.refused:
                already = "already" if plan.cordoned else "would be"
                results().print(f"node/{plan.node} {already} cordoned ({mode})")
                results().print(pods_as_table(pod_plans, answers))
        if self.output is Format.JSON:
            self._print(documents, as_list)
        problems = "; ".join(f"node {p.node}: {p.refused}" for p in plans if p.refused)
        if problems:
            raise CannotBeDoneError(problems)

    def _decide(self, name: str) -> NodePlan:
        node = self.cluster.node(name)
        if node is None:
            raise CannotBeDoneError(f'nodes "{name}" not found')
        pods = self.cluster.pods_on(name, self.pod_selector)
        now, skip = self.clock.now(), self.terms.skip_deleted_for
        decisions = tuple(decide_pod(pod, now, skip_deleted_for=skip) for pod in pods)
        refused = refusal(decisions, self.allowed)
        # Not seen lately: decisions and cordons of many nodes take a while, so that the drain looks
        # the node up once more when it has listed its pods.
        machine = NodeIdentity(node.uid, now - NODE_CHECK_VALID_FOR)
        return NodePlan(name, machine, node.unschedulable, decisions, refused)

    def _work(
        self, machines: Mapping[str, NodeIdentity]
    ) -> tuple[dict[str, Drain], dict[str, str]]:
        """Drain to the end; the drains, and why those are not complete that are not."""
        nodes = list(machines)
        drains: dict[str, Drain] = dict.fromkeys(nodes, Drain())
        problems: dict[str, str] = {}

        def work(node: str) -> None:
            try:
                drains[node] = self._drain(node, machines[node])
            except (ClusterRefused, ClusterUnavailable) as error:
                problems[node] = str(error)
            except Exception as error:  # noqa: BLE001 (a thread's end would pass unseen)
                problems[node] = f"{type(error).__name__}: {error}"
            else:
                if problem := self._problem(drains[node]):
                    problems[node] = problem

        # Daemons, so that an interrupt from the keyboard ends them all.
        threads = [Thread(target=work, args=(node,), daemon=True) for node in nodes[1:]]
        for thread in threads:
            thread.start()
        if nodes:
            work(nodes[0])
        for thread in threads:
            thread.join()
        return drains, problems

    def _drain(self, node: str, machine: NodeIdentity) -> Drain:
        now = self.clock.now()
        until = min(
            self.terms.deadline or now + FOREVER,
            now + self.timeout if self.timeout else now + FOREVER,
        )
        draining = DrainExecutor(self.cluster, self.clock, _watcher(), terminates=False)
        terms = replace(self.terms, refused=frozenset(set(Refusal) - self.allowed))
        return draining.run(
            node, Drain(), terms, until, selector=self.pod_selector, identity=machine
        )

    def _problem(self, drain: Drain) -> str:
        """Say why a node is not drained; empty where it is."""
        displaced = any(pod.reason.code == NODE_NAME_REUSED.name for pod in drain.pods.values())
        if displaced and not drain.at(Stage.FAILED):
            return NODE_NAME_REUSED().message
        return "" if drain.drained else self._why(drain)

    def _why(self, drain: Drain) -> str:
        failed = [f"{pod.pod}: {pod.reason}" for pod in drain.at(Stage.FAILED)]
        if drain.over or failed:
            return "; ".join(failed) or str(drain.listed_late)
        waited_for = ", ".join(
            pod.pod for pod in drain.pods.values() if pod.stage not in {Stage.LEFT, Stage.GONE}
        )
        return str(
            drain.problem or f"global timeout reached: {self.timeout}, waiting for {waited_for}"
        )

    def _ask(self, plan: NodePlan) -> dict[str, str]:
        """Make every request of a plan as a dry run; what the server said to each pod's."""
        now = self.clock.now()
        make = self.cluster.delete if self.terms.bypass_budgets else self.cluster.evict
        answers = {}
        for decision in plan.decisions:
            if decision.action is PodAction.EVICT:
                grace = grace_that_fits(decision.pod, self.terms, now)
                answer = read_answer(make(decision.pod, grace, dry_run=True))
                granted = answer.meaning is Meaning.ACCEPTED
                answers[decision.pod.key] = "granted" if granted else answer.reason.message
        return answers

    def _print(self, documents: list[dict[str, Any]], as_list: bool) -> None:
        """Print one document for one node that was named, a list of them for several."""
        if len(documents) == 1 and not as_list:
            print_json(documents[0])
        else:
            print_json({"nodes": documents})


def _watcher() -> Callable[[Drain], None]:
    """Return what says on stderr what becomes of each pod as it does."""
    said: dict[str, str] = {}
    staying: set[str] | None = None

    def watch(drain: Drain) -> None:
        nonlocal staying
        if staying is None and drain.listed:
            # Those that stay were warned of before; what comes back to stay is news.
            staying = {pod.uid for pod in drain.at(Stage.LEFT)}
        lines = {
            uid: line
            for uid, pod in drain.pods.items()
            if uid not in (staying or ())
            and (line := printable(_line(pod)))
            and said.get(uid) != line
        }
        said.update(lines)
        if lines:
            tell("\n".join(lines.values()))

    return watch


def _line(pod: PodProgress) -> str:
    """Say where a pod stands, in kubectl's words where it has some."""
    match pod.stage:
        case Stage.PENDING if not pod.attempts:
            return ""
        case Stage.TERMINATING if (
            pod.method is RemovalMethod.EVICT and pod.reason.code == POD_EVICTED.name
        ):
            return f"evicting pod {pod.pod}"
        case Stage.GONE if (
            pod.method is RemovalMethod.EVICT and pod.reason.code == POD_EVICTED.name
        ):
            return f"pod/{pod.pod} evicted"
        case Stage.DETACHING:
            return f"pod/{pod.pod} is gone, waiting for its volumes: {', '.join(pod.attached)}"
        case _:
            return f"pod/{pod.pod} {pod.stage}: {pod.reason}"


def _as_data(plan: NodePlan, drain: Drain | None, drained: bool) -> dict[str, Any]:
    """Return what became of a node, which has no drain if it was refused."""
    from leeway.typed_json import adapter_of

    if drain is None:
        return {"node": plan.node, "drained": False, "refused": plan.refused, "pods": []}
    writer = adapter_of(PodProgress)
    pods = [writer.dump_python(pod, mode="json") for pod in drain.pods.values()]
    return {"node": plan.node, "drained": drained, "pods": pods}
