"""`leeway explain`: shows what Leeway would do about a notice, a pod, a node or a cluster, and the
reasons."""

import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from leeway_cli.errors import BadInputError, as_clause, aws_errors, kubernetes_errors
from leeway_cli.explain.cluster import explain_cluster
from leeway_cli.explain.node import explain_node
from leeway_cli.explain.pod import explain_pod
from leeway_cli.manifests.files import FilesOption, read_texts
from leeway_cli.output import Format, FormatOption, print_json, stdout_console
from leeway_cli.stack import DEFAULT_STACK, StackOption, has_account

if TYPE_CHECKING:
    from leeway.instances.facts import InstanceFacts
    from leeway.instances.groups import GroupFacts
    from leeway.interruption.explain import InstanceFindings
    from leeway.notices import Notice
    from leeway.ports.kubernetes import Cluster


class _Explain(typer.core.TyperGroup):
    """Takes anything that is not a subcommand as a notice: `leeway explain EVENT.json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if args and args[0] in own else ["notice", *args])


app = typer.Typer(cls=_Explain, add_completion=False)
app.command("pod")(explain_pod)
app.command("node")(explain_node)
app.command("cluster")(explain_cluster)


@app.callback()
def explain() -> None:
    """Explain what Leeway would do, and why: about a notice, a pod or a node, or to save money in a
    cluster. Changes nothing.

    \b
    leeway explain EVENT.json             the same as: leeway explain notice EVENT.json
    leeway explain pod NAMESPACE/NAME
    leeway explain node NAME
    leeway explain cluster
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
    from leeway.interruption.explain import Explanation, plan_instance
    from leeway.kubernetes.kubeconfig import kubeconfig_cluster
    from leeway.policy.rules import rule

    from leeway_cli.explain.plan_view import as_data, show
    from leeway_cli.explain.policy_sources import find_policies

    notice = _read_notice(event)
    policies = find_policies(filename or (), stack if notice.instances and has_account() else None)
    general, _ = policies.of("")
    plans = []
    with kubernetes_errors(), ExitStack() as open_now:
        cluster = None
        if kubeconfig:
            cluster = open_now.enter_context(closing(kubeconfig_cluster(kubeconfig, context)))
        for instance in notice.instances or _instances_in(notice.reservation):
            findings = _find_instance(instance, cluster)
            policy, source = policies.of(findings.facts.cluster if findings.facts else "")
            plans.append(plan_instance(notice, policy, source, findings))
    ruling = plans[0].ruling if plans else rule(notice, general.notices[notice.kind])
    explanation = Explanation(notice, ruling, tuple(plans))
    if output is Format.JSON:
        print_json(as_data(explanation))
    else:
        show(explanation, stdout_console())


def _read_notice(path: Path) -> "Notice":
    from leeway.notices import MalformedNotice, UnknownNotice
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


def _instances_in(reservation: str) -> "tuple[str, ...]":
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
