"""One run of `leeway drain`: decides for all nodes first, then drains them concurrently."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any

from leeway.clock import Clock
from leeway.durations import render_duration
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.printable import printable
from leeway.retirement.executor import NODE_CHECK_VALID_FOR, DrainExecutor, NodeIdentity
from leeway.retirement.pods import (
    Meaning,
    PodAction,
    PodDecision,
    Refusal,
    Terms,
    decide_pod,
    grace_that_fits,
    read_answer,
)
from leeway.retirement.progress import Drain, PodProgress, RemovalMethod, Stage
from leeway.retirement.reasons import NODE_NAME_REUSED, POD_EVICTED
from leeway.typed_json import to_plain

from leeway_cli.errors import CannotBeDoneError
from leeway_cli.output import (
    Format,
    picked,
    print_json,
    stdout_console,
    table,
    write_stderr,
    write_stdout,
)

if TYPE_CHECKING:
    from leeway.interruption.explain import PodPlan
    from rich.table import Table

_REFUSED = {
    "--ignore-daemonsets": "cannot delete DaemonSet-managed Pods (use {} to ignore)",
    "--delete-emptydir-data": "cannot delete Pods with local storage (use {} to override)",
    "--force": "cannot delete Pods that declare no controller (use {} to override)",
}
_WARNED = {
    "--ignore-daemonsets": "ignoring DaemonSet-managed Pods",
    "--delete-emptydir-data": "deleting Pods with local storage",
    "--force": "deleting Pods that declare no controller",
}


def refusal(decisions: Sequence[PodDecision], allowed: Collection[str]) -> str:
    """Return the refusal of a drain, empty if there is none. It lists each pod once, with the first
    flag that the pod needs."""
    firsts = [
        (next((one.value for one in d.refusals if one.value not in allowed), ""), d.pod.key)
        for d in decisions
    ]
    return "; ".join(
        f"{words.format(flag)}: {', '.join(sorted(p for first, p in firsts if first == flag))}"
        for flag, words in _REFUSED.items()
        if any(first == flag for first, _ in firsts)
    )


def warnings(decisions: Sequence[PodDecision]) -> str:
    """Return the warnings about pods that only a flag allows, empty if there are none."""
    return "; ".join(
        f"{words}: {', '.join(sorted(pods))}"
        for flag, words in _WARNED.items()
        if (pods := list(_pods_with_warning(decisions, flag)))
    )


def _pods_with_warning(decisions: Sequence[PodDecision], flag: str) -> Iterator[str]:
    # kubectl prints only the last warning of a pod.
    return (d.pod.key for d in decisions if d.refusals and d.refusals[-1].value == flag)


FOREVER = timedelta(days=365)

ANSWERS_WITHIN = timedelta(seconds=20)
"""How long after --timeout a drain still waits for evictions that the API server has not answered.
An eviction that is abandoned may use the disruption budget without evicting its pod."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The plan for a node, identified by the UID of `machine`. `refused` is the reason why the node
    may not be drained, empty if it may."""

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
class DrainResults:
    """The results of drains, by node: the JSON documents, and the problems of the nodes that are
    not drained. `accepted` are the nodes that were not refused."""

    documents: dict[str, dict[str, Any]]
    problems: dict[str, str]
    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DrainRun:
    """Drains nodes of one cluster on the same terms.

    `allowed` are the given flags of kubectl that allow refused pods. Without a `timeout` the drain
    waits without limit. `excludes`: load balancers exclude the nodes from when the drain begins.
    """

    cluster: HttpCluster
    clock: Clock
    terms: Terms
    timeout: timedelta | None
    pod_selector: str
    allowed: frozenset[str]
    output: Format
    excludes: bool = False

    def drain(self, nodes: Sequence[str], as_list: bool) -> None:
        """Cordon and drain these nodes, except the refused ones, and print the result.

        Raises:
            CannotBeDoneError: a node is not drained.
        """
        results = self.carry_out([self.decide(node) for node in nodes])
        if self.output is Format.TABLE:
            for node in results.accepted:
                outcome = "not drained" if node in results.problems else "drained"
                write_stdout(f"node/{node} {outcome}")
        problems = [
            f"node {node} is not drained: {problem}" for node, problem in results.problems.items()
        ]
        self._finish([*results.documents.values()], as_list, problems)

    def carry_out(
        self, plans: Sequence[NodePlan], on_drained: Callable[[str], None] | None = None
    ) -> DrainResults:
        """Cordon and drain the nodes of these plans, except the refused ones and those that cannot
        be cordoned. `on_drained` is called with the name of each node, in the node's own thread,
        when it is drained."""
        accepted = [plan for plan in plans if not plan.refused]
        problems = {plan.node: plan.refused for plan in plans if plan.refused}
        cordoned: dict[str, NodeIdentity] = {}
        try:
            for plan in accepted:
                # After Ctrl-C, the API server may have carried out the request that is under way.
                cordoned[plan.node] = plan.machine
                if problem := self._cordon(plan):
                    del cordoned[plan.node]
                    problems[plan.node] = problem
            drained, incomplete = self._work(cordoned, on_drained)
        except KeyboardInterrupt:
            for node in cordoned:
                write_stderr(f"node/{node} stays cordoned: kubectl uncordon {node}")
            raise
        drains = {plan.node: drained.get(plan.node, Drain()) for plan in accepted}
        problems |= incomplete
        documents = {
            plan.node: _as_data(plan, drains.get(plan.node), plan.node not in problems)
            for plan in plans
        }
        return DrainResults(documents, problems, tuple(drains))

    def dry_run(self, nodes: Sequence[str], on_server: bool, as_list: bool) -> None:
        """Print the plan; with `on_server` the API server checks every request.

        Raises:
            CannotBeDoneError: a node is refused.
        """
        plans = [self.decide(node) for node in nodes]
        documents = self.preview(plans, on_server)
        problems = [f"node {p.node}: {p.refused}" for p in plans if p.refused]
        self._finish(documents, as_list, problems)

    def preview(self, plans: Sequence[NodePlan], on_server: bool) -> list[dict[str, Any]]:
        """Return the documents of these plans, and print them as tables if that is the output."""
        from leeway.interruption.explain import plan_pod

        answers: dict[str, str] = {}
        for plan in plans:
            if on_server and not plan.refused:
                self.cluster.cordon(plan.node, None, dry_run=True, uid=plan.machine.uid)
                answers |= self._dry_run_requests(plan)
        mode = "server dry run" if on_server else "dry run"
        now = self.clock.now()
        documents = []
        for plan in plans:
            pod_plans = [plan_pod(pod, self.terms, now) for pod in plan.pods]
            rows = pods_as_data(pod_plans)
            for row in rows:
                if on_server:
                    row["answer"] = answers.get(row["pod"])
            refused = {"refused": plan.refused} if plan.refused else {}
            documents.append({"node": plan.node, "dryRun": True, **refused, "pods": rows})
            if self.output is Format.TABLE and not plan.refused:
                already = "already" if plan.cordoned else "would be"
                stdout_console().print(f"node/{plan.node} {already} cordoned ({mode})")
                stdout_console().print(pods_as_table(pod_plans, answers))
        return documents

    def decide(self, name: str) -> NodePlan:
        """Decide for each pod of a node, and whether the node may be drained.

        Raises:
            CannotBeDoneError: the cluster has no such node.
        """
        node = self.cluster.node(name)
        if node is None:
            raise CannotBeDoneError(f"The cluster has no node {name}.")
        pods = self.cluster.pods_on(name, self.pod_selector)
        now, skip = self.clock.now(), self.terms.skip_deleted_for
        decisions = tuple(decide_pod(pod, now, skip_deleted_for=skip) for pod in pods)
        refused = refusal(decisions, self.allowed)
        # The decisions and cordons of many nodes take time. With this `seen_at` the drain reads the
        # node again after it has listed its pods.
        machine = NodeIdentity(node.uid, now - NODE_CHECK_VALID_FOR)
        return NodePlan(name, machine, node.unschedulable, decisions, refused)

    def _cordon(self, plan: NodePlan) -> str:
        """Cordon a node. Returns why it cannot be cordoned, empty if it is cordoned: the nodes are
        independent of each other, and one may have gone since it was decided for."""
        if warning := warnings(plan.decisions):
            write_stderr(f"Warning: {warning}")
        if not plan.cordoned:
            try:
                self.cluster.cordon(plan.node, None, uid=plan.machine.uid)
            except (ClusterRefused, ClusterUnavailable) as error:
                write_stderr(f"node/{plan.node} cannot be cordoned: {error}")
                return str(error)
        already = "already " if plan.cordoned else ""
        write_stderr(f"node/{plan.node} {already}cordoned")
        return ""

    def _work(
        self, machines: Mapping[str, NodeIdentity], on_drained: Callable[[str], None] | None
    ) -> tuple[dict[str, Drain], dict[str, str]]:
        """Drain the nodes concurrently. Returns the drains, and the problems of incomplete ones."""
        nodes = list(machines)
        drains: dict[str, Drain] = dict.fromkeys(nodes, Drain())
        problems: dict[str, str] = {}

        def work(node: str) -> None:
            try:
                drains[node] = self._drain(node, machines[node])
            except (ClusterRefused, ClusterUnavailable) as error:
                problems[node] = str(error)
            except Exception as error:  # noqa: BLE001 (else nobody sees the end of a thread)
                problems[node] = f"{type(error).__name__}: {error}"
            else:
                if problem := self._problem(drains[node]):
                    problems[node] = problem
                elif on_drained is not None:
                    on_drained(node)

        # Daemon threads end when Ctrl-C ends the command.
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
        watcher = _progress_printer()
        executor = DrainExecutor(self.cluster, self.clock, watcher, terminates=self.excludes)
        terms = replace(self.terms, refused=frozenset(set(Refusal) - self.allowed))
        return executor.run(
            node,
            Drain(),
            terms,
            until,
            selector=self.pod_selector,
            identity=machine,
            answers_until=until + ANSWERS_WITHIN,
        )

    def _problem(self, drain: Drain) -> str:
        """Return why a node is not drained, empty if it is drained."""
        displaced = any(pod.reason.code == NODE_NAME_REUSED.name for pod in drain.pods.values())
        if displaced and not drain.at(Stage.FAILED):
            return NODE_NAME_REUSED().message
        return "" if drain.drained else self._why_incomplete(drain)

    def _why_incomplete(self, drain: Drain) -> str:
        failed = [f"{pod.pod}: {pod.reason}" for pod in drain.at(Stage.FAILED)]
        if drain.over or failed:
            return "; ".join(failed) or str(drain.listed_late)
        waited_for = ", ".join(
            pod.pod for pod in drain.pods.values() if pod.stage not in {Stage.LEFT, Stage.GONE}
        )
        limit = "never" if self.timeout is None else render_duration(self.timeout)
        return str(drain.problem or f"global timeout reached: {limit}, waiting for {waited_for}")

    def _dry_run_requests(self, plan: NodePlan) -> dict[str, str]:
        """Send every request of a plan as a dry run. Returns the answers, by pod."""
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

    def _finish(
        self, documents: list[dict[str, Any]], as_list: bool, problems: Sequence[str]
    ) -> None:
        """Print the JSON result (the document of one named node, or a list for several nodes), or
        raise the error that carries it."""
        result = documents[0] if len(documents) == 1 and not as_list else {"nodes": documents}
        if problems:
            raise CannotBeDoneError(f"{'; '.join(problems)}.", result=result)
        if self.output is Format.JSON:
            print_json(result)


def _progress_printer() -> Callable[[Drain], None]:
    """Return a watcher that prints each change of a pod to stderr."""
    printed: dict[str, str] = {}
    staying: set[str] | None = None

    def watch(drain: Drain) -> None:
        nonlocal staying
        if staying is None and drain.listed:
            # The command has warned about these pods already.
            staying = {pod.uid for pod in drain.at(Stage.LEFT)}
        lines = {
            uid: line
            for uid, pod in drain.pods.items()
            if uid not in (staying or ())
            and (line := printable(_line(pod)))
            and printed.get(uid) != line
        }
        printed.update(lines)
        if lines:
            write_stderr("\n".join(lines.values()))

    return watch


def _line(pod: PodProgress) -> str:
    """Render the state of a pod, with the texts of kubectl if it has one."""
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
    """Render the result for a node. A refused node has no drain."""
    if drain is None:
        return {"node": plan.node, "drained": False, "refused": plan.refused, "pods": []}
    pods = [to_plain(pod) for pod in drain.pods.values()]
    return {"node": plan.node, "drained": drained, "pods": pods}


def pods_as_data(plans: "Sequence[PodPlan]") -> list[dict[str, Any]]:
    """Render the plans of pods as JSON."""
    renamed = {"decision": "action", "latestMoment": "latest", "gracePeriodSeconds": "grace"}
    return [picked(plan, "pod", "reason", "warning", "critical", **renamed) for plan in plans]


def pods_as_table(plans: "Sequence[PodPlan]", answers: Mapping[str, str] | None = None) -> "Table":
    """Render the plans of pods as a table. `answers` are those of the API server, by pod."""
    from rich.text import Text

    rows = table("POD", "DECISION", "LATEST", "GRACE", "REASON")
    for plan in plans:
        answer = f" The API server: {answers[plan.pod]}" if answers and plan.pod in answers else ""
        reason = plan.reason.message + (f" Loss: {plan.warning}." if plan.warning else "")
        latest = f"{plan.latest:%H:%M:%S}" if plan.latest else "-"
        # As Text: an API server's message may have brackets, which rich would read as markup.
        rows.add_row(plan.pod, plan.action.value, latest, f"{plan.grace}s", Text(reason + answer))
    return rows
