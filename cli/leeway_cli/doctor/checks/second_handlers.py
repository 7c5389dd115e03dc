"""Second handlers of the same notices: two programs that drain one node work against each other."""

from collections.abc import Iterator

from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import ClusterFacts, Facts, known
from leeway_cli.doctor.finding import About, Finding, aws, shell
from leeway_cli.doctor.names import EVENTS, function_name, may_match

TERMINATION_HANDLER = "aws-node-termination-handler"
KARPENTER = "karpenter"
_ACTING = ("sqs", "lambda", "states", "ssm")
"""Services whose targets can act on a notice. A topic or a log group only tells of it."""

_DRAINED = ("EC2 Spot Instance Interruption Warning", "EC2 Instance-terminate Lifecycle Action")
"""Events after which a handler drains; a rule for other events may only count them."""


def check_workloads(facts: Facts) -> Iterator[Finding]:
    """Check that no program in a cluster drains the nodes that Leeway drains."""
    for cluster in facts.clusters:
        for one in known(cluster.workloads) or ():
            kind, place = one.kind.lower(), ("--namespace", one.namespace)
            subject = f"{kind} {one.namespace}/{one.name}"
            about = About(reasons.SECOND_HANDLER, subject, cluster.name)
            if one.program == TERMINATION_HANDLER:
                yield about.warns(
                    f"{one.kind} {one.name} in namespace {one.namespace} runs {one.program}, which "
                    "drains the same nodes as Leeway.",
                    shell("kubectl", "delete", kind, one.name, *place),
                )
            elif one.program == KARPENTER and one.queue and _takes(cluster, "karpenter"):
                yield about.warns(
                    f"Karpenter in namespace {one.namespace} reads notices from queue {one.queue}, "
                    "and the Cluster manifest lets Leeway take its nodes: both drain them.",
                    shell("leeway", "get", f"cluster/{cluster.name}", "--cluster", cluster.name),
                )


def _takes(cluster: ClusterFacts, owner: str) -> bool:
    configuration = known(cluster.configuration)
    return configuration is not None and owner in configuration.takes


def check_managed_groups(facts: Facts) -> Iterator[Finding]:
    """Check that Leeway does not take nodes that EKS drains too."""
    for cluster in facts.clusters:
        managed = sorted({one.node_group for one in known(cluster.groups) or () if one.node_group})
        if managed and _takes(cluster, "managed-node-group"):
            yield About(reasons.SECOND_HANDLER, f"cluster {cluster.name}", cluster.name).warns(
                "The Cluster manifest lets Leeway take managed node groups: EKS drains "
                f"{', '.join(managed)} as well.",
                shell("leeway", "get", f"cluster/{cluster.name}", "--cluster", cluster.name),
            )


def check_other_rules(facts: Facts) -> Iterator[Finding]:
    """Check that no rule of others sends the events after which nodes are drained to a queue or a
    function. The queues of Karpenter are no finding: it drains its own nodes only."""
    stack, rules = known(facts.stack), known(facts.rules)
    if stack is None or rules is None:
        return
    karpenters = {
        one.queue
        for cluster in facts.clusters
        for one in known(cluster.workloads) or ()
        if one.program == KARPENTER and one.queue
    }
    for rule in rules:
        if not rule.enabled:
            continue
        drained = [e for e in EVENTS if e.detail_type in _DRAINED and may_match(rule.pattern, e)]
        for target in rule.targets:
            service, name = _target(target)
            is_ours = name.startswith(function_name(stack.name, ""))
            if drained and service in _ACTING and not is_ours and name not in karpenters:
                yield About(reasons.SECOND_HANDLER, f"rule {rule.name}").warns(
                    f"Rule {rule.name} sends events `{drained[0].detail_type}` to {target}: its "
                    "reader acts on them as well as Leeway.",
                    aws("events disable-rule", name=rule.name),
                )


def _target(arn: str) -> tuple[str, str]:
    """Return the service and the name of a target by its ARN."""
    parts = arn.split(":", 6)
    return (parts[2] if len(parts) > 2 else ""), parts[-1] if len(parts) < 7 else parts[6]
