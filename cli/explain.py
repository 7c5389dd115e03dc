"""`leeway explain`: what Leeway would do about a notice, and why, doing nothing."""

import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.cluster_trouble import cluster_trouble
from cli.errors import BadInputError, CannotBeDoneError
from cli.manifest_files import FilesOption, read_texts
from cli.output import Format, FormatOption, print_json, results
from cli.stack import DEFAULT_STACK, StackOption

if TYPE_CHECKING:
    from leeway.instances.facts import InstanceFacts
    from leeway.instances.groups import GroupFacts
    from leeway.notices import Notice
    from leeway.ports.kubernetes import Cluster
    from leeway.retire_node.plan import InstanceFindings


def explain(
    event: Annotated[
        Path, typer.Argument(metavar="EVENT.json", help="An EventBridge event; - for stdin.")
    ],
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The cluster to look for the node and its pods in."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="The kubeconfig's context.")] = None,
    filename: FilesOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Explain what Leeway would do about a notice, as if it arrived at its own time.

    Policies are those of the Cluster manifests in -f, else those stored in Leeway's table, else the
    defaults. Reads the cluster only with --kubeconfig, and EC2 and the table only where AWS
    credentials and a region are set. Writes nothing anywhere.

    \b
    leeway explain events/spot-interruption.json
    leeway explain event.json --kubeconfig ~/.kube/config -o json
    """
    from leeway.kubernetes.kubeconfig import kubeconfig_cluster
    from leeway.policy.rules import rule
    from leeway.retire_node.plan import Explanation, plan_instance

    from cli.plan_view import as_data, show
    from cli.policy_sources import find_policies

    notice = _read_notice(event)
    policies = find_policies(filename or (), stack if notice.instances and _has_account() else None)
    general, _ = policies.of("")
    plans = []
    with cluster_trouble(), ExitStack() as open_now:
        cluster = None
        if kubeconfig:
            cluster = open_now.enter_context(closing(kubeconfig_cluster(kubeconfig, context)))
        for instance in notice.instances or _in_reservation(notice.reservation):
            seen = _look(instance, cluster)
            policy, source = policies.of(seen.facts.cluster if seen.facts else "")
            plans.append(plan_instance(notice, policy, source, seen))
    ruling = plans[0].ruling if plans else rule(notice, general.notices[notice.kind])
    explanation = Explanation(notice, ruling, tuple(plans))
    if output is Format.JSON:
        print_json(as_data(explanation))
    else:
        show(explanation, results())


def _read_notice(path: Path) -> "Notice":
    from leeway.notices import MalformedNotice, UnknownNotice
    from leeway.notices.parse import parse_notice

    if path.is_dir():
        raise BadInputError(f"{path}: expected a file, is a folder")
    ((source, text),) = read_texts([path])
    try:
        event = json.loads(text)
    except json.JSONDecodeError as error:
        said = f":{error.lineno}: expected JSON: {error.msg}" if text.strip() else ": is empty"
        raise BadInputError(f"{source}{said}") from error
    if isinstance(event, dict) and not {"source", "detail-type"} <= event.keys():
        raise BadInputError(f"{source}: expected an EventBridge event, with source and detail-type")
    try:
        return parse_notice(event)
    except (MalformedNotice, UnknownNotice) as error:
        raise BadInputError(f"{source}: {error}") from error


def _look(instance: str, cluster: "Cluster | None") -> "InstanceFindings":
    """Find out about one instance what there is somebody to ask for."""
    from leeway.retire_node.plan import InstanceFindings

    asked = _has_account()
    facts, group = _ask_aws(instance) if asked else (None, None)
    if cluster is None:
        unseen = "no cluster was asked: --kubeconfig names one"
        return InstanceFindings(instance, facts, group, None, unseen, ec2_read=asked)
    names = tuple(n for n in (facts.private_dns_name if facts else "", instance) if n)
    node = cluster.node_of(instance, names)
    if node is None:
        unseen = "no node of the cluster runs on this instance"
        return InstanceFindings(instance, facts, group, None, unseen, ec2_read=asked)
    pods, seen = tuple(cluster.pods_on(node.name)), f"its provider id is {node.provider_id}"
    return InstanceFindings(instance, facts, group, node, seen, pods, asked)


def _in_reservation(reservation: str) -> "tuple[str, ...]":
    """Find the instances that a notice is about which names their capacity reservation alone."""
    from leeway.ports.aws import CloudRefused, CloudUnavailable
    from leeway.wiring.clients import instances

    if not reservation or not _has_account():
        return ()
    try:
        return tuple(instances().in_reservation(reservation))
    except (CloudRefused, CloudUnavailable) as error:
        raise CannotBeDoneError(f"EC2: {error}") from error


def _has_account() -> bool:
    from leeway.wiring.clients import session

    return session().region_name is not None and session().get_credentials() is not None


def _ask_aws(instance: str) -> "tuple[InstanceFacts | None, GroupFacts | None]":
    """Read the instance and its group; None for what EC2 does not know."""
    from leeway.ports.aws import CloudRefused, CloudUnavailable
    from leeway.wiring.clients import groups, instances

    try:
        facts = instances().describe(instance)
        return facts, groups().facts(instance) if facts else None
    except (CloudRefused, CloudUnavailable) as error:
        raise CannotBeDoneError(f"EC2: {error}") from error
