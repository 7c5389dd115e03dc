"""`leeway explain`: what Leeway would do about a notice, a pod, a node or a cluster, and why."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
from leeway.notices import MalformedNotice, Notice, UnknownNotice
from leeway.policy.rules import ClusterPolicy, rule
from leeway.reasons import Reason

from leeway_cli.errors import (
    BadInputError,
    CannotBeDoneError,
    as_clause,
    aws_errors,
    kubernetes_errors,
)
from leeway_cli.explain.asked import explain_cluster, explain_node, explain_pod
from leeway_cli.explain.instance import explain_instance
from leeway_cli.manifests.files import FilesOption, read_files, read_texts
from leeway_cli.output import Format, FormatOption, print_json, stderr_console, stdout_console
from leeway_cli.stack import DEFAULT_STACK, StackOption, find_stack, has_account

if TYPE_CHECKING:
    from leeway.instances.facts import GroupFacts, InstanceFacts
    from leeway.interruption.explain import InstanceFindings
    from leeway.manifests.configuration import Configuration
    from leeway.ports.kubernetes import Cluster
    from leeway.ports.kubernetes_objects import Pod
    from leeway.ports.workloads import Workloads

DEFAULT_SOURCE = "defaults"


@dataclass(frozen=True, slots=True)
class PolicySources:
    """The sources of policies. `written` are those of files, by the name of the cluster. `stored`
    reads the table `table` of a deployment; it is None without a deployment."""

    written: dict[str, tuple[ClusterPolicy, str]]
    stored: "Configuration | None" = None
    table: str = ""

    def of(self, cluster: str) -> tuple[ClusterPolicy, str]:
        """Return the policy of a cluster and its source. An empty name stands for an unknown
        cluster, for which the only policy of the files is used."""
        if cluster in self.written:
            return self.written[cluster]
        if not cluster and len(self.written) == 1:
            return next(iter(self.written.values()))
        if self.stored is not None and cluster:
            return self.stored.policy_of(cluster), f"table {self.table}"
        return ClusterPolicy(), DEFAULT_SOURCE


class _StderrWarnings:
    """Prints warnings about stored manifests that cannot be read."""

    def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
        about = f"{cluster}: {manifest}" if manifest else cluster
        stderr_console().print(f"warning: {about}: {reason}", soft_wrap=True, markup=False)


def find_policies(files: Sequence[Path], stack: str | None) -> PolicySources:
    """Read the policies of these files and, with a stack, of its table.

    Raises:
        BadInputError: a file cannot be read, or has no Cluster manifest.
    """
    written = _read(files)
    if stack is None:
        return PolicySources(written)
    from leeway.clock import SystemClock
    from leeway.manifests.configuration import Configuration

    try:
        found = find_stack(stack)
    except CannotBeDoneError as error:
        stderr_console().print(
            f"warning: the default policies are used: {error}", soft_wrap=True, markup=False
        )
        return PolicySources(written)
    stored = Configuration(found.manifests(), SystemClock(), _StderrWarnings())
    return PolicySources(written, stored, found.table)


def _read(files: Sequence[Path]) -> dict[str, tuple[ClusterPolicy, str]]:
    if not files:
        return {}
    from leeway.manifests.cluster import Cluster, cluster_policy

    found = {}
    for path in files:
        for one in read_files([path]).written:
            if isinstance(one.manifest, Cluster):
                found[one.manifest.metadata.name] = (cluster_policy(one.manifest), str(path))
    if not found:
        paths = ", ".join(str(path) for path in files)
        raise BadInputError(f"{paths}: expected a manifest of kind Cluster.")
    return found


class _Explain(typer.core.TyperGroup):
    """Takes anything that is not a subcommand as a notice: `leeway explain EVENT.json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if args and args[0] in own else ["notice", *args])


app = typer.Typer(cls=_Explain, add_completion=False)
app.command("pod")(explain_pod)
app.command("node")(explain_node)
app.command("cluster")(explain_cluster)
app.command("instance")(explain_instance)


@app.callback()
def explain() -> None:
    """Explain what Leeway would do, and why: about a notice, a pod or a node, or to save money in a
    cluster; and why an instance has not joined. Changes nothing.

    \b
    leeway explain EVENT.json             the same as: leeway explain notice EVENT.json
    leeway explain pod NAMESPACE/NAME
    leeway explain node NAME
    leeway explain cluster
    leeway explain instance INSTANCE
    """


@app.command("notice")
def explain_notice(
    event: Annotated[
        Path, typer.Argument(metavar="EVENT.json", help="Read this EventBridge event; - for stdin.")
    ],
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read the node and its pods from this cluster."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Select the context of the kubeconfig.")
    ] = None,
    filename: FilesOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Explain what Leeway would do about a notice that arrives at its own time.

    Uses the policies of the Cluster manifests in -f, else those in Leeway's table, else the
    defaults. Reads the cluster only with --kubeconfig. Reads EC2 and the table only if AWS
    credentials and a region are set. Changes nothing.

    \b
    leeway explain events/spot-interruption.json
    leeway explain event.json --kubeconfig ~/.kube/config -o json
    """
    from leeway.clock import SystemClock
    from leeway.interruption.explain import Explanation, plan_instance
    from leeway.kubernetes.http_cluster import HttpCluster
    from leeway.kubernetes.surging import HttpSurgeWorkloads

    from leeway_cli.explain.plan_view import as_data, show
    from leeway_cli.kubeconfig import kubeconfig_connection

    notice = _read_notice(event)
    policies = find_policies(filename or (), stack if notice.instances and has_account() else None)
    general, _ = policies.of("")
    plans = []
    with kubernetes_errors(), ExitStack() as open_now:
        cluster = workloads = None
        if kubeconfig:
            connection = kubeconfig_connection(kubeconfig, context)
            cluster = open_now.enter_context(closing(HttpCluster(connection, SystemClock())))
            workloads = HttpSurgeWorkloads(connection)
        for instance in notice.instances or _instances_in(notice.reservation):
            findings = _find_instance(instance, cluster)
            policy, source = policies.of(findings.facts.cluster if findings.facts else "")
            if cluster is not None and workloads is not None:
                surges = tuple(_surges(findings.pods, cluster, workloads, policy))
                findings = replace(findings, surges=surges)
            if policy.waits_for_targets and findings.facts is not None:
                findings = _with_targets(findings)
            plans.append(plan_instance(notice, policy, source, findings))
    ruling = plans[0].ruling if plans else rule(notice, general.notices[notice.kind])
    explanation = Explanation(notice, ruling, tuple(plans))
    if output is Format.JSON:
        print_json(as_data(explanation))
    else:
        show(explanation, stdout_console())


def _read_notice(path: Path) -> Notice:
    from leeway.notices.parse import parse_notice

    if path.is_dir():
        raise BadInputError(f"{path}: expected a file, is a folder.")
    ((source, text),) = read_texts([path])
    try:
        event = json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"expected JSON: {error.msg}" if text.strip() else "the file is empty"
        place = f"{source}:{error.lineno}" if text.strip() else source
        raise BadInputError(f"{place}: {problem}.") from error
    if isinstance(event, dict) and not {"source", "detail-type"} <= event.keys():
        raise BadInputError(
            f"{source}: expected an EventBridge event, with source and detail-type."
        )
    try:
        return parse_notice(event)
    except (MalformedNotice, UnknownNotice) as error:
        raise BadInputError(f"{source}: {as_clause(error)}.") from error


def _find_instance(instance: str, cluster: "Cluster | None") -> "InstanceFindings":
    """Read one instance from the sources that are configured: EC2 and the cluster."""
    from leeway.interruption.explain import InstanceFindings

    asked = has_account()
    facts, group = _read_ec2(instance) if asked else (None, None)
    if cluster is None:
        unseen = "no cluster was read; --kubeconfig selects one"
        return InstanceFindings(instance, facts, group, None, unseen, ec2_read=asked)
    names = tuple(n for n in (facts.private_dns_name if facts else "", instance) if n)
    node = cluster.node_of(instance, names)
    if node is None:
        unseen = "no node of the cluster runs on this instance"
        return InstanceFindings(instance, facts, group, None, unseen, ec2_read=asked)
    pods, found_by = tuple(cluster.pods_on(node.name)), f"its provider id is {node.provider_id}"
    return InstanceFindings(instance, facts, group, node, found_by, pods, asked)


def _with_targets(findings: "InstanceFindings") -> "InstanceFindings":
    """Add which target groups of load balancers have the instance. Without the right to read them
    the plan says so."""
    from leeway.aws.target_groups import LoadBalancerTargets
    from leeway.ports.aws import CloudRefused, CloudUnavailable
    from leeway.retirement.targets import OVER, name_of
    from leeway.wiring.clients import client

    balancers = LoadBalancerTargets(partial(client, "elbv2"))
    try:
        targets = balancers.of_instance(findings.instance)
        groups = {one.group for one in targets if one.state != OVER}
        delays = {name_of(one): balancers.deregistration_delay(one) for one in groups}
    except (CloudRefused, CloudUnavailable) as error:
        return replace(findings, targets_unread=f"{error}.")
    known = {name: delay for name, delay in delays.items() if delay is not None}
    return replace(findings, delays=known)


def _surges(
    pods: "Iterable[Pod]", cluster: "Cluster", workloads: "Workloads", policy: ClusterPolicy
) -> Iterator[str]:
    """Say of pods that a budget keeps whether their workloads get one more pod first. A workload
    that the user may not read is left out."""
    from leeway.ports.kubernetes import ClusterRefused
    from leeway.retirement.surge import preview

    for pod in pods:
        try:
            budgets = cluster.budgets_of(pod)
            health = workloads.budget(pod.namespace, budgets[0]) if len(budgets) == 1 else None
            if not budgets or (health is not None and health.allowed > 0):
                continue
            decision = preview(workloads, policy.surges, pod.workload, budgets)
        except ClusterRefused:
            continue
        if decision is not None:
            yield f"Pod {pod.key}: {decision.reason}"


def _instances_in(reservation: str) -> tuple[str, ...]:
    """Return the instances of the capacity reservation that a notice names."""
    from leeway.wiring.clients import instances

    if not reservation or not has_account():
        return ()
    with aws_errors(f"capacity reservation {reservation}"):
        return tuple(instances().in_reservation(reservation))


def _read_ec2(instance: str) -> "tuple[InstanceFacts | None, GroupFacts | None]":
    """Read an instance and its group from EC2; None if it does not exist."""
    from leeway.wiring.clients import groups, instances

    with aws_errors(f"instance {instance}"):
        facts = instances().describe(instance)
        return facts, groups().facts(instance) if facts else None
