"""`leeway explain`: what Leeway would do about a notice, and why, doing nothing."""

import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import BadInputError, CannotBeDoneError, unreadable
from cli.output import Format, FormatOption, print_json, results
from cli.pod_plans import pods_as_data, pods_as_table

if TYPE_CHECKING:
    from leeway.cluster.ports import Cluster
    from leeway.explanation import Explanation, InstancePlan
    from leeway.notices import Notice
    from leeway.policies import Ruling
    from leeway.records import InstanceFacts
    from leeway.replacement import GroupFacts


def explain(
    event: Annotated[Path, typer.Argument(metavar="EVENT.json", help="An EventBridge event.")],
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The cluster to look for the node and its pods in."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="The kubeconfig's context.")] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Explain what Leeway would do about a notice, as if it arrived at its own time.

    Reads the cluster only with --kubeconfig, and EC2 only where AWS credentials and a region are
    set. Writes nothing anywhere.
    """
    from leeway.cluster.kubeconfig import BadKubeconfig, kubeconfig_cluster
    from leeway.cluster.ports import ClusterRefused, ClusterUnavailable
    from leeway.explanation import Explanation
    from leeway.policies import DEFAULTS, rule

    notice = _read_notice(event)
    ruling = rule(notice, DEFAULTS[notice.kind])
    try:
        with ExitStack() as open_now:
            cluster = None
            if kubeconfig:
                cluster = open_now.enter_context(closing(kubeconfig_cluster(kubeconfig, context)))
            plans = [_plan(notice, ruling, instance, cluster) for instance in notice.instances]
    except BadKubeconfig as error:
        raise BadInputError(str(error)) from error
    except (ClusterRefused, ClusterUnavailable) as error:
        raise CannotBeDoneError(str(error)) from error
    explanation = Explanation(notice, ruling, tuple(plans))
    if output is Format.JSON:
        print_json(_as_data(explanation))
    else:
        _show(explanation)


def _read_notice(path: Path) -> "Notice":
    from leeway.notices import MalformedNotice, UnknownNotice
    from leeway.notices.parse import parse_notice

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: expected JSON in UTF-8") from error
    try:
        return parse_notice(json.loads(text))
    except json.JSONDecodeError as error:
        raise BadInputError(f"{path}:{error.lineno}: expected JSON: {error.msg}") from error
    except (MalformedNotice, UnknownNotice) as error:
        raise BadInputError(f"{path}: {error}") from error


def _plan(
    notice: "Notice", ruling: "Ruling", instance: str, cluster: "Cluster | None"
) -> "InstancePlan":
    from leeway.explanation import plan_instance

    facts, group = _ask_aws(instance)
    names = (facts.private_dns_name, instance) if facts else (instance,)
    node = cluster.node_of(instance, names) if cluster else None
    if cluster is None:
        reason = "no cluster was asked: --kubeconfig names one"
    elif node is None:
        reason = "no node of the cluster runs on this instance"
    else:
        reason = f"its provider id is {node.provider_id}"
    pods = cluster.pods_on(node.name) if cluster and node else []
    name = node.name if node else ""
    return plan_instance(notice, ruling, instance, facts, group, name, reason, pods)


def _ask_aws(instance: str) -> "tuple[InstanceFacts | None, GroupFacts | None]":
    """Read the instance and its group, where there is an account to ask."""
    from leeway.cloud.ports import CloudRefused, CloudUnavailable
    from leeway.wiring.clients import groups, instances, session

    if session().region_name is None or session().get_credentials() is None:
        return None, None
    try:
        facts = instances().describe(instance)
        return facts, groups().facts(instance) if facts else None
    except (CloudRefused, CloudUnavailable) as error:
        raise CannotBeDoneError(f"EC2: {error}") from error


def _as_data(explanation: "Explanation") -> dict[str, Any]:
    notice, ruling = explanation.notice, explanation.ruling
    return {
        "notice": {
            "id": notice.id,
            "kind": notice.kind.value,
            "time": notice.time.isoformat(),
        },
        "policy": {
            "action": ruling.action.value,
            "reason": ruling.reason,
            "deadline": ruling.deadline.isoformat() if ruling.deadline else None,
            "replacement": ruling.replacement.value,
            "onBlocked": ruling.on_blocked.value,
        },
        "instances": [
            {
                "instance": plan.instance,
                "cluster": plan.cluster or None,
                "owner": plan.owner or None,
                "node": plan.node or None,
                "nodeReason": plan.node_reason,
                "replacement": plan.replacement or None,
                "replacementReason": plan.replacement_reason,
                "pods": pods_as_data(plan.pods),
            }
            for plan in explanation.instances
        ],
    }


def _show(explanation: "Explanation") -> None:
    notice, ruling = explanation.notice, explanation.ruling
    console = results()
    deadline = f"{ruling.deadline:%Y-%m-%d %H:%M:%S} UTC" if ruling.deadline else "none"
    console.print(
        f"[bold]{notice.kind}[/] of {notice.time:%Y-%m-%d %H:%M:%S} UTC, {notice.id}",
        soft_wrap=True,
    )
    console.print(f"  policy       {ruling.action}: {ruling.reason}")
    console.print(f"  deadline     {deadline}")
    console.print(f"  blocked pods {ruling.on_blocked}")
    for plan in explanation.instances:
        owner = f" ({plan.owner})" if plan.owner else ""
        console.print(f"\n[bold]{plan.instance}[/]{owner}")
        console.print(f"  cluster      {plan.cluster or 'unknown'}")
        console.print(f"  node         {plan.node or 'none'}: {plan.node_reason}")
        console.print(f"  replacement  {plan.replacement or 'unknown'}: {plan.replacement_reason}")
        if plan.pods:
            console.print(pods_as_table(plan.pods))
