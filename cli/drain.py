"""`leeway drain`: the drain engine from a terminal, with `kubectl drain`'s refusals."""

from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.policies import OnBlocked

from cli.durations import parse_duration
from cli.errors import BadInputError, CannotBeDoneError
from cli.output import Format, FormatOption, messages, print_json, results

if TYPE_CHECKING:
    from leeway.cluster.ports import Cluster
    from leeway.drain.deadline import Terms
    from leeway.drain.pods import Pod, PodDecision
    from leeway.drain.progress import Drain

FOREVER = timedelta(days=365)


def drain(
    node: Annotated[str, typer.Argument(help="The node's name.")],
    deadline: Annotated[
        str, typer.Option(metavar="DURATION", help="When the node goes, from now: 120s, 2m.")
    ] = "",
    on_blocked: Annotated[
        OnBlocked,
        typer.Option(help="What becomes of a pod that a budget blocks at its latest moment."),
    ] = OnBlocked.FAIL,
    force: Annotated[
        bool,
        typer.Option("--force", help="Evict pods that nothing brings back; refuse nothing else."),
    ] = False,
    ignore_daemonsets: Annotated[
        bool, typer.Option("--ignore-daemonsets", help="Leave DaemonSets' pods where they are.")
    ] = False,
    delete_emptydir_data: Annotated[
        bool, typer.Option("--delete-emptydir-data", help="Evict pods whose emptyDir is lost.")
    ] = False,
    grace_period: Annotated[
        int, typer.Option(help="Seconds for every pod instead of its own; negative: its own.")
    ] = -1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: $KUBECONFIG, ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="The kubeconfig's context.")] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Cordon a node and evict its pods, each in time for a deadline.

    Refuses what `kubectl drain` refuses; the flags that allow it are the same, and --force allows
    all of it. Refusals come before the cordon.
    """
    from leeway.clock import SystemClock
    from leeway.cluster.kubeconfig import BadKubeconfig, kubeconfig_cluster
    from leeway.cluster.ports import ClusterRefused, ClusterUnavailable
    from leeway.drain.deadline import Terms

    clock = SystemClock()
    ends = clock.now() + parse_duration("--deadline", deadline) if deadline else None
    terms = Terms(ends, on_blocked, grace_period if grace_period >= 0 else None)
    allowed = {
        "--ignore-daemonsets": force or ignore_daemonsets,
        "--delete-emptydir-data": force or delete_emptydir_data,
        "--force": force,
    }
    try:
        with closing(kubeconfig_cluster(kubeconfig, context)) as cluster:
            if cluster.node(node) is None:
                raise CannotBeDoneError(f'nodes "{node}" not found')
            pods = cluster.pods_on(node)
            decisions = _decide(pods, clock.now(), allowed)
            if dry_run:
                _show_plan(node, pods, terms, clock.now(), output)
                return
            _warn(decisions)
            cluster.cordon(node, None)
            messages().print(f"node/{node} cordoned")
            ended = _work(cluster, node, terms)
    except BadKubeconfig as error:
        raise BadInputError(str(error)) from error
    except (ClusterRefused, ClusterUnavailable) as error:
        raise CannotBeDoneError(str(error)) from error
    _report(node, ended, output)


def _decide(pods: "list[Pod]", now: datetime, allowed: dict[str, bool]) -> "list[PodDecision]":
    """Decide all pods, or refuse as kubectl does, naming every pod and the flag it needs."""
    from leeway.drain.pods import Refusal, decide_pod

    decisions = [decide_pod(pod, now) for pod in pods]
    words = {
        Refusal.DAEMONSET: "DaemonSet-managed Pods",
        Refusal.EMPTY_DIR: "Pods with local storage",
        Refusal.UNMANAGED: "Pods that declare no controller",
    }
    refused = []
    for refusal, what in words.items():
        named = [
            d.pod.key
            for d in decisions
            if next((r for r in d.refusals if not allowed[r.value]), None) is refusal
        ]
        if named:
            refused.append(f"cannot delete {what} (use {refusal.value}): {', '.join(named)}")
    if refused:
        raise CannotBeDoneError("; ".join(refused))
    return decisions


def _warn(decisions: "list[PodDecision]") -> None:
    for decision in decisions:
        if decision.warning:
            messages().print(f"warning: {decision.pod.key}: {decision.warning}", style="yellow")


def _work(cluster: "Cluster", node: str, terms: "Terms") -> "Drain":
    """Drain to the end, saying on stderr what becomes of each pod as it does."""
    from leeway.clock import SystemClock
    from leeway.drain.progress import Drain
    from leeway.draining import Draining

    said: dict[str, str] = {}
    console = messages()

    def watch(drain: Drain) -> None:
        for uid, pod in drain.pods.items():
            line = f"pod/{pod.pod} {pod.stage}: {pod.reason}"
            if said.get(uid) != line:
                said[uid] = line
                console.print(line)

    clock = SystemClock()
    until = terms.deadline or clock.now() + FOREVER
    return Draining(cluster, clock, watch).work(node, Drain(), terms, until)


def _report(node: str, drain: "Drain", output: Format) -> None:
    if output is Format.JSON:
        print_json({"node": node, "drained": drain.drained, "pods": _rows(drain)})
    else:
        results().print(f"node/{node} {'drained' if drain.drained else 'not drained'}")
    if not drain.drained:
        from leeway.drain.progress import Stage

        failed = [f"{p.pod}: {p.reason}" for p in drain.at(Stage.FAILED)]
        left = "; ".join(failed) or "its pods could not be listed"
        raise CannotBeDoneError(f"node {node} is not drained: {left}")


def _rows(drain: "Drain") -> list[dict[str, Any]]:
    from leeway.drain.progress import PodProgress
    from leeway.typed_json import adapter_of

    writer = adapter_of(PodProgress)
    return [writer.dump_python(pod, mode="json") for pod in drain.pods.values()]


def _show_plan(node: str, pods: "list[Pod]", terms: "Terms", now: datetime, output: Format) -> None:
    from leeway.explanation import plan_pod

    from cli.explain import pods_as_data, pods_as_table

    plans = [plan_pod(pod, terms, now) for pod in pods]
    if output is Format.JSON:
        print_json({"node": node, "dryRun": True, "pods": pods_as_data(plans)})
    else:
        results().print(f"node/{node} would be cordoned (dry run)")
        results().print(pods_as_table(plans))
